from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.delivery.batches import Buffer
from headwater.delivery.keys import Keys
from headwater.delivery.outlets.base import DELIVERED, Batch, NoOptions, Outlet, Results
from headwater.delivery.shorten_json import TRIMMED_FIELD, trim_json
from headwater.errors import EventRefused
from headwater.events import Event
from headwater.settings import OutletSettings


class Limited(Outlet):
    """An outlet whose receiver has hard limits."""

    hard: int | None = None
    count: int | None = None

    @property
    def max_request_bytes(self) -> int | None:
        return self.hard

    @property
    def max_events(self) -> int | None:
        return self.count

    async def send(self, batch: Batch) -> Results:
        return [DELIVERED] * len(batch.events)


def buffer_of(
    *, soft: int = 10_000, events: int = 100, hard: int | None = None, count: int | None = None
) -> Buffer:
    settings = OutletSettings(name="limited", type="limited", max_batch_bytes=soft, max_batch_events=events)
    outlet = Limited(NoOptions(), settings)
    outlet.hard, outlet.count = hard, count
    return Buffer(outlet, "session", Keys().of(b"{}"))


def event(i: int, size: int) -> Event:
    empty = len(orjson.dumps({"i": i, "t": ""}))
    return Event(i, 0.0, orjson.dumps({"i": i, "t": "x" * (size - empty)}))


def payload(buffer: Buffer) -> bytes:
    return b"[" + b",".join(buffer.batch.pieces) + b"]"


def test_a_buffer_is_closed_by_bytes_when_the_real_payload_would_exceed_the_limit() -> None:
    buffer = buffer_of(soft=1_000)
    taken = 0
    while buffer.add(event(taken, 99)):
        taken += 1
    assert taken == 9
    assert len(payload(buffer)) <= buffer.bytes <= 1_000


def test_a_buffer_is_closed_by_count_when_it_has_enough_events() -> None:
    buffer = buffer_of(events=3)
    assert [buffer.add(event(i, 50)) for i in range(4)] == [True, True, True, False]
    buffer = buffer_of(events=3, count=1)
    assert [buffer.add(event(i, 50)) for i in range(2)] == [True, False]
    assert len(buffer) == 1


def test_an_event_goes_alone_when_it_is_larger_than_the_soft_limit() -> None:
    buffer = buffer_of(soft=100)
    assert buffer.add(event(1, 500))
    assert not buffer.add(event(2, 50))
    assert buffer.batch.pieces[0] == event(1, 500).body


def test_a_large_event_waits_for_the_next_buffer_when_this_one_holds_others() -> None:
    buffer = buffer_of(soft=100, hard=200)
    assert buffer.add(event(1, 50))
    assert not buffer.add(event(2, 500))


def test_an_event_is_trimmed_when_it_is_larger_than_the_hard_limit() -> None:
    buffer = buffer_of(soft=10_000, hard=200)
    assert buffer.add(event(1, 500))
    assert len(payload(buffer)) <= 200
    trimmed = orjson.loads(buffer.batch.pieces[0])
    assert trimmed["i"] == 1
    assert set(trimmed["t"]) == {"x"}
    assert trimmed[TRIMMED_FIELD] == f"/t: {500 - len(orjson.dumps({'i': 1, 't': ''}))} bytes"
    assert buffer.batch.events[0].body == event(1, 500).body  # the log's copy is not touched


def test_an_event_is_refused_when_it_cannot_be_trimmed_enough() -> None:
    with pytest.raises(EventRefused, match="with all text cut"):
        buffer_of(hard=100).add(Event(1, 0.0, orjson.dumps({"numbers": list(range(1000))})))
    with pytest.raises(EventRefused, match="only an object"):
        buffer_of(hard=100).add(Event(1, 0.0, b"[" + b"1," * 500 + b"1]"))
    with pytest.raises(EventRefused, match="only an object"):
        buffer_of(hard=100).add(Event(1, 0.0, b"not json" * 100))
    with pytest.raises(EventRefused, match="without the event"):
        buffer_of(hard=1).add(event(1, 50))


def test_an_outlets_own_trimming_is_checked_when_it_leaves_too_much() -> None:
    class Careless(Limited):
        def trim(self, piece: bytes, limit_bytes: int) -> bytes:
            return piece[: limit_bytes + 1]

    outlet = Careless(NoOptions(), OutletSettings(name="careless", type="careless"))
    outlet.hard = 100
    with pytest.raises(EventRefused, match="limit leaves 97"):
        Buffer(outlet, "session", Keys().of(b"{}")).add(event(1, 500))


def test_values_are_cut_longest_first_when_trimmed() -> None:
    whole = {"short": "s" * 50, "long": "l" * 1_000, "longer": "m" * 2_000, "n": 12}
    trimmed = orjson.loads(trim_json(orjson.dumps(whole), 2_500))
    assert trimmed["short"] == whole["short"]
    assert trimmed["long"] == whole["long"]
    assert 0 < len(trimmed["longer"]) < 2_000
    assert trimmed["n"] == 12
    trimmed = orjson.loads(trim_json(orjson.dumps(whole), 700))
    assert trimmed["short"] == whole["short"]
    assert 0 < len(trimmed["long"]) < 1_000
    assert trimmed["longer"] == ""
    assert trimmed[TRIMMED_FIELD] == "/longer: 2000 bytes; /long: 1000 bytes"


def test_only_white_space_goes_when_that_is_enough() -> None:
    piece = b'{"a":   "b",' + b" " * 500 + b'"c": 1}'
    assert trim_json(piece, 100) == b'{"a":"b","c":1}'


def test_values_below_a_field_are_cut_when_the_rest_is_not_to_be_touched() -> None:
    piece = orjson.dumps({"id": "i" * 300, "attrs": {"message": "m" * 200, "deep": {"list": ["d" * 150]}}})
    trimmed = orjson.loads(trim_json(piece, 500, under="attrs"))
    assert trimmed["id"] == "i" * 300
    assert TRIMMED_FIELD not in trimmed
    assert "/message: 200 bytes" in trimmed["attrs"][TRIMMED_FIELD]
    with pytest.raises(EventRefused):
        trim_json(piece, 500, under="absent")


def test_the_record_stays_small_when_many_values_with_long_names_are_cut() -> None:
    whole = {f"{i:03}" + "n" * 150: "v" * 100 for i in range(100)}
    trimmed = orjson.loads(trim_json(orjson.dumps(whole), 20_000))
    record = trimmed.pop(TRIMMED_FIELD)
    assert record.endswith(" more")
    assert len(record) < 3_000
    assert trimmed.keys() == whole.keys()


@given(
    values=st.dictionaries(
        st.text(max_size=10),
        st.text(max_size=200) | st.integers() | st.lists(st.text(max_size=50)),
        max_size=8,
    ),
    share=st.floats(0.3, 1.0),
)
def test_trimming_yields_prefixes_within_the_limit_when_it_succeeds(
    values: dict[str, Any], share: float
) -> None:
    values = {k: v if not isinstance(v, int) or abs(v) < 2**53 else 0 for k, v in values.items()}
    piece = orjson.dumps(values)
    limit = int(len(piece) * share) + 60
    try:
        result = trim_json(piece, limit)
    except EventRefused:
        return
    assert len(result) <= limit
    trimmed = orjson.loads(result)
    for name, value in values.items():
        if name == TRIMMED_FIELD:
            continue
        if isinstance(value, str):
            assert value.startswith(trimmed[name])
        elif isinstance(value, int):
            assert trimmed[name] == value
        else:
            assert all(was.startswith(now) for was, now in zip(value, trimmed[name], strict=True))
