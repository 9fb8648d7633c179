"""The group commit: grouping, answers, work in between, closing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.errors import HeadwaterError, LogClosed, LogFull, LogUnavailable
from headwater.log.queue.group_commit import GroupCommit, PendingAppend, WriterThread


class Store:
    """Keeps what the writer commits; fails on demand."""

    def __init__(self) -> None:
        self.groups: list[list[bytes]] = []
        self.error: Exception | None = None
        self.ticks = 0
        self.gate = threading.Event()
        self.gate.set()

    def commit(self, group: list[PendingAppend]) -> None:
        self.gate.wait(30)
        if self.error is not None:
            raise self.error
        self.groups.append([body for entry in group for body in entry.bodies])

    def tick(self) -> None:
        self.ticks += 1
        raise RuntimeError("a tick that fails stops nothing")


def started(store: Store, *, tick_seconds: float = 60, max_bytes: int = 100) -> GroupCommit:
    writer = GroupCommit(store.commit, store.tick, tick_seconds, max_bytes)
    writer.start()
    return writer


def test_what_gathers_during_a_commit_becomes_one_group_when_it_fits() -> None:
    store = Store()
    store.gate.clear()
    writer = started(store)
    answered: list[Any] = []
    sizes = [10, 30, 30, 30, 30, 500, 5]
    for number, size in enumerate(sizes):
        writer.append([bytes(size)], lambda tokens, error: answered.extend(tokens), number)
    store.gate.set()
    writer.close()
    assert answered == list(range(7))
    lengths = [[len(body) for body in group] for group in store.groups]
    assert [size for group in lengths for size in group] == sizes
    assert all(len(group) == 1 or sum(group) <= 100 for group in lengths)
    assert len(lengths) < 7


@pytest.mark.parametrize(
    ("error", "reported"),
    [(LogFull("full"), LogFull), (RuntimeError("a fault of ours"), LogUnavailable)],
)
def test_every_request_of_the_group_fails_when_a_commit_fails(
    error: Exception, reported: type[HeadwaterError]
) -> None:
    store = Store()
    store.error = error
    writer = started(store)
    answers: list[tuple[list[Any], HeadwaterError | None]] = []
    writer.append([b"a"], lambda tokens, error: answers.append((tokens, error)), 1)
    writer.call(lambda: None)
    store.error = None
    writer.append([b"b"], lambda tokens, error: answers.append((tokens, error)), 2)
    writer.close()
    assert [tokens for tokens, _ in answers] == [[1], [2]]
    assert type(answers[0][1]) is reported
    assert answers[1][1] is None


def test_a_fault_is_logged_once_and_counted_when_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.error = RuntimeError("a fault of ours")
    writer = started(store)
    for number in range(5):
        writer.append([b"a"], lambda tokens, error: None, number)
        writer.call(lambda: None)
    store.error = None
    writer.append([b"b"], lambda tokens, error: None, 5)
    writer.close()
    assert [record.getMessage() for record in caplog.records] == [
        "The log's writer failed.",
        "The log's writer works again; it had failed 5 times in a row.",
    ]


def test_one_append_holds_what_fits_into_a_commit_when_many_are_appended() -> None:
    store = Store()
    store.gate.clear()
    writer = started(store, max_bytes=10)
    answered: list[Any] = []
    items = [([b"aaaa"], 1), ([b"bbb", b"bbb"], 2), ([b"c" * 30], 3), ([b"d"], 4)]
    writer.append_all(items, lambda tokens, error: answered.extend(tokens))
    store.gate.set()
    writer.close()
    assert store.groups == [[b"aaaa", b"bbb", b"bbb"], [b"c" * 30], [b"d"]]
    assert answered == [1, 2, 3, 4]


def test_work_runs_between_commits_and_its_error_goes_to_the_caller_when_it_fails() -> None:
    writer = started(Store())
    assert writer.call(threading.current_thread).name == "log-writer"
    assert writer.call(lambda: writer.call(lambda: 5)) == 5  # from its own thread: at once
    with pytest.raises(ZeroDivisionError):
        writer.call(lambda: 1 // 0)
    writer.close()
    with pytest.raises(LogClosed):
        writer.call(lambda: 1)
    with pytest.raises(LogClosed):
        writer.append([b"x"], lambda tokens, error: None, None)


@pytest.mark.parametrize("busy", [True, False])
def test_ticks_go_on_when_they_fail(busy: bool) -> None:
    store = Store()
    writer = started(store, tick_seconds=0)
    limit = threading.Event()
    while store.ticks < 3:
        if busy:
            writer.append([b"x"], lambda tokens, error: None, None)
        assert not limit.wait(0.01)
    writer.close()
    assert store.ticks >= 3


def test_one_thread_serves_several_and_ends_with_the_last_when_they_share_it() -> None:
    thread = WriterThread(60)
    stores = [Store() for _ in range(20)]
    ended: list[int] = []
    writers = [
        GroupCommit(store.commit, store.tick, 60, 100, thread, lambda i=i: ended.append(i))  # type: ignore[misc]
        for i, store in enumerate(stores)
    ]
    for writer in writers:
        writer.start()
    answered: list[int] = []
    for number in range(200):
        writers[number % 20].append([b"%d" % number], lambda tokens, error: answered.extend(tokens), number)
    assert {writer.call(threading.current_thread) for writer in writers} == {
        writers[0].call(threading.current_thread)
    }
    writers[0].close()
    assert ended == [0]
    writers[1].append([b"200"], lambda tokens, error: answered.extend(tokens), 200)
    for writer in writers[1:]:
        writer.begin_close()
    for writer in writers[1:]:
        writer.close()
        writer.close()
    assert sorted(answered) == list(range(201))
    assert [int(body) for group in stores[1].groups for body in group] == [*range(1, 200, 20), 200]
    assert sorted(ended) == list(range(20))
    while thread.is_alive:
        pass
    again = GroupCommit(stores[0].commit, stores[0].tick, 60, 100, thread)
    again.start()
    assert again.call(lambda: 1) == 1
    again.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_close_returns_when_the_thread_has_died() -> None:
    store = Store()
    writer = started(store)

    def die() -> None:
        raise SystemExit

    writer._calls.append(die)
    writer.append([b"x"], lambda tokens, error: None, None)
    writer.close()
    assert store.groups == []
