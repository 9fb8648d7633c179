"""The destination `http`: it sends each row to an HTTP service, by `headwater.delivery`.

The receiver has no ledger, so the guarantee is **at least once**: a row is sent until the receiver has taken
or refused it, and a pipeline that dies before it records that sends the row again. Each row carries the same
id in every request, by which a receiver can recognise repetitions: the event's id where it has one, otherwise
the load's id and the row number.

There are no tables, so nothing is patched and every value fits; each row carries the name of its table.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

import msgspec
import orjson

from headwater.delivery.client import Client
from headwater.delivery.outlets.base import load_outlet
from headwater.delivery.outlets.http import HttpOptions
from headwater.destinations.base import Capabilities, Destination, Load, Loaded, RefusedRow
from headwater.destinations.column_types import Kind
from headwater.destinations.staged_files import StagedFiles
from headwater.destinations.table import ROW, UNMAPPED, Table
from headwater.errors import BatchRejected, DestinationUnavailable, LoadRefused
from headwater.events import Event
from headwater.settings import OutletSettings

_REMEMBERED = 1_000
_ROWS_PER_PIECE = 500


class HttpDestinationSettings(HttpOptions, frozen=True, kw_only=True):
    """Options of the type `http`: those of the outlet, and the form of rows."""

    id_field: Annotated[str, msgspec.Meta(description="Field of a row's id; empty: none.")] = "_id"
    id_column: Annotated[
        str, msgspec.Meta(description="Column of a row's id; if it is NULL: load id and row number.")
    ] = "eventn_ctx_event_id"
    table_field: Annotated[str, msgspec.Meta(description="Field of its table's name; empty: none.")] = (
        "_table"
    )
    max_rows: Annotated[
        int, msgspec.Meta(ge=1, description="Most rows of a request; 1 for receivers that take no lists.")
    ] = 500
    timeout_seconds: Annotated[
        float, msgspec.Meta(gt=0, description="A request must be answered within this time.")
    ] = 30.0
    give_up_seconds: Annotated[
        float,
        msgspec.Meta(gt=0, description="Rows that the receiver has not taken by then are sent again later."),
    ] = 120.0


class HttpDestination(Destination):
    """Rows as requests; at least once."""

    Settings: ClassVar[type[msgspec.Struct]] = HttpDestinationSettings
    capabilities = Capabilities(
        types={
            Kind.STRING: "string",
            Kind.FLOAT64: "number",
            Kind.INT64: "integer",
            Kind.BOOL: "boolean",
            Kind.TIMESTAMP: "date-time",
            Kind.JSON: "object",
        },
        max_identifier_length=255,
        max_columns=10_000,
        folds_case=False,
        supports_transactions=False,
        any_letters=True,
    )
    options: HttpDestinationSettings

    def __init__(self, id: str, options: Any) -> None:
        super().__init__(id, options)
        self._is_open = False
        # in memory of this process: the receiver has no ledger
        self._done: OrderedDict[str, Loaded] = OrderedDict()
        self._sent: dict[str, set[int]] = {}

    def dataset(self, table: str) -> tuple[str, str]:
        return f"http://{self.id}", table

    def connect(self) -> None:
        load_outlet(self._outlet())  # raises for wrong settings; HTTP has no connection to open in advance
        self._is_open = True

    def close(self) -> None:
        self._is_open = False

    def table(self, name: str) -> Table | None:
        self._check()
        return None

    def patch(self, wanted: Table) -> Table:
        self._check()
        return wanted

    def loaded(self, ids: Sequence[str]) -> set[str]:
        self._check()
        return {id for id in ids if id in self._done}

    def load(self, load: Load) -> Loaded:
        self._check()
        if load.id in self._done:
            return msgspec.structs.replace(self._done[load.id], already=True)
        staged = StagedFiles(load.files)
        requests = _LoadRequests(self, load, staged, self._sent.setdefault(load.id, set()))
        refused = requests.run(self._outlet())
        loaded = Loaded(id=load.id, rows=staged.rows - len(refused), refused=tuple(refused))
        del self._sent[load.id]
        self._done[load.id] = loaded
        if len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        return loaded

    def body(self, load: Load, row: dict[str, Any]) -> bytes:
        """The JSON of a row: the fields that it has."""
        number, options = row.pop(ROW), self.options
        fields = {name: value for name, value in row.items() if value is not None}
        if (unmapped := fields.get(UNMAPPED)) is not None:
            fields[UNMAPPED] = orjson.Fragment(unmapped)
        if options.table_field:
            fields[options.table_field] = load.table.name
        if options.id_field:
            fields[options.id_field] = str(fields.get(options.id_column) or f"{load.id}-{number}")
        return orjson.dumps(fields)

    def _outlet(self) -> OutletSettings:
        every = msgspec.to_builtins(self.options)
        options = {name: every[name] for name in HttpOptions.__struct_fields__}
        return OutletSettings(
            name=self.id,
            type="http",
            max_batch_events=self.options.max_rows,
            timeout_seconds=self.options.timeout_seconds,
            options=options,
        )

    def _check(self) -> None:
        if not self._is_open:
            raise DestinationUnavailable(f"destination {self.id} is not connected.")


class _LoadRequests:
    """Sends the rows of one load; `sent` keeps the rows that a retry must not send again."""

    def __init__(self, destination: HttpDestination, load: Load, staged: StagedFiles, sent: set[int]) -> None:
        self._to, self._load, self._staged, self._sent = destination, load, staged, sent
        self._rows: list[int] = []  # by position in the client, from 1
        self._refused: dict[int, str] = {}

    def run(self, settings: OutletSettings) -> list[RefusedRow]:
        """Send all rows and return the refused ones; DestinationUnavailable after `give_up_seconds`."""
        client = Client(settings, on_rejected=self._record_refused)
        left: list[Event] = []
        try:
            for bodies in self._pieces():
                self._add(client, bodies)
            is_done = client.flush(self._to.options.give_up_seconds)
            reason = client.trouble() or "it takes too long"
        finally:
            left = client.close(0.0)
            waiting = {event.position for event in left}
            self._sent.update(
                row
                for position, row in enumerate(self._rows, 1)
                if position not in waiting and row not in self._refused
            )
        if not is_done or left:
            raise DestinationUnavailable(
                f"destination {self._to.id}: {len(left)} of {self._staged.rows} rows were not taken: "
                f"{reason}.",
                hint="The load is retried; rows that were taken are not sent again.",
            )
        if len(self._refused) > self._to.max_refused:
            last = next(reversed(self._refused.values()))
            raise LoadRefused(
                f"{len(self._refused)} of {self._staged.rows} rows are refused; the last reason: {last}",
                hint="The other rows were sent. Change the receiver or the mapping; then run again.",
            )
        return [RefusedRow(row, reason) for row, reason in sorted(self._refused.items())]

    def _pieces(self) -> Iterator[list[bytes]]:
        for batch in self._staged.batches(_ROWS_PER_PIECE):
            rows = [row for row in batch.to_pylist() if row[ROW] not in self._sent]
            self._rows += [row[ROW] for row in rows]
            if rows:
                yield [self._to.body(self._load, row) for row in rows]

    def _add(self, client: Client, bodies: list[bytes]) -> None:
        try:
            client.add_events(bodies)
        except BatchRejected as refusal:
            # the client's memory is full: wait until it is empty
            if not client.flush(self._to.options.give_up_seconds):
                reason = client.trouble() or refusal.text
                raise DestinationUnavailable(
                    f"destination {self._to.id}: {reason}.", hint="The load is retried."
                ) from refusal
            client.add_events(bodies)

    def _record_refused(self, rejected: Sequence[tuple[Event, str]]) -> None:
        for event, reason in rejected:
            self._refused[self._rows[event.position - 1]] = reason
