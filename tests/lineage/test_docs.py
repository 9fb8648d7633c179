"""docs/lineage.md and the README's example say what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import headwater.lineage
from headwater.lineage.settings import LineageSettings
from headwater.testing import OpenLineageServer
from tests.lineage.conftest import validate
from tests.sources import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shown(default: Any) -> str:
    if default is None or default in ((), {}, frozenset()):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple | frozenset):
        return f"`{','.join(sorted(default) if isinstance(default, frozenset) else default)}`"
    return f"`{default}`"


def table() -> str:
    lines = ["| key | default | what it does | argument |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(LineageSettings):
        meta = next((each for each in getattr(field.type, "__metadata__", ()) if each.extra), None)
        if meta is not None:
            default = "" if field.default is msgspec.NODEFAULT else shown(field.default)
            lines.append(f"| `{meta.extra['key']}` | {default} | {meta.description} | `{field.name}` |")
    return "\n".join(lines)


def test_the_table_of_settings_is_fresh_when_made_again() -> None:
    page = (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- settings:.*?-->\n(.*?)\n?<!-- end of settings -->", page, re.DOTALL)
    assert found is not None
    assert found[1] == table()


def test_the_pages_example_sends_its_lineage_when_it_is_run(spark: SparkSession, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "lineage.md").read_text(encoding="utf-8")
    code = next(each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "/tmp/orders" in each)
    headwater.lineage.uninstall()
    with OpenLineageServer() as server:
        exec(code.replace("http://127.0.0.1:8750", server.url).replace("/tmp/", f"{tmp_path}/"), {})
        assert headwater.lineage.flush(200)
        headwater.lineage.uninstall()
        events = [json.loads(each) for each in server.received]
    validate(events)
    (event,) = [each for each in events if each["eventType"] == "COMPLETE" and each["outputs"]]
    (output,) = event["outputs"]
    assert output["name"] == str(tmp_path / "spending")
    assert [field["name"] for field in output["facets"]["schema"]["fields"]] == ["who", "sum(amount)"]
    (origin,) = output["facets"]["columnLineage"]["fields"]["sum(amount)"]["inputFields"][:1]
    assert (origin["name"], origin["field"]) == (str(tmp_path / "orders.csv"), "amount")
