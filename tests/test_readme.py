"""The README's commands, run as they stand, in a clone with an environment that has nothing yet."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parts.loopback import free_port
from tests.sources import ROOT

FIRST_BLOCKS = re.compile(r"^```yaml\n(.*?)^```.*?^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALL_SECONDS = 900


def quick_start() -> str:
    (block,) = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    return str(block)


def test_the_quick_start_is_one_block_when_the_readme_is_read() -> None:
    block = quick_start()
    assert block.index("headwater up --wait") < block.index("api/v1/event")
    assert block.count("8750") == 2  # the test below replaces each of them


@pytest.mark.long
@pytest.mark.timeout(INSTALL_SECONDS + 300)
def test_a_row_and_its_lineage_are_shown_when_the_quick_start_is_pasted(tmp_path: Path) -> None:
    clone = tmp_path / "headwater"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(clone)], check=True)
    script = quick_start().replace("8750", str(free_port())) + "headwater down\n"
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    environment |= {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))
    }
    shell = subprocess.Popen(
        ["bash", "-em", "-c", script],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = shell.communicate(timeout=INSTALL_SECONDS)
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
        if shell.returncode:  # what it left in the background
            subprocess.run(
                [clone / ".venv/bin/headwater", "down"], cwd=clone, capture_output=True, check=False
            )
    assert shell.returncode == 0, errors[-3000:]
    assert '{"status":"ok"}' in output
    assert "12.5" in output  # the row
    assert "value/price" in output, output  # the field of the event that the column comes from


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_column_is_traced_and_a_reject_replayed_when_the_tutorial_is_pasted(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    blocks = FENCE.findall(page)
    assert len(blocks) == 7
    script = "\n".join(blocks).replace("8750", str(free_port()))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    try:
        shell = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=800,
        )
    finally:
        subprocess.run([Path(sys.executable).with_name("headwater"), "down"], cwd=tmp_path, check=False)
    assert shell.returncode == 0, shell.stderr[-3000:]
    outputs = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(outputs) == 3
    printed = " ".join(shell.stdout.split())
    for output in outputs:  # `…` stands for folders and times
        for part in output.split("…"):
            assert " ".join(part.split()) in printed, (part, shell.stdout)


@pytest.mark.long
def test_a_row_is_loaded_when_the_first_blocks_of_the_pipelines_page_are_pasted(tmp_path: Path) -> None:
    found = FIRST_BLOCKS.search((ROOT / "docs" / "pipeline.md").read_text(encoding="utf-8"))
    assert found is not None
    port = str(free_port())
    (tmp_path / "headwater.yml").write_text(f"gateway: {{port: {port}}}\n" + found[1])
    script = found[2].replace("8750", port) + "\nkill %1; wait %1\n"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = subprocess.run(
        ["bash", "-em", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert shell.returncode == 0, shell.stderr[-3000:]
    assert "pageview" in shell.stdout
