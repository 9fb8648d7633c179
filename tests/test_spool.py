from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

from headwater.errors import HeadwaterError, SettingsError
from headwater.log.queue import offline as inspect
from headwater.log.rejects.store import RejectStore
from headwater.spool import SpoolTransport
from headwater.testing import OpenLineageServer

# emits numbered events as the producer named by the job, then does what the last argument says
PRODUCER = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from tests.test_spool import client, event
path, url, name, count, end = sys.argv[2:]
producer = client(path, url)
for number in range(int(count)):
    producer.emit(event(name, number))
    print(number, flush=True)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if end == "close":
    sys.exit(0 if producer.close(60) else 3)
"""


def client(path: Path | str, url: str, **options: Any) -> OpenLineageClient:
    transport = {
        "type": "headwater.spool.SpoolTransport",
        "path": str(path),
        "url": url,
        "close_timeout_seconds": 0.2,
        "adopt_seconds": 0.1,
        **options,
    }
    return OpenLineageClient(config={"transport": transport})


def event(name: str, number: int) -> RunEvent:
    return RunEvent(
        eventType=RunState.RUNNING,
        eventTime="2026-01-31T12:00:00Z",
        run=Run(runId=str(uuid.UUID(int=number))),
        job=Job(namespace="tests", name=name),
        producer="https://producer.example",
    )


def produce(path: Path, url: str, name: str, count: int, end: str) -> subprocess.Popen[str]:
    root = str(Path(__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-c", PRODUCER, root, str(path), url, name, str(count), end],
        stdout=subprocess.PIPE,
        text=True,
    )


def numbers(backend: OpenLineageServer) -> dict[str, list[int]]:
    """Per producer the numbers as they came, without repetitions."""
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for received in backend.events():
        found[received["job"]["name"]][uuid.UUID(received["run"]["runId"]).int] = None
    return {name: list(seen) for name, seen in found.items()}


def folders(path: Path) -> list[Path]:
    return sorted(found for found in path.iterdir() if found.is_dir())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def backend() -> Iterator[OpenLineageServer]:
    with OpenLineageServer() as server:
        yield server


@pytest.fixture
def dead_url() -> str:
    with OpenLineageServer() as server:
        pass
    return server.url


def port(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_events_arrive_in_order_and_the_folder_goes_when_all_is_well(
    tmp_path: Path, backend: OpenLineageServer
) -> None:
    producer = client(tmp_path, backend.url)
    for number in range(50):
        producer.emit(event("a", number))
    assert producer.close(60) is True
    assert numbers(backend) == {"a": list(range(50))}
    assert folders(tmp_path) == []
    assert producer.close() is True


def test_an_event_is_on_disk_when_emit_returns(tmp_path: Path, dead_url: str) -> None:
    producer = client(tmp_path, dead_url)
    producer.emit(event("a", 7))
    (folder,) = folders(tmp_path)
    (kept,) = inspect.export(folder)
    assert b'"00000000-0000-0000-0000-000000000007"' in kept.body
    assert producer.close() is False
    assert folders(tmp_path) == [folder]


def test_no_other_user_can_read_events_when_the_spool_makes_its_folder(tmp_path: Path, dead_url: str) -> None:
    producer = client(tmp_path / "spool", dead_url)
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    producer.close(0.0)


def test_an_outage_is_survived_when_the_backend_comes_back(tmp_path: Path, dead_url: str) -> None:
    producer = client(tmp_path, dead_url)
    for number in range(20):
        producer.emit(event("a", number))
    with OpenLineageServer(port=port(dead_url)) as backend:
        assert backend.wait_for(20, 60)
        assert producer.close(60) is True
        assert numbers(backend) == {"a": list(range(20))}


@pytest.mark.parametrize(("end", "code"), [("exit", 0), ("kill", -signal.SIGKILL)])
def test_the_next_process_delivers_when_one_ended_with_the_backend_down(
    tmp_path: Path, dead_url: str, end: str, code: int
) -> None:
    first = produce(tmp_path, dead_url, "first", 10, end)
    assert first.communicate(timeout=60)[0].split() == [str(number) for number in range(10)]
    assert first.returncode == code
    assert len(folders(tmp_path)) == 1
    with OpenLineageServer(port=port(dead_url)) as backend:
        producer = client(tmp_path, backend.url)
        assert backend.wait_for(10, 60)
        wait_until(lambda: len(folders(tmp_path)) == 1)
        assert producer.close(60) is True
        assert numbers(backend) == {"first": list(range(10))}
    assert folders(tmp_path) == []


def test_a_running_process_adopts_when_another_is_killed_meanwhile(
    tmp_path: Path, backend: OpenLineageServer, dead_url: str
) -> None:
    # its url is dead, as if the kill had come before it could deliver anything
    living = client(tmp_path, backend.url)
    killed = produce(tmp_path, dead_url, "killed", 5, "kill")
    killed.communicate(timeout=60)
    assert backend.wait_for(5, 60)
    living.close(60)
    assert numbers(backend) == {"killed": [0, 1, 2, 3, 4]}


def test_each_processes_order_is_kept_when_two_use_one_path(
    tmp_path: Path, backend: OpenLineageServer
) -> None:
    both = [produce(tmp_path, backend.url, name, 40, "close") for name in ("left", "right")]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert numbers(backend) == {"left": list(range(40)), "right": list(range(40))}
    assert folders(tmp_path) == []


def test_a_living_processes_folder_is_left_alone_when_another_starts(
    tmp_path: Path, backend: OpenLineageServer, dead_url: str
) -> None:
    first = client(tmp_path, dead_url)
    first.emit(event("first", 1))
    second = client(tmp_path, backend.url)
    second.emit(event("second", 2))
    assert second.close(60) is True
    assert numbers(backend) == {"second": [2]}
    assert len(folders(tmp_path)) == 1
    first.close(0)


def test_nothing_is_raised_and_the_event_is_kept_with_the_reason_when_the_backend_refuses_it(
    tmp_path: Path,
) -> None:
    with OpenLineageServer(refuse=lambda found: "no" if found["job"]["name"] == "bad" else None) as backend:
        producer = client(tmp_path, backend.url)
        for number, name in enumerate(("good", "bad", "good")):
            producer.emit(event(name, number))
        assert producer.close(60) is True
        assert numbers(backend) == {"good": [0, 2]}
    rejects = RejectStore(tmp_path / "rejects.db", max_bytes=1_000_000)
    (reject,) = rejects.list()
    rejects.close()
    assert "no" in reject.reason
    assert b'"bad"' in reject.body


def test_every_event_arrives_when_threads_emit_at_once(tmp_path: Path, backend: OpenLineageServer) -> None:
    producer = client(tmp_path, backend.url)

    def emit(name: str) -> None:
        for number in range(25):
            producer.emit(event(name, number))

    threads = [threading.Thread(target=emit, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.close(60) is True
    assert numbers(backend) == {f"t{i}": list(range(25)) for i in range(4)}


FORKER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.test_spool import client, event
producer = client(sys.argv[2], sys.argv[3])
producer.emit(event("parent", 0))
if (child := os.fork()) == 0:
    producer.emit(event("child", 0))
    producer.emit(event("child", 1))
    producer.close(60)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
producer.emit(event("parent", 1))
sys.exit(0 if producer.close(60) else 3)
"""


def test_parent_and_child_both_deliver_when_the_process_forks(
    tmp_path: Path, backend: OpenLineageServer
) -> None:
    root = str(Path(__file__).parent.parent)
    forker = subprocess.run(
        [sys.executable, "-c", FORKER, root, str(tmp_path), backend.url],
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert forker.returncode == 0, forker.stderr
    assert numbers(backend) == {"parent": [0, 1], "child": [0, 1]}
    assert folders(tmp_path) == []


def test_an_abandoned_empty_folder_is_removed_when_a_process_starts(
    tmp_path: Path, backend: OpenLineageServer
) -> None:
    (tmp_path / "spool-00000000000000000001-1-abcdef01").mkdir()
    producer = client(tmp_path, backend.url)
    wait_until(lambda: len(folders(tmp_path)) == 1)
    assert producer.close(60) is True


def test_foreign_and_unreadable_folders_are_left_alone_when_others_are_adopted(
    tmp_path: Path, backend: OpenLineageServer, dead_url: str
) -> None:
    produce(tmp_path, dead_url, "fine", 3, "kill").communicate(timeout=60)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("keep", encoding="utf-8")
    newer = tmp_path / "spool-00000000000000000001-1-abcdef01"
    newer.mkdir()
    with apsw.Connection(str(newer / "index.db")) as connection:
        connection.pragma("user_version", 9999)
    connection.close()
    producer = client(tmp_path, backend.url)
    assert backend.wait_for(3, 60)
    wait_until(lambda: len(folders(tmp_path)) == 3)
    producer.close(60)
    assert [folder.name for folder in folders(tmp_path)] == ["precious", newer.name]
    assert (tmp_path / "precious" / "file").read_text(encoding="utf-8") == "keep"


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        pytest.param({"url": "http://x"}, "`path` is missing", id="no-path"),
        pytest.param({"path": "x"}, "`url` is missing", id="no-url"),
        pytest.param({"path": "x", "url": "http://x", "api_kye": "k"}, "did you mean `api_key`?", id="typo"),
        pytest.param({"path": "x", "url": "http://x", "auth": {"type": "jwt"}}, "`auth` must be", id="auth"),
    ],
)
def test_the_key_is_named_when_the_configuration_is_wrong(params: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as raised:
        SpoolTransport.config_class.from_dict({"type": "headwater.spool.SpoolTransport", **params})
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [{"api_key": "secret"}, {"auth": {"type": "api_key", "apiKey": "secret"}, "compression": "gzip"}],
    ids=["own", "client"],
)
def test_the_key_is_shown_to_the_backend_when_it_is_configured_either_way(
    tmp_path: Path, backend: OpenLineageServer, options: dict[str, Any]
) -> None:
    shown: list[str] = []
    backend.answer_always(lambda request: shown.append(request.headers["authorization"]))
    producer = client(tmp_path, backend.url, **options)
    producer.emit(event("a", 1))
    assert producer.close(60) is True
    assert shown == ["Bearer secret"]


def test_emit_is_refused_when_the_transport_is_closed(tmp_path: Path, backend: OpenLineageServer) -> None:
    producer = client(tmp_path, backend.url)
    producer.close(60)
    with pytest.raises(HeadwaterError, match="closed"):
        producer.emit(event("a", 1))


@pytest.mark.timeout(60)
def test_close_ends_in_its_time_when_the_disk_hangs(tmp_path: Path, backend: OpenLineageServer) -> None:
    producer = client(tmp_path, backend.url)
    producer.emit(event("a", 1))
    transport = producer.transport
    assert isinstance(transport, SpoolTransport)
    with transport._own.log._closing:  # as a commit that never returns would hold it
        assert producer.close(0.5) is False
    wait_until(lambda: folders(tmp_path) == [])  # it ends in the background when the disk answers again
