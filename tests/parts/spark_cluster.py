"""A real standalone cluster for tests: Spark's own Master and Workers, each a process, on loopback.

Each worker has folders of its own for its work. Executors run a Python that has no packages at all, as a
machine would without any preparation: what they import must have been sent to them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import time
import urllib.request
import venv
from pathlib import Path
from types import TracebackType
from typing import Any

from headwater.pipeline.spark.java_runtime import find_java

__all__ = ["SparkCluster"]

START_SECONDS = 180  # cold JVMs on a busy machine; it takes about 10

# Spark's launcher asks for a module that reduced runtimes lack; only a part of its machine learning needs it.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


class SparkCluster:
    """Runs while it is entered. `master` is what a driver connects to."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._ports = _free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.python = folder / "python"

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._ports[0]}"

    @property
    def page_port(self) -> int:
        """The port of the master's page."""
        return self._ports[1]

    def work(self, worker: int) -> Path:
        """The folder in which a worker's executors run."""
        return self._folder / f"worker-{worker}" / "work"

    def settings(self) -> dict[str, Any]:
        """What a driver on this machine needs to know of it, as Spark's settings."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.pyspark.python": str(self.python / "bin" / "python"),
        }

    def kill_worker(self, worker: int) -> None:
        """A machine that goes: the worker and its executors at once."""
        os.killpg(self.workers[worker].pid, signal.SIGKILL)
        self.workers[worker].wait()

    def __enter__(self) -> SparkCluster:
        venv.create(self.python, with_pip=False, symlinks=True)
        try:
            self._start("master", "master.Master", "--webui-port", str(self._ports[1]))
            self._wait("the master", lambda: self._state() is not None)
            for number in range(self._count):
                self._start_worker(number)
            self._wait("the workers", lambda: len(self.alive()) == self._count)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # killed by the test
            process.wait()

    def alive(self) -> list[str]:
        """The workers that the master counts on."""
        state = self._state() or {}
        return [each["id"] for each in state.get("workers", ()) if each["state"] == "ALIVE"]

    def executors(self) -> int:
        """Executors that the workers run now, by the cores in use: each has one."""
        return int((self._state() or {}).get("coresused", 0))

    def _state(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[1]}/json/", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return None

    def _start_worker(self, number: int) -> None:
        work = self.work(number)
        work.mkdir(parents=True)
        arguments = ["--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(work)]
        self.workers.append(
            self._start(f"worker-{number}", "worker.Worker", *arguments, self.master, local=work / "local")
        )

    def _start(
        self, name: str, kind: str, *arguments: str, local: Path | None = None
    ) -> subprocess.Popen[bytes]:
        import pyspark

        spark_home = Path(pyspark.__file__).parent
        java_home = self._java_home()
        # the last one is what Spark's scripts would set, which the wheel has no use for
        environ = os.environ | {
            "SPARK_HOME": str(spark_home),
            "JAVA_HOME": java_home,
            "SPARK_SCALA_VERSION": "2.13",
        }
        for variable in ("PYTHONPATH", "PYSPARK_PYTHON", "SPARK_CONF_DIR"):
            environ.pop(variable, None)
        if local is not None:
            environ["SPARK_LOCAL_DIRS"] = str(local)
        port = str(self._ports[0]) if name == "master" else "0"
        command = [str(Path(java_home, "bin", "java")), "-Xmx256m", "-XX:+UseSerialGC"]
        command += ["-XX:TieredStopAtLevel=1", "-cp", str(spark_home / "jars" / "*")]
        command += [f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--port", port, *arguments]
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                cwd=self._folder,
                start_new_session=True,  # a group of its own, executors included
            )
        self._processes.append(process)
        return process

    def _java_home(self) -> str:
        found = find_java()
        if not found.is_reduced:
            return found.home
        home = self._folder / "java"
        program = home / "bin" / "java"
        if not program.exists():
            program.parent.mkdir(parents=True)
            program.write_text(_WRAPPER.format(java=Path(found.home, "bin", "java")), encoding="utf-8")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(home)

    def _wait(self, what: str, is_so: Any) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_so():
            dead = [process for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > deadline:
                logs = "\n".join(_end_of(path) for path in sorted(self._folder.glob("*.log")))
                raise RuntimeError(f"{what} did not come up; the logs end with:\n{logs}")
            time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def _end_of(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"--- {path.name}", *lines[-15:]])
