"""Settings of the intake of events for the pipeline: who may send, and the files that they become."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.settings.fields import MIB, Bytes, Id, doc

__all__ = ["EventsSettings", "TokenSettings"]


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One source of events. Its id names its files; its secrets are what senders show."""

    id: Annotated[Id, doc("Names the token in file names and in `only_keys`; not a secret.")]
    client_secret: Annotated[
        str, doc("Shown by browsers, so it is no secret at all; empty: no browser events.")
    ] = ""
    server_secret: Annotated[
        str, doc("Shown by servers; never written into an event; empty: no server events.")
    ] = ""
    origins: Annotated[
        tuple[str, ...],
        doc("Pages that may send: `https://shop.example`, `*.example.org` (any scheme); empty: all pages."),
    ] = ()
    rate_limit_per_second: Annotated[
        float, msgspec.Meta(ge=0), doc("Most events a second, beyond it: 429; 0: no limit.")
    ] = 0.0


class EventsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The files in which events wait for the pipeline."""

    dir: Annotated[str, doc("Folder of the files; empty: `events` in the data folder.")] = ""
    rotation_minutes: Annotated[
        float, msgspec.Meta(gt=0), doc("A file is closed at this age, and is then ready for the pipeline.")
    ] = 5.0
    rotation_bytes: Annotated[Bytes, doc("A file is closed at this size.")] = 100 * MIB
    archive_days: Annotated[
        float,
        msgspec.Meta(ge=0),
        doc("Files that were processed are kept this long; 0: for ever."),
    ] = 30.0
