from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.cli.main import cli

Headwater = Callable[..., Result]


@pytest.fixture
def headwater(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Headwater:
    """Run a command as typed, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_CONFIG", raising=False)
    # as in a shell of the environment, where hints begin with `headwater`
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def run(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=input, prog_name="headwater")

    return run
