"""One partition: what is packed comes back bit by bit or not at all."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest
import zstandard

from headwater.log.queue.commit_format import Commit, Packer, unpack
from headwater.log.queue.partition_file import (
    PartitionReader,
    PartitionWriter,
    disk_bytes,
    inspect,
    is_whole,
    partition_path,
    salvage,
)
from headwater.log.queue.sqlite import damaged_file_names, move_to_damaged
from tests.log.parts import FaultyDisk, body


def test_bodies_come_back_when_they_were_packed() -> None:
    bodies = [b"", b"x", bytes(100_000), body(1), "ü€𝄞".encode()]
    assert unpack(Packer().pack(17, 1.5, bodies)) == Commit(17, 1.5, bodies)
    assert unpack(Packer().pack(1, 0.0, [])).end == 1


def test_a_blob_is_refused_when_any_bit_of_it_is_not_as_it_was() -> None:
    blob = Packer().pack(5, 2.0, [body(n, 50) for n in range(5)])
    for at in range(len(blob)):
        for bit in range(8):
            flipped = bytearray(blob)
            flipped[at] ^= 1 << bit
            try:
                found = unpack(bytes(flipped))
            except ValueError:
                continue
            # a bit that says nothing, such as one reserved in the frame's header
            assert found == unpack(blob), (at, bit)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 10, 60])
def test_a_blob_is_refused_when_it_is_cut(length: int) -> None:
    blob = Packer().pack(5, 2.0, [body(n, 50) for n in range(5)])
    with pytest.raises(ValueError):
        unpack(blob[:length])


@pytest.mark.parametrize(
    "content", [b"", b"short", bytes(19), bytes(16) + b"\x02\0\0\0" + bytes(4), bytes(40)]
)
def test_a_blob_is_refused_when_its_content_is_not_ours(content: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(zstandard.ZstdCompressor().compress(content))


def test_a_partition_is_a_single_file_and_gone_on_with_when_it_was_closed(tmp_path: Path) -> None:
    path, packer = partition_path(tmp_path, 10), Packer()
    for start in (10, 30):
        writer = PartitionWriter(path, vfs=None, limit_bytes=1 << 20)
        for first in range(start, start + 20, 2):
            writer.insert(first, 2, float(first), packer.pack(first, float(first), [b"a", b"b"]))
        assert not is_whole(path)
        writer.close()
        assert is_whole(path)
    found = inspect(path, closed=True)
    assert (found.first, found.end, found.first_at, found.last_at) == (10, 50, 10.0, 48.0)
    assert found.bytes == disk_bytes(path) == path.stat().st_size
    reader = PartitionReader(path, closed=True)
    assert [commit.first for commit in reader.commits(0)] == list(range(10, 50, 2))
    at = reader.commit_at(13)
    assert at is not None
    assert at.first == 12
    assert reader.commit_at(50) is None
    assert (reader.received_at(13), reader.received_at(5), reader.received_at(50)) == (12.0, 10.0, None)
    assert reader.problems() == []
    reader.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name]


@pytest.mark.parametrize("column", ["count = count + 1", "received_at = 5.5", "first = first + 1000"])
def test_a_row_is_refused_when_it_says_something_else_than_its_blob(tmp_path: Path, column: str) -> None:
    path = partition_path(tmp_path, 1)
    writer = PartitionWriter(path, vfs=None, limit_bytes=1 << 20)
    for first in range(1, 6):
        writer.insert(first, 1, 1.0, Packer().pack(first, 1.0, [b"a"]))
    writer.close()
    connection = apsw.Connection(str(path))
    connection.execute(f"UPDATE commits SET {column} WHERE first = 5")
    connection.close()
    with pytest.raises(ValueError, match="does not agree with its row"):
        inspect(path)
    assert [commit.first for commit in salvage(path)] == [1, 2, 3, 4]


def test_nothing_is_left_behind_when_a_partition_cannot_be_created(tmp_path: Path, disk: FaultyDisk) -> None:
    disk.fault = "full"
    with pytest.raises(apsw.FullError):
        PartitionWriter(partition_path(tmp_path, 1), vfs=disk.name, limit_bytes=1 << 20)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_given_up_when_the_disk_fails_during_a_salvage(tmp_path: Path, disk: FaultyDisk) -> None:
    path = partition_path(tmp_path, 1)
    writer = PartitionWriter(path, vfs=None, limit_bytes=1 << 20)
    writer.insert(1, 1, 1.0, Packer().pack(1, 1.0, [b"a"]))
    writer.close()
    disk.fault = "read"
    with pytest.raises(apsw.IOError):
        list(salvage(path, vfs=disk.name))
    disk.fault = ""
    assert [commit.bodies for commit in salvage(path, vfs=disk.name)] == [[b"a"]]
    assert list(salvage(tmp_path / "00000000000000000002.db")) == []


def test_each_damaged_file_has_its_place_when_several_of_a_name_are_set_aside(tmp_path: Path) -> None:
    chance = random.Random(1)
    contents = [chance.randbytes(10) for _ in range(4)]
    for content in contents:
        (tmp_path / "index.db").write_bytes(content)
        move_to_damaged(tmp_path / "index.db", ValueError("damaged"))
    assert len(damaged_file_names(tmp_path)) == 4
    assert {file.read_bytes() for file in (tmp_path / "damaged").iterdir()} == set(contents)


def test_no_commit_is_passed_over_when_several_are_written_while_a_reader_waits_at_the_end(
    tmp_path: Path,
) -> None:
    path = partition_path(tmp_path, 1)
    writer = PartitionWriter(path, vfs=None, limit_bytes=1 << 20)
    packer = Packer()

    def write(first: int) -> None:
        writer.insert(first, 2, 1.0, packer.pack(first, 1.0, [b"a", b"b"]))

    write(1)
    reader = PartitionReader(path)
    queries: list[str] = []

    def write_before_the_second(cursor: object, query: str, values: object) -> bool:
        if len(queries) == 1:
            write(3)
            write(5)
        queries.append(query)
        return True

    reader._connection.exec_trace = write_before_the_second
    commit = reader.commit_at(3)
    assert commit is not None
    assert commit.first == 3
    assert len(queries) == 2
    reader.close()
    writer.close()
