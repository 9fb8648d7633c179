"""Tests the core with the lowest versions of its dependencies that pyproject.toml allows.

They go into an environment of their own in `.cache`; the tools of the tests have the versions of
constraints.txt.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".cache" / "floors"
PYTHON = FOLDER / "bin" / "python"
# What the tests below import besides the core.
TOOLS = ["cryptography", "hypothesis", "prometheus-client", "psutil", "pytest", "pytest-timeout"]
TOOLS += ["jsonschema", "pytest-xdist", "zstandard"]
FOLDERS = ("http", "gateway", "log", "delivery", "cli")
TESTS = ("tests/test_*.py", *(f"tests/{folder}/test_*.py" for folder in FOLDERS))
# These test Spark, the destinations, or tools that the core does not install.
LEFT_OUT = (
    "tests/test_docs.py",
    "tests/test_readme.py",
    "tests/test_public_names.py",
    "tests/test_layers.py",
    "tests/test_extensions.py",
    "tests/gateway/test_schemathesis.py",
    "tests/cli/test_check_pipeline.py",
    "tests/cli/test_output.py",
)


def uv(*arguments: str) -> str:
    """Run uv in the root, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "uv", "--quiet", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def pinned(text: str) -> dict[str, str]:
    """The lines of a list of versions, by package."""
    return {line.partition("==")[0]: line for line in text.splitlines() if "==" in line}


def make_environment(core: tuple[str, ...]) -> None:
    """Install the lowest versions of the core, then the tools."""
    uv("venv", "--clear", "--python", sys.executable, str(FOLDER))
    lowest = pinned(uv("pip", "compile", "--resolution", "lowest-direct", "--no-header", *core))
    locked = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    tools = [line for name, line in locked.items() if name not in lowest]
    for name, lines in (("core.txt", lowest.values()), ("tools.txt", tools)):
        (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    into = ("pip", "install", "--python", str(PYTHON))
    uv(*into, "--requirements", str(FOLDER / "core.txt"))
    uv(*into, "--no-deps", "--editable", ".")
    uv(*into, "--constraints", str(FOLDER / "core.txt"), "--constraints", str(FOLDER / "tools.txt"), *TOOLS)
    print(uv("pip", "list", "--python", str(PYTHON)), flush=True)


def main() -> int:
    """Install and run the tests; the exit code is that of pytest."""
    make_environment(("pyproject.toml", "--extra", "page", "--extra", "spool", "--extra", "kafka"))
    command = [str(PYTHON), "-m", "pytest", "-q", "-m", "not long", *sys.argv[1:]]
    found = sorted({path for pattern in TESTS for path in ROOT.glob(pattern)})
    paths = [str(path) for path in found if path.relative_to(ROOT).as_posix() not in LEFT_OUT]
    return subprocess.run([*command, *paths], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
