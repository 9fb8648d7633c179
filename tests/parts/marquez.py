"""A real Marquez for tests: its published server in one JVM, on a Postgres of its own.

Its jars come once from their published Maven artifact by `mvn`, into the cache; or from the folder that
$HEADWATER_TEST_MARQUEZ names, where the registry that `mvn` uses does not have them. Where neither has them,
or Postgres or a Java of 17 or newer cannot be had, `Missing` names what is missing.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx2

from tests.parts import maven
from tests.parts.cache import Missing
from tests.parts.kafka_broker import find_java
from tests.parts.postgres import PostgresServer

__all__ = ["MARQUEZ_VERSION", "Marquez", "find_jars"]

MARQUEZ_VERSION = "0.50.0"
START_SECONDS = 240  # it makes its tables first; about 15 where nothing else runs
ANSWER_SECONDS = 60


def find_jars() -> Path:
    """The folder with Marquez and all it needs at run time, fetched if it is not in the cache."""
    if named := os.environ.get("HEADWATER_TEST_MARQUEZ"):
        if not list(Path(named).glob("*.jar")):
            raise Missing(f"there is no jar in {named}, which HEADWATER_TEST_MARQUEZ names")
        return Path(named)
    return maven.jars_with_dependencies(
        f"marquez-{MARQUEZ_VERSION}", f"io.github.marquezproject:marquez-api:{MARQUEZ_VERSION}"
    )


class Marquez:
    """Runs while it is entered; `.url` is what a client posts events to, `get` reads its API."""

    def __init__(self, folder: Path) -> None:
        java, classpath = find_java(), f"{find_jars()}/*"
        self._folder = folder
        self._log = folder / "marquez.log"
        self._port, admin_port, postgres_port = _free_ports(3)
        self.url = f"http://127.0.0.1:{self._port}"
        self._postgres = PostgresServer()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._postgres.listen(postgres_port)
            settings = folder / "marquez.yml"
            # JSON is YAML, and needs no rules for quoting
            settings.write_text(
                json.dumps(_settings(self._port, admin_port, postgres_port)), encoding="utf-8"
            )
            jvm = ["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [java, *jvm, "marquez.MarquezApp", "server", str(settings)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # a ctrl-C of the test run must not stop it before the tests that use it
                    start_new_session=True,
                )
            self._await()
        except BaseException:
            self.stop()
            raise

    def get(self, path: str, **query: str | int) -> Any:
        """What its API answers; None if there is no such thing."""
        answer = httpx2.get(f"{self.url}/api/v1/{path}", params=query, timeout=ANSWER_SECONDS)
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:500]}"
        return answer.json()

    def job(self, namespace: str, name: str) -> Any:
        return self.get(f"namespaces/{quote(namespace, '')}/jobs/{quote(name, '')}")

    def dataset(self, namespace: str, name: str) -> Any:
        return self.get(f"namespaces/{quote(namespace, '')}/datasets/{quote(name, '')}")

    def run(self, run_id: str) -> Any:
        return self.get(f"jobs/runs/{run_id}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._postgres.__exit__()

    def __enter__(self) -> Marquez:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
                raise RuntimeError("Marquez did not start; its log ends with:\n" + "\n".join(lines[-20:]))
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/api/v1/namespaces", timeout=10).status_code == 200
        except httpx2.HTTPError:
            return False


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def _settings(port: int, admin_port: int, postgres_port: int) -> dict[str, object]:
    def connector(number: int) -> dict[str, object]:
        # names of datasets are paths, with signs in them that newer rules for URIs call ambiguous
        return {"type": "http", "port": number, "bindHost": "127.0.0.1", "httpCompliance": "RFC7230_LEGACY"}

    return {
        "server": {
            "applicationConnectors": [connector(port)],
            "adminConnectors": [connector(admin_port)],
            "requestLog": {"appenders": []},
        },
        "db": {
            "driverClass": "org.postgresql.Driver",
            "url": f"jdbc:postgresql://127.0.0.1:{postgres_port}/postgres",
            "user": "postgres",
            "password": "",
            "initialSize": 2,
            "maxSize": 8,
        },
        "migrateOnStartup": True,
        "graphql": {"enabled": False},
        "search": {"enabled": False},
        "logging": {"level": "WARN", "appenders": [{"type": "console"}]},
    }
