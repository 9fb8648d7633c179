"""What is published: it is built, checked as the index checks it, installed elsewhere and run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path
from urllib.request import urlopen

import pytest

from headwater import __version__
from tests.parts.venvs import python_with
from tests.sources import ROOT

LINK = re.compile(r"\]\(([^)\s]+)\)")
BUILD_SECONDS = 300


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return found


def test_one_repository_is_named_when_the_project_is_read() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (source,) = re.findall(r'^Source = "(.*)"$', text, re.MULTILINE)
    addresses = re.findall(r"https://[^'\"\s]+", text)
    assert len(addresses) >= 5
    assert [each for each in addresses if not each.startswith(source)] == []


def run(*command: object, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    names = ("PATH", "HOME", "TMPDIR")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    kept |= {
        name: text for name, text in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }
    return subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and the source distribution, made from what git knows."""
    folder = tmp_path_factory.mktemp("package")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(clone)], check=True)
    tools = python_with("package-tools", "build>=1.2", "twine>=6.1")
    built = run(tools, "-m", "build", "--outdir", folder / "dist", clone, folder=folder)
    assert built.returncode == 0, built.stdout + built.stderr
    checked = run(tools, "-m", "twine", "check", "--strict", *(folder / "dist").iterdir(), folder=folder)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("PASSED") == 2
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.mark.long
def test_every_file_of_the_package_is_in_both_when_they_are_built(dist: Path, wheel: Path) -> None:
    known = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(known) > 300
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert [name for name in known if name.removeprefix("src/") not in packed] == []
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        contained = {name.partition("/")[2] for name in archive.getnames()}
    assert [name for name in known if name not in contained] == []
    assert wheel.stat().st_size < 3_000_000
    assert source.stat().st_size < 3_000_000


@pytest.mark.long
def test_every_link_leads_to_a_file_of_the_release_when_the_index_shows_the_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"headwater-{__version__}.dist-info/METADATA")
    message = BytesParser().parsebytes(metadata)
    assert {each.partition(",")[0] for each in message.get_all("Project-URL", [])} == {
        "Documentation", "Changelog", "Issues", "Source",
    }  # fmt: skip
    (source,) = [each.partition(", ")[2] for each in message.get_all("Project-URL", []) if "Source," in each]
    links = LINK.findall(str(message.get_payload()))
    assert len(links) > 10
    for link in links:
        found = re.fullmatch(rf"{source}/(?:blob|raw)/v{re.escape(__version__)}/([^#]+)(?:#.*)?", link)
        assert found is not None, link
        assert (ROOT / found[1]).exists(), link
        assert ("/raw/" in link) == link.endswith(".png"), link


@pytest.mark.long
@pytest.mark.timeout(BUILD_SECONDS)
def test_the_sidecar_runs_and_its_hint_can_be_typed_when_the_wheel_is_installed(
    wheel: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    programs = tmp_path / "env" / "bin"
    constraints = ROOT / "constraints.txt"
    installed = run(
        programs / "pip", "install", "--quiet", "--constraint", constraints, wheel, folder=tmp_path
    )
    assert installed.returncode == 0, installed.stderr
    headwater = programs / "headwater"
    assert run(headwater, "--version", folder=tmp_path).stdout.split()[-1] == __version__
    made = run(headwater, "init", folder=tmp_path)
    assert f"run `{headwater} check`" in made.stdout, made.stdout  # it is not on the PATH
    checked = run(headwater, "check", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (tmp_path / "headwater.yml").write_text("{gateway: {port: 0}, graph: {enabled: true}}", encoding="utf-8")
    server = subprocess.Popen([headwater, "serve"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        hint = address = ""
        for line in server.stderr:
            hint = found[1] if (found := re.search(r"No page at /: it needs `(.*)`", line)) else hint
            if found := re.search(r"listens on (http[^,]+),", line):
                address = found[1]
                break
        with urlopen(f"{address}/healthz") as answer:  # its scheme is http
            assert answer.status == 200
    finally:
        server.terminate()
        server.communicate(timeout=60)
    typed = run(*shlex.split(hint), folder=tmp_path, PIP_CONSTRAINT=str(constraints))
    assert typed.returncode == 0, typed.stderr
    assert run(programs / "python", "-c", "import jinja2", folder=tmp_path).returncode == 0
