"""The docs site: its menu has every page, and it is built strictly."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from scripts.docs_site import LINK, PAGES, site_path, with_links_of_the_site

from tests.sources import ROOT

CONFIG: dict[str, Any] = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = "https://example.com/repository"


def listed(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from listed(value)


def test_the_menu_has_every_page_once_when_it_is_read() -> None:
    found = list(listed(CONFIG["nav"]))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert len(found) == len(set(found))
    assert (pages | set(PAGES.values())) - set(found) == set(), "add the page to `nav` in zensical.toml"
    assert set(found) - pages - set(PAGES.values()) == set(), "remove the page from `nav` in zensical.toml"


def test_the_address_of_the_repository_is_that_of_the_package_when_they_are_compared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Source"] == CONFIG["repo_url"]


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("docs/how-to/upgrade.md", "../../CHANGELOG.md#x", "../project/changelog.md#x"),
        ("docs/how-to/upgrade.md", "../log.md", "../log.md"),
        ("ARCHITECTURE.md", "docs/log.md", "../log.md"),
        ("CONTRIBUTING.md", "ARCHITECTURE.md", "architecture.md"),
        ("CONTRIBUTING.md", "LICENSE", f"{REPOSITORY}/blob/main/LICENSE"),
        ("docs/log.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("docs/log.md", "#files", "#files"),
    ],
)
def test_a_link_leads_to_the_page_of_the_site_when_it_is_copied(page: str, link: str, expected: str) -> None:
    text = f"[a]({link})\n```\n[b]({link})\n```\n"
    assert with_links_of_the_site(text, page, REPOSITORY) == f"[a]({expected})\n```\n[b]({link})\n```\n"


def test_only_pages_are_on_the_site_when_files_are_looked_up() -> None:
    assert site_path("tests/test_site.py") is None
    assert site_path("docs/img/trace.png") == "img/trace.png"
    assert LINK.search("[a](b)") is not None


class _Pictures(HTMLParser):
    """The pictures of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.images: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "img":
            self.images.append(found.get("src") or "")


@pytest.mark.long
def test_every_page_is_built_without_a_warning_when_the_site_is_made() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/docs_site.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    html = ROOT / CONFIG["site_dir"]
    for page in listed(CONFIG["nav"]):
        name = re.sub(r"(index)?\.md$", "", page)
        text = (html / name / "index.html").read_text(encoding="utf-8")
        assert "<h1" in text, page
        found = _Pictures()
        found.feed(text)
        pictures = [each for each in found.images if not each.startswith("http")]
        assert [each for each in pictures if not (html / name / each).resolve().exists()] == [], page
        if page == "concepts.md":
            assert len(pictures) == 3
        # a reader's address goes to no other site
        others = r'<(?:script|link rel="stylesheet"|img)[^>]*(?:src|href)="https?:'
        assert re.findall(others, text) == [], page
