"""docs/openlineage.md says what the validator does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import orjson

from headwater.gateway.openlineage_validator import ECHO, LIMIT, PATH, Validator
from tests.gateway.openlineage_corpus import PLACES, definitions

PAGE = (Path(__file__).resolve().parents[2] / "docs/openlineage.md").read_text()
BLOCKS: dict[str, Any] = {
    name: orjson.loads(text) for name, text in re.findall(r"```json (\w+)\n(.*?)```", PAGE, re.DOTALL)
}


def test_refusal_on_the_page_is_the_real_one_when_its_event_is_checked() -> None:
    verdict = Validator().check(BLOCKS["event"])
    assert msgspec.to_builtins(verdict.errors) == tuple(BLOCKS["errors"])
    assert msgspec.to_builtins(verdict.warnings) == tuple(BLOCKS["warnings"])


def test_every_facet_key_is_on_the_page_when_the_schema_knows_it() -> None:
    rows = [
        set(re.findall(r"`(\w+)`", row.split("|")[2])) for row in PAGE.splitlines() if "acets`" in row[:24]
    ]
    known = {container: set(definitions[container]["properties"]) for _, _, container in PLACES}
    assert rows == list(known.values())


def test_limits_on_the_page_are_the_real_ones_when_read() -> None:
    assert f"at most {LIMIT} errors and {LIMIT} warnings" in PAGE
    assert f"at most {ECHO} characters of any value, and paths cut at {PATH} characters" in PAGE
