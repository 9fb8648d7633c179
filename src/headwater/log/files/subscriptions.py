"""Which destinations want the event files of a token, by the settings of the server that wrote the files.

A file that waits goes to the destinations that wanted it when its events were acknowledged, whatever the
settings say by then. The server keeps its subscriptions on disk: a process with other settings may complete
the files of one that died.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headwater.formats.json_decoder import json_decoder
from headwater.log.checked_json import checked, with_checksum
from headwater.settings import DestinationSettings
from headwater.system.durable_files import replace

logger = logging.getLogger(__name__)

NAME = "subscriptions.json"


class Subscriptions(msgspec.Struct):
    """The destinations that load files, and the tokens that each wants; without tokens: all."""

    destinations: dict[str, list[str]]

    @classmethod
    def of(cls, destinations: Iterable[DestinationSettings]) -> Subscriptions:
        """Those of the settings."""
        return cls({each.id: list(each.only_keys) for each in destinations if each.is_batch})

    @classmethod
    def load(cls, events_dir: Path) -> Subscriptions | None:
        """Those of the server that last wrote event files; None if that is not known."""
        path = events_dir / NAME
        try:
            return _DECODER.decode(checked(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.error("%s is damaged (%s); files of a server that died go by the settings.", path, error)
            return None

    def save(self, events_dir: Path) -> None:
        """Replace the file atomically, if it has others."""
        if Subscriptions.load(events_dir) != self:
            replace(events_dir / NAME, with_checksum(msgspec.json.encode(self)))

    def wanted_by(self, token_id: str) -> list[str]:
        """The destinations that want the files of a token."""
        return [id for id, tokens in self.destinations.items() if not tokens or token_id in tokens]


_DECODER = json_decoder(Subscriptions)
