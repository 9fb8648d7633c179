"""The images of deploy/Dockerfile, without a container engine: their steps, run as plain commands.

A step of the build becomes a command in a copy of what the build context contains; the result runs
in a namespace in which nothing but the volume can be written.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.parts.loopback import free_port
from tests.sources import ROOT
from tests.support.waiting import wait_until

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
IGNORE = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
SIDECAR_BYTES = 70_000_000  # of /opt/headwater: the rest of the image is Debian and Python, 125 MB
STEP_SECONDS = 250
READ_ONLY = """
for each in / /tmp; do mount --bind $each $each && mount -o remount,ro,bind $each || exit 99; done
mount --bind "$DATA" "$DATA" && mount -o remount,rw,bind "$DATA" || exit 99
exec "$@"
"""
NAMESPACE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def stage(name: str) -> list[tuple[str, str]]:
    """The instructions of a stage of the build, each with its arguments on one line."""
    stages = re.split(r"^FROM \S+ AS (\w[\w-]*)$", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)
    text = dict(zip(stages[1::2], stages[2::2], strict=True))[name]
    return [
        (found[1], " ".join(found[2].split()))
        for found in re.finditer(r"^([A-Z]+) (.*)$", text, re.MULTILINE)
    ]


def copied() -> set[str]:
    return {
        word
        for name in ("build", "base")
        for instruction, words in stage(name)
        if instruction == "COPY"
        for word in words.split()[:-1]
        if not word.startswith("--")
    }


def test_the_context_has_what_the_build_copies_when_it_is_compared() -> None:
    allowed = {line[1:] for line in IGNORE.splitlines() if line.startswith("!")}
    assert copied() == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_every_extra_exists_when_a_step_installs_it() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    known = tomllib.loads(text)["project"]["optional-dependencies"].keys()
    named = re.findall(r"\.\[([a-z,]+)\]", DOCKERFILE) + re.findall(r"EXTRAS=([a-z,]+)", DOCKERFILE)
    assert len(named) == 3
    assert {each for names in named for each in names.split(",")} <= known


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder /opt/headwater of the image `sidecar`, and the context beside it."""
    folder = tmp_path_factory.mktemp("image")
    context, made = folder / "src", folder / "opt" / "headwater"
    context.mkdir()
    made.parent.mkdir()
    for name in copied():
        source, target = ROOT / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, target)
    tools = folder / "tools"  # the Python of the stage, whose pip installs into the environment
    subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True)
    environment = os.environ | {"PATH": f"{tools / 'bin'}:{os.environ['PATH']}"}
    for instruction, words in stage("build"):
        if instruction in ("ARG", "ENV"):
            environment |= dict(word.split("=", 1) for word in shlex.split(words))
        elif instruction == "RUN":
            done = subprocess.run(
                ["sh", "-c", words.replace("/opt/headwater", str(made))],
                cwd=context,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=STEP_SECONDS,
            )
            assert done.returncode == 0, f"{words}\n{done.stderr[-3000:]}"
    yield made
    shutil.rmtree(folder)


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


@pytest.mark.long
def test_the_sidecar_serves_the_page_when_nothing_but_its_volume_can_be_written(
    image: Path,
) -> None:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make a mount namespace")
    assert size_of(image) < SIDECAR_BYTES
    assert not (image / "bin" / "pip").exists()
    data, port = image.parent / "data", free_port()
    data.mkdir(mode=0o700)
    config = image.parent / "headwater.yml"
    text = (ROOT / "deploy" / "headwater.yml").read_text(encoding="utf-8")
    config.write_text(text.replace("/data", str(data)).replace("  host:", f"  port: {port}\n  host:"))
    environment = {
        "HEADWATER_CONFIG": str(config),
        "HEADWATER_ADMIN_TOKEN": "a-token",
        "HOME": "/nonexistent",
    }
    for instruction, words in stage("base"):
        if instruction == "ENV":
            named = dict(word.split("=", 1) for word in shlex.split(words))
            environment = {name: value for name, value in named.items() if name != "PATH"} | environment
    ((_, default),) = [each for each in stage("sidecar") if each[0] == "CMD"]
    server = subprocess.Popen(
        [
            *NAMESPACE,
            "sh",
            "-c",
            READ_ONLY,
            "sh",
            image / "bin" / "headwater",
            *json.loads(default),
            "--graph",
        ],
        cwd="/",
        env=environment | {"PATH": f"{image / 'bin'}:/usr/bin:/bin", "DATA": str(data)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ((_, probe),) = [each for each in stage("sidecar") if each[0] == "HEALTHCHECK"]
        command = [each.replace("8750", str(port)) for each in json.loads(probe.partition("CMD ")[2])]
        command[0] = str(image / "bin" / command[0])
        wait_until(
            lambda: (
                server.poll() is not None
                or subprocess.run(command, capture_output=True, check=False).returncode == 0
            )
        )
        assert server.poll() is None, server.communicate()[1]
        page = Request(f"http://127.0.0.1:{port}/", headers={"Authorization": "Bearer a-token"})
        with urlopen(page) as answer:
            assert "Headwater" in answer.read().decode()
    finally:
        server.terminate()
        errors = server.communicate(timeout=60)[1]
    assert server.returncode == 0, errors
    assert '"level":"error"' not in errors
    assert "Read-only file system" not in errors
    assert {path.name for path in data.iterdir()} >= {"log", "graph"}
