"""The tables and columns of a query that a database runs for a JDBC source, by sqlglot.

Spark knows the names of the result's columns, but neither the query's plan nor the columns of its tables. So
a column without its table's name belongs to the only table of its SELECT; with several tables it is unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sqlglot.optimizer.scope import Scope

logger = logging.getLogger(__name__)

LONGEST_QUERY = 100_000  # characters
# Names of JDBC drivers that sqlglot has under another name; None reads standard SQL.
_DIALECTS = {
    "postgresql": "postgres",
    "mariadb": "mysql",
    "sqlserver": "tsql",
    "jtds": "tsql",
    "hive2": "hive",
    "ch": "clickhouse",
    "presto": "presto",
}
_MOST_LEVELS = 50  # of nested queries


class TableColumn(NamedTuple):
    """A column of a table, by the table's name in the query, and how it is used."""

    table: str
    column: str
    use: str
    """IDENTITY, TRANSFORMATION or AGGREGATION; of rows FILTER, JOIN, GROUP_BY or SORT."""


@dataclass
class JdbcQuery:
    """The tables of a query, and the origin of its columns."""

    tables: list[str]
    columns: dict[str, list[TableColumn]] = field(default_factory=dict)
    """By the name of the result's column; a column that is not known is absent."""
    rows: list[TableColumn] = field(default_factory=list)
    """Columns that choose the rows."""
    unknown: list[str] = field(default_factory=list)
    """Names in the query that may belong to several tables."""


def read_query(query: str, url: str, result: Sequence[str] = ()) -> JdbcQuery | None:
    """The tables and columns of a query; None without sqlglot, or if it cannot parse the query.

    `result` are the names of the columns that Spark reads, which a `*` stands for.
    """
    if len(query) > LONGEST_QUERY:
        return None
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
        from sqlglot.optimizer.scope import build_scope
    except ImportError:
        return None
    try:
        tree = sqlglot.parse_one(query, dialect=_dialect(url))
        scope = build_scope(tree)
    except (SqlglotError, RecursionError, ValueError) as error:
        logger.debug("The query of a JDBC source could not be parsed: %s", error)
        return None
    if scope is None:
        return None
    found = JdbcQuery(list(dict.fromkeys(_tables(scope))))
    try:
        _Columns(found, result).read(scope)
    except RecursionError as error:
        logger.debug("The columns of a JDBC source's query could not be read: %s", error)
    return found


def _dialect(url: str) -> str | None:
    from sqlglot.dialects.dialect import Dialect

    driver = url.partition(":")[2] if url[:5].lower() == "jdbc:" else url
    name = driver.partition(":")[0].lower()
    name = _DIALECTS.get(name, name)
    return name if Dialect.get(name) is not None else None


def _tables(scope: Scope) -> Iterator[str]:
    from sqlglot import exp

    for each in scope.traverse():
        for source in each.sources.values():
            if isinstance(source, exp.Table):
                yield _name(source)


def _name(table: Any) -> str:
    return ".".join(part.name for part in table.parts)


_Origin = list[TableColumn] | None
"""None: not known."""


class _Columns:
    """Follows columns through the scopes of a query."""

    def __init__(self, found: JdbcQuery, result: Sequence[str]) -> None:
        self._found = found
        self._result = result

    def read(self, scope: Scope) -> None:
        names = self._result or self._names(scope)
        for place, name in enumerate(names):
            origin = self._output(scope, name, place, len(names), 0)
            if origin is not None:
                self._found.columns[name] = list(dict.fromkeys(origin))
        rows: list[TableColumn] = []
        for each in scope.traverse():
            rows += self._rows(each)
        self._found.rows = list(dict.fromkeys(rows))
        self._found.unknown = list(dict.fromkeys(self._found.unknown))

    def _names(self, scope: Scope) -> list[str]:
        return [one.alias_or_name for one in _selects(scope)]

    def _output(self, scope: Scope, name: str, place: int | None, width: int, depth: int) -> _Origin:
        """The origin of a column of the scope: by its place if the query lists all of them, else by name."""
        from sqlglot import exp

        if depth > _MOST_LEVELS:
            return None
        if scope.set_operation_scopes:
            if place is None:  # the names of a union are those of its first part
                names = [one.lower() for one in self._names(scope.set_operation_scopes[0])]
                place = names.index(name.lower()) if names.count(name.lower()) == 1 else None
                width = len(names)
            parts = scope.set_operation_scopes
            return _joined([self._output(one, name, place, width, depth + 1) for one in parts])
        selects = _selects(scope)
        stars = [one for one in selects if one.is_star]
        chosen: Any = None
        if not stars and place is not None and len(selects) == width:
            chosen = selects[place]
        else:
            named = [one for one in selects if one.alias_or_name.lower() == name.lower() and not one.is_star]
            chosen = named[0] if len(named) == 1 else None
        if chosen is None:
            return self._through_star(scope, stars, name, depth)
        inside = chosen.this if isinstance(chosen, exp.Alias) else chosen
        if isinstance(inside, exp.Column):
            return self._column(scope, inside, depth)
        step = "AGGREGATION" if inside.find(exp.AggFunc) else "TRANSFORMATION"
        return _used([self._operand(scope, one, depth) for one in _operands(inside)], step)

    def _operand(self, scope: Scope, one: Any, depth: int) -> _Origin:
        from sqlglot import exp

        if isinstance(one, exp.Column):
            return self._column(scope, one, depth)
        inner = next((each for each in scope.subquery_scopes if each.expression is one), None)
        if inner is None:
            self._found.unknown.append("a subquery")
            return None
        if isinstance(one.parent, exp.Exists):
            return []  # its rows count, not its columns
        names = self._names(inner)
        return _joined(
            [self._output(inner, name, at, len(names), depth + 1) for at, name in enumerate(names)]
        )

    def _through_star(self, scope: Scope, stars: list[Any], name: str, depth: int) -> _Origin:
        if len(stars) != 1:
            return None
        qualifier = stars[0].table if hasattr(stars[0], "table") else ""
        sources = [qualifier] if qualifier else list(scope.selected_sources)
        if len(sources) != 1:
            self._found.unknown.append(name)
            return None
        return self._of_source(scope, sources[0], name, depth)

    def _column(self, scope: Scope, column: Any, depth: int) -> _Origin:
        from sqlglot import exp

        if isinstance(column.this, exp.Star):
            return []  # count(*)
        qualifier = column.table
        if not qualifier:
            sources = list(scope.selected_sources)
            if len(sources) != 1:
                self._found.unknown.append(column.name)
                return None
            qualifier = sources[0]
        return self._of_source(scope, qualifier, column.name, depth)

    def _of_source(self, scope: Scope, qualifier: str, name: str, depth: int) -> _Origin:
        from sqlglot import exp

        source = scope.sources.get(qualifier)
        if source is None:
            known = {one.lower(): one for one in scope.sources}
            source = scope.sources.get(known.get(qualifier.lower(), ""))
        if isinstance(source, exp.Table):
            return [TableColumn(_name(source), name, "IDENTITY")]
        if source is None or not hasattr(source, "expression"):
            self._found.unknown.append(f"{qualifier}.{name}")
            return None
        return self._output(source, name, None, -1, depth + 1)

    def _rows(self, scope: Scope) -> Iterator[TableColumn]:
        from sqlglot import exp

        tree = scope.expression
        if not isinstance(tree, exp.Select):
            return
        clauses = [("FILTER", tree.args.get("where")), ("FILTER", tree.args.get("having"))]
        clauses += [("GROUP_BY", tree.args.get("group")), ("SORT", tree.args.get("order"))]
        clauses += [("JOIN", join.args.get("on")) for join in tree.args.get("joins") or ()]
        for use, clause in clauses:
            if clause is None:
                continue
            for one in _operands(clause):
                alias = None
                if use != "JOIN" and isinstance(one, exp.Column) and not one.table:
                    alias = next((each for each in tree.selects if each.alias == one.name), None)
                # the name of an expression of the same SELECT stands for that expression
                used = _operands(alias.this) if alias is not None else [one]
                yield from _used([self._operand(scope, each, 0) for each in used], use) or ()


def _selects(scope: Scope) -> list[Any]:
    tree: Any = scope.expression
    return list(tree.selects)


def _operands(tree: Any) -> Iterator[Any]:
    """The columns of an expression, and its subqueries, which are scopes of their own."""
    from sqlglot import exp

    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, exp.Subquery):
            one = one.unnest()
        if isinstance(one, exp.Column | exp.Query):
            yield one
        else:
            todo += list(one.iter_expressions(reverse=True))


def _joined(parts: Sequence[_Origin]) -> _Origin:
    known = [part for part in parts if part is not None]
    return [one for part in known for one in part] if len(known) == len(parts) else None


_STRENGTH = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")


def _used(parts: Sequence[_Origin], use: str) -> _Origin:
    """The columns after one more use; not known if one of them is not."""
    found = _joined(parts)
    if found is None:
        return None
    if use in _STRENGTH:
        return [
            one._replace(use=max(one.use, use, key=_STRENGTH.index) if one.use in _STRENGTH else one.use)
            for one in found
        ]
    return [one._replace(use=use) for one in found]
