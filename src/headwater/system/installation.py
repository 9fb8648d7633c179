"""How this installation is changed and called: the commands that hints print can be typed as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from headwater.formats.json_decoder import json_decoder


def install_command(*extras: str) -> str:
    """The command that adds extras to this installation: `pip install 'headwater[page]'`."""
    target = shlex.quote(f"{_source()}[{','.join(extras)}]")
    if (tool := _tool()) is not None:
        return f"{tool} install --force {target}"
    return f"{_pip('install')} {'-e ' if _is_editable() else ''}{target}"


def package_command(action: str, package: str) -> str:
    """The command that installs or removes another package here: `pip install iptocc`."""
    pip = f"pipx runpip headwater {action}" if _tool() == "pipx" else _pip(action)
    return f"{pip} {package}"


def typeable(hint: str, config: str | None = None) -> str:
    """The hint with each `headwater …` as it can be typed here, with the `-c` that the user typed."""
    program = _program() + (f" -c {shlex.quote(config)}" if config else "")
    return re.sub(r"`headwater (?!-c |--)", lambda _: f"`{program} ", hint)


def _program() -> str:
    """`headwater` if the shell finds the one of this installation, else a command that does."""
    found = shutil.which("headwater")
    if found is not None and _is_here(found):
        return "headwater"
    beside = Path(sys.executable).parent / "headwater"
    return shlex.quote(str(beside)) if beside.exists() else f"{shlex.quote(sys.executable)} -m headwater"


def _is_here(program: str) -> bool:
    """Whether a program of the PATH belongs to this installation."""
    if Path(program).parent == Path(sys.executable).parent:
        return True
    try:
        with Path(program).open("rb") as script:  # a link of pipx or uv leads to the script of the tool
            first = script.readline(4096)
    except OSError:
        return False
    return first.removeprefix(b"#!").strip() == str(sys.executable).encode()


def _tool() -> str | None:
    """The tool for programs that made this environment: pipx or uv."""
    places = Path(sys.prefix).parts
    if "pipx" in places:
        return "pipx"
    return "uv tool" if "uv" in places and "tools" in places else None


def _pip(action: str) -> str:
    """The command that changes the packages of this environment."""
    if _tool() == "uv tool" or (_metadata("INSTALLER").strip() == "uv" and shutil.which("uv")):
        return f"uv pip {action} --python {shlex.quote(sys.executable)}"
    pip = shutil.which("pip")
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        return f"pip {action}"
    return f"{shlex.quote(sys.executable)} -m pip {action}"


class _DirInfo(msgspec.Struct, frozen=True):
    editable: bool = False


class _DirectUrl(msgspec.Struct, frozen=True):
    """What an installer records about a package that came from no index."""

    url: str = ""
    dir_info: _DirInfo = _DirInfo()


def _direct_url() -> _DirectUrl:
    try:
        return json_decoder(_DirectUrl).decode(_metadata("direct_url.json"))
    except msgspec.MsgspecError:
        return _DirectUrl()


def _source() -> str:
    """Where this installation came from: a folder or a file, otherwise the name of the package."""
    url = urlsplit(_direct_url().url)
    path = unquote(url.path)
    return path if url.scheme == "file" and Path(path).exists() else "headwater"


def _is_editable() -> bool:
    return _direct_url().dir_info.editable and _source() != "headwater"


def _metadata(name: str) -> str:
    try:
        return distribution("headwater").read_text(name) or ""
    except PackageNotFoundError:
        return ""
