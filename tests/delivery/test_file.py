from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import orjson
import pytest

from headwater.delivery.outlets.base import Delivered, NotConnected
from headwater.delivery.outlets.file import FileOptions, FileOutlet
from headwater.errors import OutletUnavailable
from headwater.events import Event
from headwater.settings import OutletSettings
from headwater.testing.outlets import batch_of


def outlet_at(path: Path) -> FileOutlet:
    return FileOutlet(FileOptions(path=str(path)), OutletSettings(name="disk", type="file"))


def send(outlet: FileOutlet, *names: str) -> None:
    async def work() -> None:
        await outlet.connect()
        results = await outlet.send(batch_of(outlet, list(names)))
        assert all(isinstance(result, Delivered) for result in results)
        await outlet.close()

    asyncio.run(work())


def names(path: Path) -> list[str]:
    return [orjson.loads(line)["name"] for line in path.read_bytes().splitlines()]


def test_what_was_there_is_kept_when_the_file_exists(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "events.ndjson"
    send(outlet_at(path), "one")
    send(outlet_at(path), "two")
    assert names(path) == ["one", "two"]


@pytest.mark.parametrize("before", [b"", b'{"name":"whole"}\n'], ids=["nothing", "a-line"])
@pytest.mark.parametrize("torn", [b"{", b'{"name":' + b"x" * 200_000], ids=["short", "long"])
def test_a_torn_line_is_cut_off_when_a_crash_left_one(tmp_path: Path, before: bytes, torn: bytes) -> None:
    path = tmp_path / "events.ndjson"
    path.write_bytes(before + torn)
    send(outlet_at(path), "next")
    assert names(path) == (["whole"] if before else []) + ["next"]


def test_a_line_per_event_is_written_when_bodies_span_lines(tmp_path: Path) -> None:
    outlet = outlet_at(tmp_path / "events.ndjson")
    body = b'{\r\n "name": "a\\nb",\n "n": 1\n}'
    piece = outlet.prepare(Event(1, 0.0, body), batch_of(outlet, ["x"]).key)
    assert b"\n" not in piece
    assert b"\r" not in piece
    assert orjson.loads(piece) == orjson.loads(body)


def test_a_new_file_is_begun_when_the_old_one_was_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    outlet = outlet_at(path)

    async def work() -> None:
        await outlet.connect()
        await outlet.send(batch_of(outlet, ["one"]))
        os.rename(path, tmp_path / "events.1")
        await outlet.send(batch_of(outlet, ["two"]))
        await outlet.close()

    asyncio.run(work())
    assert names(tmp_path / "events.1") == ["one"]
    assert names(path) == ["two"]


def test_no_half_line_is_left_when_the_disk_refuses_to_grow(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    outlet = outlet_at(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    async def work() -> None:
        await outlet.connect()
        await outlet.send(batch_of(outlet, ["one"]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
        try:
            with pytest.raises(OutletUnavailable, match="cannot be written"):
                await outlet.send(batch_of(outlet, ["two"]))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert names(path) == ["one"]
        await outlet.connect()
        await outlet.send(batch_of(outlet, ["two"]))
        await outlet.close()

    try:
        asyncio.run(work())
    finally:
        signal.signal(signal.SIGXFSZ, ignored)
    assert names(path) == ["one", "two"]


def test_sending_asks_for_connect_when_the_file_is_closed(tmp_path: Path) -> None:
    outlet = outlet_at(tmp_path / "events.ndjson")
    with pytest.raises(NotConnected):
        asyncio.run(outlet.send(batch_of(outlet, ["one"])))


def test_connect_fails_retryably_when_the_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    outlet = outlet_at(tmp_path / "file" / "events.ndjson")
    with pytest.raises(OutletUnavailable, match="cannot be opened"):
        asyncio.run(outlet.connect())
    asyncio.run(outlet.close())


def test_a_write_is_ended_before_the_next_when_its_request_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    outlet = outlet_at(path)

    async def work() -> None:
        await outlet.connect()
        long = [f"long {i}" for i in range(400)]
        given_up = asyncio.create_task(outlet.send(batch_of(outlet, long)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await outlet.send(batch_of(outlet, ["next"]))
        await outlet.close()

    asyncio.run(work())
    assert names(path) == [*(f"long {i}" for i in range(400)), "next"]
