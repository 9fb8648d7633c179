"""Every built-in outlet passes the public conformance suite, and is found by its entry point."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.delivery.outlets.base import NoOptions, Outlet, load_outlet, outlet_class
from headwater.delivery.outlets.console import ConsoleOutlet
from headwater.delivery.outlets.dataset import DataSetOutlet
from headwater.delivery.outlets.file import FileOutlet
from headwater.delivery.outlets.http import HttpOutlet
from headwater.delivery.outlets.kafka import KafkaOutlet
from headwater.delivery.outlets.openlineage import OpenLineageOutlet
from headwater.settings import OutletSettings
from headwater.testing import Answer, DataSetServer, OpenLineageServer
from headwater.testing.outlets import OutletConformance, Subject
from tests.delivery.mock_kafka import MockCluster


def outlet_of(type: str, **options: Any) -> Outlet:
    return load_outlet(OutletSettings(name="subject", type=type, options=options))


class OpenLineageSubject(Subject):
    def __init__(self, **options: Any) -> None:
        self.server = OpenLineageServer().start()
        self.outlet = outlet_of("openlineage", url=self.server.url, **options)

    def received(self) -> list[Any]:
        return self.server.events()

    def fail(self) -> None:
        self.server.answer_always(Answer(status=503))

    def heal(self) -> None:
        self.server.answer_always(None)

    def refuse(self, marker: str) -> None:
        self.server.refuse = lambda event: "refused by the test" if event["name"] == marker else None

    def close(self) -> None:
        self.server.stop()


class TestOpenLineageInBatches(OutletConformance):
    def make(self, tmp_path: Path) -> Subject:
        return OpenLineageSubject()


class TestOpenLineageSingly(OutletConformance):
    def make(self, tmp_path: Path) -> Subject:
        return OpenLineageSubject(batch="never")


class TestOpenLineageCompressed(OutletConformance):
    def make(self, tmp_path: Path) -> Subject:
        return OpenLineageSubject(batch="always", compression="gzip")


class FileSubject(Subject):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.outlet = outlet_of("file", path=str(path))

    def received(self) -> list[Any]:
        lines = self.path.read_bytes().splitlines() if self.path.is_file() else []
        return [orjson.loads(line) for line in lines]

    def fail(self) -> None:
        os.rename(self.path, self.path.with_suffix(".away"))
        self.path.mkdir()

    def heal(self) -> None:
        self.path.rmdir()


class TestFile(OutletConformance):
    can_refuse = False

    def make(self, tmp_path: Path) -> Subject:
        return FileSubject(tmp_path / "folder" / "events.ndjson")


class Terminal(io.StringIO):
    """A stream whose other end can go away."""

    is_gone = False

    def write(self, text: str) -> int:
        if self.is_gone:
            raise BrokenPipeError("no reader")
        return super().write(text)


class ConsoleSubject(Subject):
    def __init__(self) -> None:
        self.terminal = Terminal()
        settings = OutletSettings(name="subject", type="console")
        self.outlet = ConsoleOutlet(NoOptions(), settings, stream=self.terminal)

    def received(self) -> list[Any]:
        return [orjson.loads(line) for line in self.terminal.getvalue().splitlines()]

    def fail(self) -> None:
        self.terminal.is_gone = True

    def heal(self) -> None:
        self.terminal.is_gone = False


class TestConsole(OutletConformance):
    can_refuse = False

    def make(self, tmp_path: Path) -> Subject:
        return ConsoleSubject()


class DataSetSubject(Subject):
    def __init__(self, **options: Any) -> None:
        self.server = DataSetServer().start()
        self.outlet = outlet_of("dataset", url=self.server.url, api_key="token", **options)

    def received(self) -> list[Any]:
        return [event["attrs"] for body in self.server.bodies for event in body["events"]]

    def fail(self) -> None:
        self.server.answer_always(Answer(status=503))

    def heal(self) -> None:
        self.server.answer_always(None)

    def refuse(self, marker: str) -> None:
        reply = b'{"status": "error/client/badParam", "message": "refused by the test"}'
        self.server.answer_always(
            lambda request: Answer(body=reply, keep=False) if marker.encode() in request.body else None
        )

    def close(self) -> None:
        self.server.stop()


class TestDataSet(OutletConformance):
    def make(self, tmp_path: Path) -> Subject:
        return DataSetSubject()


class TestDataSetInZstd(OutletConformance):
    def make(self, tmp_path: Path) -> Subject:
        return DataSetSubject(compression="zstd")


class HttpSubject(OpenLineageSubject):
    """The test backend's batch endpoint is any receiver of JSON arrays."""

    def __init__(self) -> None:
        self.server = OpenLineageServer(judges_events=False).start()
        self.outlet = outlet_of("http", url=f"{self.server.url}/api/v1/lineage/batch")


class TestHttp(OutletConformance):
    def make(self, tmp_path: Path) -> Subject:
        return HttpSubject()


class KafkaSubject(Subject):
    def __init__(self) -> None:
        self.cluster = MockCluster()
        self.outlet = outlet_of("kafka", servers=self.cluster.servers, topic="events")

    def received(self) -> list[Any]:
        return [orjson.loads(value) for _, value in self.cluster.read("events")]


class TestKafka(OutletConformance):
    # librdkafka's own mock brokers stay up and take everything; a real broker is killed in the Kafka tests
    can_fail = False
    can_refuse = False

    def make(self, tmp_path: Path) -> Subject:
        return KafkaSubject()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openlineage", OpenLineageOutlet),
        ("file", FileOutlet),
        ("console", ConsoleOutlet),
        ("dataset", DataSetOutlet),
        ("http", HttpOutlet),
        ("kafka", KafkaOutlet),
    ],
)
def test_a_built_in_is_found_by_its_entry_point_when_named(name: str, kind: type[Outlet]) -> None:
    assert outlet_class(name) is kind
