"""The loads in a Delta table: its own log is the ledger.

The commit that adds the rows of a load also sets transaction identifiers (load_identifiers.py), which Delta
keeps by application. The commit's own information has the counts and the refused rows of its load, for as
long as Delta keeps the commit; identifiers stay.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow.parquet as pq
from pyarrow import fs

from headwater.destinations.base import Loaded, Total
from headwater.destinations.lake.load_identifiers import APP, LoadIdentifiers
from headwater.errors import DestinationUnavailable

_REMEMBERED = 1_000
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.parquet")


class _Transaction(msgspec.Struct, rename="camel"):
    app_id: str
    version: int


class _CommitInfo(msgspec.Struct):
    headwater: str = ""


class _Action(msgspec.Struct, rename="camel"):
    txn: _Transaction | None = None
    commit_info: _CommitInfo | None = None


_ACTION = msgspec.json.Decoder(_Action)
_LOADED = msgspec.json.Decoder(Loaded)


class DeltaLedger:
    """The loads of one table. `read` follows the log; only commits that are new since then are read."""

    def __init__(self, filesystem: fs.FileSystem, folder: str) -> None:
        self._filesystem, self._folder = filesystem, f"{folder}/_delta_log"
        self._table_id, self._version = "", -1
        self._identifiers = LoadIdentifiers()
        self._details: OrderedDict[str, Loaded] = OrderedDict()

    def read(self, table_id: str, version: int) -> None:
        """Reads up to a version of the table; another id is another table in its place."""
        if table_id != self._table_id or version < self._version:
            self._table_id, self._version = table_id, -1
            self._identifiers.numbers.clear()
            self._details.clear()
        try:
            if self._version < 0:
                self._version = self._read_checkpoint(version)
            for number in range(self._version + 1, version + 1):
                self._read_commit(number)
                self._version = number
        except (OSError, KeyError, msgspec.DecodeError) as error:
            raise DestinationUnavailable(
                f"the log of the Delta table {self._folder} cannot be read: {error}.",
                hint="The load is retried.",
            ) from error

    def entry(self, id: str) -> Loaded | None:
        """The entry of a load; without its counts if Delta has removed its commit."""
        if not self._identifiers.has(id):
            return None
        if id not in self._details and (found := self._find_details(id)) is not None:
            self._details[id] = found
        return self._details.get(id) or self._identifiers.entry(id)

    def loads_between(self, low: str, high: str) -> set[str]:
        """Ids of loads; adjoining loads of a stream are one id."""
        return self._identifiers.loads_between(low, high)

    def total(self) -> Total:
        """Sums over all loads."""
        return self._identifiers.total()

    def to_enter(self, loaded: Loaded) -> dict[str, int]:
        """The transaction identifiers of a commit that enters a load."""
        return self._identifiers.to_enter(loaded)

    def _read_checkpoint(self, version: int) -> int:
        """Reads the newest whole checkpoint that is not newer than a version; its version, or -1."""
        selector = fs.FileSelector(self._folder, recursive=False, allow_not_found=True)
        parts: dict[int, dict[str, list[str]]] = {}
        for file in self._filesystem.get_file_info(selector):
            if (match := _CHECKPOINT.fullmatch(file.base_name)) and int(match[1]) <= version:
                parts.setdefault(int(match[1]), {}).setdefault(match[3] or file.base_name, []).append(
                    file.path
                )
        for number in sorted(parts, reverse=True):
            for count, files in parts[number].items():
                if count.isdigit() and len(files) < int(count):
                    continue
                for file in files:
                    self._read_parquet(file)
                return number
        return -1

    def _read_parquet(self, path: str) -> None:
        with self._filesystem.open_input_file(path) as file, pq.ParquetFile(file) as parquet:
            if "txn" not in parquet.schema_arrow.names:
                return
            for batch in parquet.iter_batches(columns=["txn.appId", "txn.version"]):
                for row in batch.column(0).to_pylist():
                    if row is not None and row["appId"] is not None:
                        self._identifiers.numbers[row["appId"]] = row["version"]

    def _read_commit(self, version: int) -> None:
        for action in self._actions(version):
            if action.txn is not None:
                self._identifiers.numbers[action.txn.app_id] = action.txn.version
            if action.commit_info is not None and action.commit_info.headwater:
                loaded = _LOADED.decode(action.commit_info.headwater)
                self._details[loaded.id] = loaded
                if len(self._details) > _REMEMBERED:
                    self._details.popitem(last=False)

    def _find_details(self, id: str) -> Loaded | None:
        """The entry from the information of commits that are not in memory, newest first."""
        for version in range(self._version, -1, -1):
            try:
                for action in self._actions(version):
                    if action.commit_info is not None and action.commit_info.headwater:
                        loaded = _LOADED.decode(action.commit_info.headwater)
                        if loaded.id == id:
                            return loaded
            except FileNotFoundError:
                return None  # Delta has removed this commit and all before it
        return None

    def _actions(self, version: int) -> Iterator[_Action]:
        with self._filesystem.open_input_stream(f"{self._folder}/{version:020d}.json") as stream:
            for line in stream.readall().splitlines():
                if line.startswith((b'{"txn"', b'{"commitInfo"')):
                    yield _ACTION.decode(line)


def details(loaded: Loaded) -> dict[str, Any]:
    """A load as the information of its commit."""
    return {APP: msgspec.json.encode(loaded).decode()}
