"""Builds the docs site into build/site/html, and fails for a link that leads nowhere.

The pages are those of docs/ and of this repository's first folder, with links between them as they are on the
site. Links to other files lead to the repository.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.parts.venvs import python_with  # noqa: E402

PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "README.md": "index.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def site_path(path: str) -> str | None:
    """Where a file of the repository is on the site; None if it is not part of it."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def with_links_of_the_site(text: str, path: str, repository: str) -> str:
    """The page at `path` of the repository, with its links as they are on the site."""
    here = site_path(path)
    assert here is not None

    def replaced(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition("#")
        if not target or "://" in target:
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        there = site_path(file)
        if there is None:
            return f"{match[1]}{repository}/blob/main/{file}{mark}{anchor}{match[3]}"
        return f"{match[1]}{posixpath.relpath(there, posixpath.dirname(here))}{mark}{anchor}{match[3]}"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)


def assemble(target: Path, repository: str) -> None:
    """Write the pages and pictures of the site."""
    shutil.rmtree(target, ignore_errors=True)
    files = [path for path in sorted((ROOT / "docs").rglob("*")) if path.is_file()]
    files += [ROOT / name for name in PAGES if name != "README.md"]
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        place = target / str(site_path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            text = with_links_of_the_site(file.read_text(encoding="utf-8"), path, repository)
            place.write_text(text, encoding="utf-8")
        else:
            shutil.copy(file, place)


def main() -> int:
    """Assemble the pages and build them, with the version of the tool that constraints.txt names."""
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assemble(ROOT / config["docs_dir"], config["repo_url"])
    locked = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^zensical==([^\s;]+)", locked, re.MULTILINE)
    python = python_with("site", f"zensical=={version}")
    # without this, a page that did not change is not checked again
    command = [str(python), "-m", "zensical", "build", "--clean", "--strict", "-f", "zensical.toml"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
