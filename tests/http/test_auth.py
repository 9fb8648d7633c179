"""Access: who may send."""

from __future__ import annotations

import pytest

from headwater.http.auth import BearerKeys


def test_every_request_is_allowed_when_there_are_no_keys() -> None:
    access = BearerKeys(())
    assert access.is_empty
    assert access.allow(None)


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("Bearer one", True),
        ("bearer  two ", True),
        ("Bearer three", False),
        ("Bearer One", False),
        ("Bearer ", False),
        ("one", False),
        ("Basic one", False),
        ("", False),
        (None, False),
    ],
)
def test_only_known_keys_are_allowed_when_there_are_some(header: str | None, allowed: bool) -> None:
    assert BearerKeys(("one", "two")).allow(header) is allowed


def test_keys_are_not_kept_when_they_are_known() -> None:
    access = BearerKeys(("a-secret-key",))
    assert "a-secret-key" not in repr(vars(access))
    assert access.refusal.status == 401
