"""The typecast tree, all pairs."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from headwater.destinations.column_types import Kind, kind_named, promote, promote_all

B, N, F, S, T = Kind.BOOL, Kind.INT64, Kind.FLOAT64, Kind.STRING, Kind.TIMESTAMP
TREE = [B, N, F, S, T]
PAIRS = {
    frozenset([B, N]): N,
    frozenset([B, F]): F,
    frozenset([B, S]): S,
    frozenset([B, T]): S,
    frozenset([N, F]): F,
    frozenset([N, S]): S,
    frozenset([N, T]): S,
    frozenset([F, S]): S,
    frozenset([F, T]): S,
    frozenset([S, T]): S,
}


@pytest.mark.parametrize(("a", "b"), [*product(TREE, TREE)], ids=str)
def test_the_lowest_common_ancestor_is_chosen_when_two_kinds_meet(a: Kind, b: Kind) -> None:
    assert promote(a, b) is (a if a is b else PAIRS[frozenset([a, b])])


def test_the_order_does_not_matter_when_many_kinds_meet() -> None:
    for size in range(1, len(TREE) + 1):
        for kinds in permutations(TREE, size):
            assert promote_all(kinds) is promote_all(sorted(kinds))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("string", S),
        ("Integer", N),
        ("double", F),
        (" TIMESTAMP ", T),
        ("boolean", B),
        ("varchar(10)", None),
        ("", None),
    ],
)
def test_a_type_is_known_everywhere_when_it_has_a_common_name(name: str, kind: Kind | None) -> None:
    assert kind_named(name) is kind
