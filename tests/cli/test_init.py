from __future__ import annotations

import re
from pathlib import Path

from headwater.cli.init import template
from headwater.settings import Settings, load, parse

from .conftest import Headwater


def test_the_file_is_a_valid_configuration_when_it_is_written(headwater: Headwater) -> None:
    result = headwater("init")
    assert result.exit_code == 0
    assert "Wrote headwater.yml" in result.output
    settings = load("headwater.yml", {})
    assert [(outlet.name, outlet.type) for outlet in settings.outlets] == [("backend", "openlineage")]
    assert settings.outlets[0].options["url"] == "http://localhost:5000"
    assert settings.gateway == Settings().gateway


def test_every_commented_line_is_the_default_when_its_mark_is_removed() -> None:
    before_outlets, _, rest = template().partition("outlets:\n")
    after_outlets = rest[rest.index("\n\n") :]
    text = re.sub(r"^( *)#(\w+:)", r"\1\2", before_outlets + after_outlets, flags=re.MULTILINE)
    assert parse(text, {}) == Settings()
    assert text.count(":\n") >= 3


def test_the_file_is_kept_when_it_exists(headwater: Headwater, tmp_path: Path) -> None:
    (tmp_path / "headwater.yml").write_text("data_dir: precious", encoding="utf-8")
    result = headwater("init")
    assert result.exit_code == 1
    assert "headwater.yml exists already" in result.output
    assert "--force" in result.output
    assert (tmp_path / "headwater.yml").read_text(encoding="utf-8") == "data_dir: precious"


def test_the_file_is_overwritten_when_forced(headwater: Headwater, tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("data_dir: old", encoding="utf-8")
    assert headwater("init", "mine.yml", "--force").exit_code == 0
    assert load(tmp_path / "mine.yml", {}).data_dir == Settings().data_dir
