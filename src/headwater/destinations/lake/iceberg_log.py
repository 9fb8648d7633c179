"""The loads in an Iceberg table: its own metadata is the ledger.

The commit that adds the snapshot of a load also sets table properties, which stay when snapshots expire: the
identifiers of load_identifiers.py, with single loads packed into `headwater/loads/<number>`. The summary of
the snapshot has the counts and the refused rows of its load, for as long as the snapshot is kept.
"""

from __future__ import annotations

import msgspec
from pyiceberg.table.metadata import TableMetadata

from headwater.destinations.base import Loaded
from headwater.destinations.lake.load_identifiers import APP, LOAD, LoadIdentifiers

_PACKED = f"{APP}/loads/"
_LOADS_A_PROPERTY = 500
_DETAILS = f"{APP}.load"
_LOADED = msgspec.json.Decoder(Loaded)
_PACK = msgspec.json.Decoder(dict[str, int])


class IcebergLedger:
    """The loads of one version of a table."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self.identifiers = LoadIdentifiers()
        numbers = self.identifiers.numbers
        for name, value in metadata.properties.items():
            if name.startswith(_PACKED):
                numbers |= {f"{LOAD}{id}": rows for id, rows in _PACK.decode(value).items()}
            elif name == APP or name.startswith(f"{APP}/"):
                numbers[name] = int(value)

    def entry(self, id: str) -> Loaded | None:
        """The entry of a load; without its counts if the snapshot has expired."""
        if not self.identifiers.has(id):
            return None
        for snapshot in reversed(self._metadata.snapshots):
            text = snapshot.summary.additional_properties.get(_DETAILS, "") if snapshot.summary else ""
            if text and (found := _LOADED.decode(text)).id == id:
                return found
        return self.identifiers.entry(id)

    def summary(self, loaded: Loaded) -> dict[str, str]:
        """A load as a part of its snapshot's summary."""
        return {_DETAILS: msgspec.json.encode(loaded).decode()}

    def to_enter(self, loaded: Loaded) -> dict[str, str]:
        """The table properties of a commit that enters a load."""
        entered: dict[str, str] = {}
        for name, number in self.identifiers.to_enter(loaded).items():
            if not name.startswith(LOAD):
                entered[name] = str(number)
                continue
            packed = sum(1 for known in self.identifiers.numbers if known.startswith(LOAD))
            place = f"{_PACKED}{packed // _LOADS_A_PROPERTY}"
            pack = _PACK.decode(self._metadata.properties.get(place, "{}"))
            entered[place] = msgspec.json.encode({**pack, name.removeprefix(LOAD): number}).decode()
        return entered
