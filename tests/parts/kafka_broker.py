"""A real Kafka broker for tests: Apache Kafka's own server, broker and controller (KRaft) in one JVM.

Its jars come once from their published Maven artifacts by `mvn`, into the cache. Where `mvn`, a Java of 17 or
newer, or the artifacts cannot be had, `Missing` names what is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tests.parts import maven
from tests.parts.cache import Missing

__all__ = ["KAFKA_VERSION", "KafkaBroker", "find_jars", "find_java"]

KAFKA_VERSION = "4.3.1"
SLF4J_VERSION = "1.7.36"  # the line that this Kafka is built with
MIN_JAVA = 17
START_SECONDS = 90  # a cold JVM on a busy machine; it takes about 5
CLUSTER_ID = "SGVhZHdhdGVyLXRlc3RzLQ"  # any 16 bytes as URL-safe base64


def find_java() -> str:
    """A `java` of 17 or newer: $JAVA_HOME's, else the one on PATH."""
    candidates = [str(Path(os.environ["JAVA_HOME"], "bin", "java"))] if os.environ.get("JAVA_HOME") else []
    candidates.append("java")
    tried = []
    for candidate in candidates:
        if (java := shutil.which(candidate)) is None:
            tried.append(f"{candidate}: not found")
            continue
        version_text = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
        number = re.search(r'version "(\d+)', version_text)
        if number and int(number[1]) >= MIN_JAVA:
            return java
        tried.append(f"{candidate}: {version_text.splitlines()[0] if version_text else 'says no version'}")
    raise Missing(f"Kafka needs Java {MIN_JAVA} or newer ({'; '.join(tried)}); set JAVA_HOME")


def find_jars() -> Path:
    """The folder with Kafka's server and everything it needs at run time."""
    return maven.jars_with_dependencies(
        f"kafka-{KAFKA_VERSION}",
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.slf4j:slf4j-simple:{SLF4J_VERSION}",
    )


class KafkaBroker:
    """One broker with its data in `folder`; it keeps its data and its port over kill and restart.

    `with KafkaBroker(folder) as broker:` gives it started; `.bootstrap` is what a client connects to.
    """

    def __init__(self, folder: Path) -> None:
        self._java = find_java()
        self._classpath = str(find_jars() / "*")
        self._folder = folder
        self._log = folder / "broker.log"
        self._settings = folder / "server.properties"
        self._port, controller_port = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._settings.write_text(_properties(self._port, controller_port, folder / "data"), encoding="utf-8")
        self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._settings))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start, and return once a client gets an answer; a broker that runs already is left alone."""
        if self._process is not None:
            return
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # a ctrl-C of the test run must not stop the broker before the tests that use it
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Kafka did not start; its log ends with:\n{self._log_end()}")
            time.sleep(0.1)

    def create_topic(self, name: str) -> None:
        """Create a topic of one partition."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # it must outlive the request
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(START_SECONDS)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in an orderly way."""
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start again on the same data and port, after `kill` or `stop`, or of one that still runs."""
        self.stop()
        self.start()

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # the data goes with the test's folder: nothing would be won by an orderly end
        self.kill()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            # the client complains on stderr about a port without a listener, so try the port first
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
            brokers = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(
                timeout=5
            )
            return bool(brokers.brokers)
        except (OSError, KafkaException):
            return False

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            self._command(*arguments), capture_output=True, text=True, timeout=START_SECONDS
        )
        if done.returncode != 0:
            raise RuntimeError(f"{arguments[0]} failed:\n{done.stdout}{done.stderr}")

    def _command(self, *arguments: str) -> list[str]:
        # small and quick to start: a test broker is short-lived, and the machine is shared with the tests
        jvm = ["-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        jvm += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", self._classpath]
        return [self._java, *jvm, *arguments]

    def _log_end(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-20:])


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


def _properties(port: int, controller_port: int, data: Path) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data.as_posix(),
        # there is only one broker to hold a copy of anything
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        # a group of one consumer need not wait for others to join
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
