"""Commands in hints can be typed as they stand, however Headwater was installed."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from headwater.system import installation
from headwater.system.installation import install_command, package_command, typeable


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in `tmp_path` with a Headwater of the index, and its programs on the PATH."""
    programs = tmp_path / "env" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "pip", "headwater", "uv"):
        (programs / name).write_text(f"#!{programs / 'python'}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setenv("PATH", str(programs))
    _record(monkeypatch, {})
    return programs


def _record(monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
    """What the installer recorded about the package."""
    monkeypatch.setattr(installation, "_metadata", lambda name: files.get(name, ""))


@pytest.mark.usefixtures("installed")
def test_the_extra_is_named_when_the_package_came_from_an_index() -> None:
    assert install_command("page", "pipeline") == "pip install 'headwater[page,pipeline]'"
    assert package_command("uninstall", "elsewhere") == "pip uninstall elsewhere"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("is_editable", [True, False])
def test_the_folder_is_named_when_the_package_came_from_a_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_editable: bool
) -> None:
    clone = tmp_path / "a clone"
    clone.mkdir()
    url = {"url": clone.as_uri(), "dir_info": {"editable": is_editable}}
    _record(monkeypatch, {"direct_url.json": json.dumps(url)})
    words = shlex.split(install_command("page"))
    assert words == ["pip", "install", *(["-e"] if is_editable else []), f"{clone}[page]"]


@pytest.mark.usefixtures("installed")
def test_the_index_is_used_when_the_clone_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = {"url": (tmp_path / "gone").as_uri(), "dir_info": {"editable": True}}
    _record(monkeypatch, {"direct_url.json": json.dumps(url)})
    assert install_command("page") == "pip install 'headwater[page]'"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("record", ["{", "[]", '{"url": 5}', '{"url": "git+ssh://example.com/x"}'])
def test_the_index_is_used_when_the_record_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    _record(monkeypatch, {"direct_url.json": record})
    assert install_command("page") == "pip install 'headwater[page]'"


@pytest.mark.parametrize(
    ("prefix", "expected", "package"),
    [
        (
            "home/.local/share/uv/tools/headwater",
            "uv tool install --force 'headwater[page]'",
            "uv pip install --python {python} iptocc",
        ),
        (
            "home/.local/share/pipx/venvs/headwater",
            "pipx install --force 'headwater[page]'",
            "pipx runpip headwater install iptocc",
        ),
    ],
)
def test_the_tool_is_named_when_it_made_the_environment(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prefix: str, expected: str, package: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / prefix))
    assert install_command("page") == expected
    assert package_command("install", "iptocc") == package.format(python=installed / "python")


def test_uv_is_named_when_it_installed_the_package(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _record(monkeypatch, {"INSTALLER": "uv\n"})
    assert install_command("page") == f"uv pip install --python {installed / 'python'} 'headwater[page]'"
    assert package_command("uninstall", "other") == f"uv pip uninstall --python {installed / 'python'} other"


def test_the_interpreter_is_named_when_pip_on_the_path_is_another(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    _record(monkeypatch, {})
    assert install_command("page") == f"{installed / 'python'} -m pip install 'headwater[page]'"


@pytest.mark.usefixtures("installed")
def test_a_hint_has_the_configuration_that_was_typed_when_there_was_one() -> None:
    hint = "Run `headwater check`, then `headwater serve`; see `headwater --help`."
    assert typeable(hint) == hint
    assert typeable(hint, "other file.yml") == (
        "Run `headwater -c 'other file.yml' check`, then `headwater -c 'other file.yml' serve`; "
        "see `headwater --help`."
    )


def test_a_hint_has_the_whole_path_when_the_shell_would_not_find_the_program(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert typeable("Run `headwater check`.") == f"Run `{installed / 'headwater'} check`."
    (installed / "headwater").unlink()
    assert typeable("Run `headwater check`.") == f"Run `{installed / 'python'} -m headwater check`."


def test_a_hint_has_the_short_name_when_a_link_on_the_path_leads_here(
    installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    (elsewhere / "headwater").symlink_to(installed / "headwater")
    monkeypatch.setenv("PATH", str(elsewhere))
    assert typeable("Run `headwater check`.") == "Run `headwater check`."
