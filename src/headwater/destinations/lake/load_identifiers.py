"""The loads in a table, as the identifiers that its own log keeps: a name and a number each.

headwater                            number of loads; so two loads never commit on one version
headwater/rows|unmapped|refused      sums over all loads
headwater/load/<id>                  a load; the number is that of its rows
headwater/stream/<source>/<table>/<first>
                                     adjoining loads of a stream that begin at the position `first`; the
                                     number is the position where they end. So a stream that runs for a
                                     year is one identifier, not millions
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.destinations.base import NUMBER_DIGITS, Loaded, StreamLoadId, Total, parse_stream_id

APP = "headwater"
LOAD = f"{APP}/load/"
_STREAM = f"{APP}/stream/"
_COUNTS = ("rows", "unmapped", "refused")


class LoadIdentifiers:
    """The identifiers of one version of a table."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def has(self, id: str) -> bool:
        """Whether a load is stored, by itself or as a part of adjoining loads."""
        if (stream := parse_stream_id(id)) is None:
            return f"{LOAD}{id}" in self.numbers
        return any(run.first <= stream.first and stream.end <= run.end for run in self._runs(stream))

    def entry(self, id: str) -> Loaded:
        """What is known of a stored load from its identifier alone."""
        return Loaded(id=id, rows=self.numbers.get(f"{LOAD}{id}", 0))

    def loads_between(self, low: str, high: str) -> set[str]:
        """Ids of loads; adjoining loads of a stream are one id."""
        ids = {name.removeprefix(LOAD) for name in self.numbers if name.startswith(LOAD)}
        ids |= {str(run) for run in self._runs()}
        return {id for id in ids if low <= id < high}

    def total(self) -> Total:
        """Sums over all loads."""
        rows, unmapped, refused = (self.numbers.get(f"{APP}/{count}", 0) for count in _COUNTS)
        return Total(loads=self.numbers.get(APP, 0), rows=rows, unmapped=unmapped, refused=refused)

    def to_enter(self, loaded: Loaded) -> dict[str, int]:
        """The identifiers of a commit that enters a load."""
        total = self.total()
        entered = {
            APP: total.loads + 1,
            f"{APP}/rows": total.rows + loaded.rows,
            f"{APP}/unmapped": total.unmapped + loaded.unmapped,
            f"{APP}/refused": total.refused + len(loaded.refused),
        }
        stream = parse_stream_id(loaded.id)
        if stream is None:
            return entered | {f"{LOAD}{loaded.id}": loaded.rows}
        before = (run.first for run in self._runs(stream) if run.end == stream.first)
        return entered | {_run(stream, next(before, stream.first)): stream.end}

    def _runs(self, of: StreamLoadId | None = None) -> Iterator[StreamLoadId]:
        """Adjoining loads of streams, as one id; those of one stream and table, or all."""
        prefix = _run(of, 0)[:-NUMBER_DIGITS] if of is not None else _STREAM
        for name, end in self.numbers.items():
            if name.startswith(prefix):
                source, table, first = name.removeprefix(_STREAM).split("/")
                yield StreamLoadId(source, end, int(first, 16), table)


def _run(stream: StreamLoadId, first: int) -> str:
    return f"{_STREAM}{stream.source}/{stream.table}/{first:0{NUMBER_DIGITS}x}"
