from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from headwater import __version__
from headwater.cli.main import COMMANDS, cli

from .conftest import Headwater


def test_every_command_is_listed_when_help_is_asked_for(headwater: Headwater) -> None:
    result = headwater("--help")
    assert result.exit_code == 0
    for name, place in COMMANDS.items():
        assert f"  {name} " in result.output
        assert place.help in " ".join(result.output.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_own_help_begins_with_the_listed_line_when_it_is_loaded(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name].help


def test_no_stage_is_imported_when_help_is_asked_for() -> None:
    code = (
        "import sys\nfrom headwater.cli.main import cli\n"
        "try: cli(['--help'])\nexcept SystemExit: pass\n"
        "print(*[name for name in sys.modules if name.startswith('headwater.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) == {"headwater.cli", "headwater.cli.main", "headwater.errors"}


def test_the_version_is_printed_when_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"headwater, version {__version__}"


def test_the_exit_code_is_two_when_a_command_is_unknown(headwater: Headwater) -> None:
    result = headwater("srve")
    assert result.exit_code == 2
    assert "srve" in result.output


def test_every_problem_is_shown_with_exit_code_two_when_the_configuration_is_wrong(
    headwater: Headwater, tmp_path: Path
) -> None:
    (tmp_path / "headwater.yml").write_text("gateway: {prot: 1, host: 5}\n", encoding="utf-8")
    result = headwater("status")
    assert result.exit_code == 2
    assert "error: headwater.yml has 2 problem(s):" in result.output
    assert "did you mean `gateway.port`?" in result.output
    assert "`gateway.host`: expected `str`, got `int`" in result.output
    assert "Traceback" not in result.output


def test_the_hint_is_shown_with_exit_code_one_when_a_command_fails(headwater: Headwater) -> None:
    result = headwater("status")
    assert result.exit_code == 1
    assert "error: headwater-data/log does not exist" in result.output
    assert "start the server with `headwater serve`" in result.output


def test_the_reason_is_shown_with_exit_code_one_when_the_system_refuses(
    headwater: Headwater, tmp_path: Path
) -> None:
    result = headwater("init", str(tmp_path / "no-such-folder" / "headwater.yml"))
    assert result.exit_code == 1
    assert "error: [Errno 2] No such file or directory" in result.output


@pytest.mark.parametrize(
    "arguments", [("-c", "other.yml", "status"), ("status", "-c", "other.yml")], ids=["before", "after"]
)
def test_the_named_configuration_is_used_when_it_stands_before_or_after_the_command(
    headwater: Headwater, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "other.yml").write_text("data_dir: elsewhere", encoding="utf-8")
    assert "elsewhere/log does not exist" in headwater(*arguments).output


@pytest.mark.parametrize("arguments", [("-v", "status"), ("status", "-v")])
def test_the_traceback_is_printed_when_the_command_is_verbose(
    headwater: Headwater, arguments: tuple[str, ...]
) -> None:
    assert "Traceback" not in headwater("status").output
    assert "Traceback (most recent call last):" in headwater(*arguments).output


def test_words_are_completed_without_an_import_of_a_stage_when_a_shell_asks() -> None:
    code = (
        "import sys\nfrom headwater.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(*[name for name in sys.modules if name.startswith('headwater.')], file=sys.stderr)"
    )
    words = {"_HEADWATER_COMPLETE": "bash_complete", "COMP_WORDS": "headwater st", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | words
    )
    assert done.stdout == "plain,status\n"
    assert set(done.stderr.split()) == {"headwater.cli", "headwater.cli.main", "headwater.errors"}


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_script_of_a_shell_is_printed_when_it_is_asked_for(headwater: Headwater, shell: str) -> None:
    result = headwater("completion", shell)
    assert result.exit_code == 0
    assert f"_HEADWATER_COMPLETE={shell}_complete" in result.output


def test_bash_accepts_the_script_when_it_is_sourced(headwater: Headwater) -> None:
    script = headwater("completion", "bash").output
    done = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p headwater"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("headwater")
