"""Random queries over three small tables, in SQL that Spark and DuckDB read alike and answer alike."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

__all__ = ["TABLES", "queries"]

TABLES: dict[str, dict[str, str]] = {
    "t": {"a": "int", "b": "int", "c": "string", "d": "int"},
    "u": {"a": "int", "e": "int", "f": "string"},
    "v": {"k": "int", "g": "int", "h": "string"},
}

Draw = st.DrawFn


class Relation(NamedTuple):
    """A query in parentheses, or a table, and its columns by type."""

    sql: str
    columns: dict[str, str]


@st.composite
def queries(draw: Draw) -> str:
    """A query; some begin with a CTE that is used twice, some end with an order by all columns and limit."""
    relation = _relation(draw, draw(st.integers(1, 3)))
    before = ""
    if draw(st.booleans()):
        base = _relation(draw, 1)
        before = f"with w as (select * from {base.sql} y) "
        named = Relation("w", base.columns)
        relation = _joined(draw, named, _joined(draw, relation, named))
    listed = ", ".join(f"z.{name}" for name in relation.columns)
    after = f" order by {listed} limit 3" if draw(st.integers(0, 4)) == 0 else ""
    return f"{before}select {listed} from {relation.sql} z{after}"


def _relation(draw: Draw, depth: int) -> Relation:
    if depth == 0:
        name = draw(st.sampled_from(sorted(TABLES)))
        return Relation(name, TABLES[name])
    made = draw(st.sampled_from((_projected, _filtered, _joined, _grouped, _windowed, _combined, _distinct)))
    below = _relation(draw, depth - 1)
    if made is _joined:
        return _joined(draw, below, _relation(draw, draw(st.integers(0, depth - 1))))
    if made is _combined:
        return _combined(draw, below, _relation(draw, draw(st.integers(0, depth - 1))))
    return made(draw, below)  # type: ignore[operator, no-any-return]


def _select(parts: list[tuple[str, str]], rest: str) -> Relation:
    names = [f"c{place}" for place in range(len(parts))]
    listed = ", ".join(f"{sql} as {name}" for name, (sql, _) in zip(names, parts, strict=True))
    kinds = [kind for _, kind in parts]
    return Relation(f"(select {listed} {rest})", dict(zip(names, kinds, strict=True)))


def _projected(draw: Draw, below: Relation) -> Relation:
    parts = [_value(draw, below, "r") for _ in range(draw(st.integers(1, 4)))]
    if draw(st.integers(0, 3)) == 0:
        parts.append(_scalar(draw, below))
    return _select(parts, f"from {below.sql} r")


def _filtered(draw: Draw, below: Relation) -> Relation:
    parts = [(f"r.{name}", kind) for name, kind in below.columns.items()]
    return _select(parts, f"from {below.sql} r where {_condition(draw, below)}")


def _joined(draw: Draw, left: Relation, right: Relation) -> Relation:
    kind = draw(st.sampled_from(("join", "left join", "right join", "full join", "comma")))
    one, other = _column(draw, left, "int"), _column(draw, right, "int")
    parts = [(f"r.{name}", k) for name, k in left.columns.items()]
    parts += [(f"s.{name}", k) for name, k in right.columns.items()]
    parts = draw(st.permutations(parts))[: draw(st.integers(1, 5))]
    if one is None or other is None:
        return _select(parts, f"from {left.sql} r cross join {right.sql} s")
    if kind == "comma":
        return _select(parts, f"from {left.sql} r, {right.sql} s where r.{one} = s.{other}")
    return _select(parts, f"from {left.sql} r {kind} {right.sql} s on r.{one} = s.{other}")


def _grouped(draw: Draw, below: Relation) -> Relation:
    keys = draw(st.lists(st.sampled_from(list(below.columns)), max_size=2, unique=True))
    parts = [(f"r.{key}", below.columns[key]) for key in keys]
    for _ in range(draw(st.integers(1, 3))):
        parts.append(_aggregate(draw, below))
    listed = ", ".join(f"r.{key}" for key in keys)
    rest = f"from {below.sql} r"
    if keys:
        rest += f" group by {'cube' if draw(st.integers(0, 4)) == 0 else ''}({listed})"
        if draw(st.integers(0, 3)) == 0:
            rest += f" having {_aggregate(draw, below)[0]} > 1"
    return _select(parts, rest)


def _aggregate(draw: Draw, below: Relation) -> tuple[str, str]:
    number = _column(draw, below, "int")
    if number is None or draw(st.integers(0, 5)) == 0:
        return "count(*)", "int"
    function = draw(st.sampled_from(("sum", "min", "max", "count", "count distinct", "filter")))
    if function == "count distinct":
        return f"count(distinct r.{number})", "int"
    if function == "filter":
        return f"sum(r.{number}) filter (where {_simple(draw, below)})", "int"
    return f"{function}(r.{number})", "int"


def _windowed(draw: Draw, below: Relation) -> Relation:
    names = list(below.columns)
    parts = [(f"r.{name}", kind) for name, kind in below.columns.items()][:3]
    over = f"partition by r.{draw(st.sampled_from(names))}" if draw(st.booleans()) else ""
    order = f"order by r.{draw(st.sampled_from(names))}"
    number = _column(draw, below, "int")
    function = draw(st.sampled_from(("rank()", "dense_rank()", "sum", "max", "count(*)")))
    if function in ("sum", "max"):
        function = f"{function}(r.{number})" if number else "count(*)"
    if function.endswith("k()") or draw(st.booleans()):
        over = f"{over} {order}".strip()
    parts.append((f"{function} over ({over})", "int"))
    return _select(parts, f"from {below.sql} r")


def _combined(draw: Draw, left: Relation, right: Relation) -> Relation:
    operation = draw(st.sampled_from(("union all", "union", "intersect", "except")))
    pairs = list(zip(_sorted(left), _sorted(right), strict=False))
    pairs = [(one, other) for one, other in pairs if left.columns[one] == right.columns[other]]
    if not pairs:
        return left
    kinds = {f"c{place}": left.columns[one] for place, (one, _) in enumerate(pairs)}
    first = ", ".join(f"r.{one} as c{place}" for place, (one, _) in enumerate(pairs))
    second = ", ".join(f"s.{other}" for _, other in pairs)
    both = f"(select {first} from {left.sql} r {operation} select {second} from {right.sql} s)"
    return Relation(both, kinds)


def _sorted(relation: Relation) -> list[str]:
    return sorted(relation.columns, key=lambda name: (relation.columns[name], name))


def _distinct(draw: Draw, below: Relation) -> Relation:
    names = draw(st.lists(st.sampled_from(list(below.columns)), min_size=1, max_size=3, unique=True))
    made = _select([(f"r.{name}", below.columns[name]) for name in names], f"from {below.sql} r")
    return Relation(made.sql.replace("(select", "(select distinct", 1), made.columns)


def _column(draw: Draw, relation: Relation, kind: str) -> str | None:
    names = [name for name, its in relation.columns.items() if its == kind]
    return draw(st.sampled_from(names)) if names else None


def _value(draw: Draw, relation: Relation, alias: str) -> tuple[str, str]:
    number, text = _column(draw, relation, "int"), _column(draw, relation, "string")
    if number is None or (text is not None and draw(st.integers(0, 2)) == 0):
        if text is None:
            return "7", "int"
        form = draw(st.sampled_from(("{x}", "upper({x})", "{x} || 'q'", "coalesce({x}, 'n')")))
        return form.format(x=f"{alias}.{text}"), "string"
    other = _column(draw, relation, "int")
    form = draw(
        st.sampled_from(
            (
                "{x}",
                "{x} + {y}",
                "{x} * 2 - {y}",
                "case when {y} > 1 then {x} else 0 end",
                "case when {y} > 2 then 1 when {x} > 2 then 2 end",
                "coalesce({x}, {y}, 0)",
                "nullif({x}, {y})",
                "abs({x})",
                "greatest({x}, {y})",
            )
        )
    )
    return form.format(x=f"{alias}.{number}", y=f"{alias}.{other}"), "int"


def _scalar(draw: Draw, below: Relation) -> tuple[str, str]:
    name = draw(st.sampled_from(sorted(TABLES)))
    inner = Relation(name, TABLES[name])
    value, key = _column(draw, inner, "int"), _column(draw, inner, "int")
    outer = _column(draw, below, "int")
    correlated = f" where i.{key} = r.{outer}" if outer is not None and draw(st.booleans()) else ""
    return f"(select max(i.{value}) from {name} i{correlated})", "int"


def _simple(draw: Draw, below: Relation) -> str:
    number, text = _column(draw, below, "int"), _column(draw, below, "string")
    if number is None or (text is not None and draw(st.booleans())):
        return f"r.{text} <> 'x'" if text is not None else "1 = 1"
    return f"r.{number} > {draw(st.integers(0, 3))}"


def _condition(draw: Draw, below: Relation) -> str:
    kind = draw(st.integers(0, 5))
    number = _column(draw, below, "int")
    if number is None or kind < 3:
        return _simple(draw, below)
    name = draw(st.sampled_from(sorted(TABLES)))
    inner = Relation(name, TABLES[name])
    key, more = _column(draw, inner, "int"), _column(draw, inner, "int")
    if kind == 3:
        return f"r.{number} in (select i.{key} from {name} i where i.{more} > 1)"
    if kind == 4:
        sign = draw(st.sampled_from(("", "not ")))
        return f"{sign}exists (select 1 from {name} i where i.{key} = r.{number} and i.{more} > 0)"
    return f"r.{number} > (select min(i.{key}) from {name} i)"
