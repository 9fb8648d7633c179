"""The pages say what the code does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml

from headwater import __version__
from headwater.cli.main import cli
from headwater.metrics import CATALOGUE
from headwater.settings import Settings
from headwater.settings.describe import describe

from .sources import ROOT, parse

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
PROMISES = [f"G{number}" for number in range(1, 13)]


class Example(NamedTuple):
    page: Path
    language: str
    code: str


def examples(*languages: str) -> list[Example]:
    return [
        Example(page, language, code)
        for page in PAGES
        for language, code in FENCE.findall(page.read_text(encoding="utf-8"))
        if language in languages
    ]


def label(value: object) -> str:
    page = value.page if isinstance(value, Example) else value
    return str(page.relative_to(ROOT)) if isinstance(page, Path) else str(value)


def anchors(page: Path) -> set[str]:
    """The names that headings get where Markdown is shown."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_generated_pages_are_fresh_when_made_again() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_link_leads_somewhere_when_a_page_is_read(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(other), f"{page.name}: {target}"


@pytest.mark.parametrize("example", examples("python"), ids=label)
def test_python_examples_compile_when_a_page_shows_some(example: Example) -> None:
    assert compile(example.code, str(example.page), "exec")


@pytest.mark.parametrize("example", examples("yaml"), ids=label)
def test_yaml_examples_are_yaml_when_a_page_shows_some(example: Example) -> None:
    assert isinstance(yaml.safe_load(example.code), dict)


def test_the_spools_python_example_emits_when_it_is_run(tmp_path: Path) -> None:
    (example,) = [each for each in examples("python") if each.page.name == "spool.md"]
    code = example.code.replace("/var/spool/headwater", str(tmp_path)).replace("marquez:5000", "127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-c", code + "\nassert client.close(0) is True"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def commands(command: click.Command, context: click.Context) -> Iterator[str]:
    yield context.command_path
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, click.Context(inner, info_name=name, parent=context))


def test_every_command_that_a_page_names_exists_when_it_is_looked_up() -> None:
    known = set(commands(cli, click.Context(cli, info_name="headwater")))
    groups = {path.rpartition(" ")[0] for path in known}
    for page in PAGES:
        for found in re.findall(r"`headwater((?: [a-z]+)+)", page.read_text(encoding="utf-8")):
            path = "headwater"
            for word in found.split():
                path = f"{path} {word}"
                if path.rpartition(" ")[0] in groups:
                    assert path in known, f"{page.name}: {path}"


def test_every_metric_that_a_page_names_exists_when_it_is_looked_up() -> None:
    known = {entry.name + ("_total" if entry.kind == "counter" else "") for entry in CATALOGUE}
    for page in PAGES:
        found = set(re.findall(r"\bheadwater_[a-z_]+", page.read_text(encoding="utf-8"))) - {"headwater_"}
        assert found - known == set(), page.name


def test_every_setting_that_a_page_names_exists_when_it_is_looked_up() -> None:
    known = {
        f"{section.name}.{field.name}"
        for section in describe(Settings)
        if section.struct is not None
        for field in describe(section.struct)
    }
    sections = "|".join(section.name for section in describe(Settings) if section.struct is not None)
    for page in PAGES:
        found = set(re.findall(rf"`((?:{sections})\.[a-z_]+)", page.read_text(encoding="utf-8")))
        assert found - known == set(), page.name


def names_in(path: Path) -> set[str]:
    tree = parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    } | {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_its_tests_or_says_that_it_has_none_when_it_is_looked_up(promise: str) -> None:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {promise} \|.*$", page, re.MULTILINE)
    assert TEST.search(row) or "not in this release" in row


def test_each_claim_about_security_has_its_tests_when_it_is_looked_up() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    claims = re.search(r"^## Claims$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert claims is not None
    rows = [
        row for row in re.findall(r"^\|.*$", claims[1], re.MULTILINE) if not re.match(r"\|( claim|---)", row)
    ]
    assert len(rows) > 30
    assert [row for row in rows if not TEST.search(row)] == []


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_test_that_a_page_names_exists_when_it_is_looked_up(page: Path) -> None:
    for file, test in TEST.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / file).exists(), file
        assert test in names_in(ROOT / file), f"{file}::{test}"


def test_the_changelog_begins_with_this_version_when_it_is_read() -> None:
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (\d+\.\d+\.\d+)", page, re.MULTILINE)
    assert first is not None
    assert first[1] == __version__
