"""Table names: `table_name_template`, in Jinja's syntax, compiled to Spark SQL.

Jinja's own parser reads it, and no part of it is ever executed. So a template can have only these parts:
fields, literals, a few filters, conditions, concatenation. All else is refused with its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from headwater.errors import HeadwaterError
from headwater.pipeline.steps.convert import DECIMAL, MOMENT, NUMBER, literal

DIRECTIVES = {
    "Y": "date_format({0}, 'yyyy')",
    "y": "date_format({0}, 'yy')",
    "m": "date_format({0}, 'MM')",
    "d": "date_format({0}, 'dd')",
    "H": "date_format({0}, 'HH')",
    "M": "date_format({0}, 'mm')",
    "S": "date_format({0}, 'ss')",
    "j": "date_format({0}, 'DDD')",
    "b": "date_format({0}, 'MMM')",
    "B": "date_format({0}, 'MMMM')",
    "a": "date_format({0}, 'E')",
    "A": "date_format({0}, 'EEEE')",
    "V": "lpad(cast(extract(WEEK FROM {0}) AS string), 2, '0')",
    "G": "cast(extract(YEAROFWEEK FROM {0}) AS string)",
}
FILTERS = ("capitalize", "d", "date", "default", "lower", "replace", "string", "title", "trim", "upper")
TESTS = ("defined", "none", "undefined")
EVENT = "_"
"""The event itself, for keys that are not identifiers: `_['my-key']`."""
_FALSE = "('', 'false', '0', '[]', '{}')"
_BLANKS = " \t\r\n"
_OPERATORS = {"eq": "=", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
Path = tuple[str, ...]
FieldSql = Callable[[Path], str]


def date_sql(moment: str, pattern: str) -> str:
    """A moment written by a pattern such as `%Y_%m`; ValueError for a directive that is not known."""
    parts = []
    for directive, plain in re.findall(r"%(.?)|([^%]+)", pattern, re.DOTALL):
        if plain or directive == "%":
            parts.append(literal(plain or directive))
        elif directive in DIRECTIVES:
            parts.append(DIRECTIVES[directive].format(f"({moment})"))
        else:
            known = ", ".join(f"%{name}" for name in DIRECTIVES)
            raise ValueError(f"`%{directive}` is not known to `date`; known are {known}.")
    return f"concat({', '.join(parts)})" if parts else "''"


class TemplateRefused(HeadwaterError):
    """A template that cannot be compiled: `line` and `column` count from 1, `reason` says why."""

    def __init__(self, template: str, reason: str, line: int, column: int) -> None:
        super().__init__(
            f"table_name_template, line {line}, column {column}: {reason}",
            hint=f"A template may have fields, text, if/else, ~ and the filters {', '.join(FILTERS)}.",
        )
        self.template = template
        self.reason = reason
        self.line = line
        self.column = column


class Template:
    """A valid template. `paths` are the fields that it reads."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.paths: list[Path] = []
        try:
            self._tree = Environment().parse(text)  # noqa: S701 - it is never rendered
        except TemplateSyntaxError as error:
            reason = (error.message or "it is not a template").rstrip(".") + "."
            raise TemplateRefused(text, reason, error.lineno, _end(text, error.lineno)) from None
        _Compiler(text, self._note).template(self._tree)  # refuses now what it would refuse later

    def _note(self, path: Path) -> str:
        if path not in self.paths:
            self.paths.append(path)
        return "NULL"

    @property
    def constant(self) -> str | None:
        """The one table name that it always gives, if it has no code in it."""
        parts = [node for output in self._tree.body for node in getattr(output, "nodes", [output])]
        if all(isinstance(part, nodes.TemplateData) for part in parts):
            return "".join(part.data for part in parts).strip(_BLANKS)
        return None

    def sql(self, field: FieldSql) -> tuple[str, str]:
        """The name, empty for none, and the reason why there is none, NULL if there is one.

        `field` gives the SQL of a field as text, NULL where the event does not have it.
        """
        compiler = _Compiler(self.text, field)
        name = compiler.template(self._tree)
        failures = [f"WHEN {condition} THEN {reason}" for condition, reason in compiler.failures]
        reason = f"CASE {' '.join(failures)} END" if failures else "cast(NULL AS string)"
        return f"trim(BOTH {literal(_BLANKS)} FROM {name})", reason


class _Compiler:
    """Jinja's tree to SQL. Every expression is text or NULL; conditions are booleans that are never NULL."""

    def __init__(self, text: str, field: FieldSql) -> None:
        self._text = text
        self._field = field
        self._guards: list[str] = []
        self.failures: list[tuple[str, str]] = []

    def template(self, tree: nodes.Template) -> str:
        return self.body(tree.body)

    def body(self, parts: list[nodes.Node]) -> str:
        return self.joined(piece for part in parts for piece in self.statement(part))

    @staticmethod
    def joined(pieces: Iterable[str]) -> str:
        """Concatenated; what is missing is empty."""
        present = [f"coalesce({piece}, '')" for piece in pieces]
        return f"concat({', '.join(present)})" if present else "''"

    def statement(self, node: nodes.Node) -> Iterator[str]:
        if isinstance(node, nodes.Output):
            for part in node.nodes:
                yield self.expression(part)
        elif isinstance(node, nodes.If):
            yield self.choice(node)
        else:
            raise self.refusal(node, f"`{type(node).__name__.lower()}` is not possible here.")

    def choice(self, node: nodes.If) -> str:
        cases = []
        guards = 0
        for branch in (node, *node.elif_):
            test = self.condition(branch.test)
            self._guards.append(test)
            cases.append(f"WHEN {test} THEN {self.body(branch.body)}")
            self._guards.pop()
            self._guards.append(f"NOT ({test})")
            guards += 1
        otherwise = self.body(node.else_)
        del self._guards[-guards:]
        return f"CASE {' '.join(cases)} ELSE {otherwise} END"

    def expression(self, node: nodes.Node) -> str:
        match node:
            case nodes.TemplateData(data=text):
                return literal(text)
            case nodes.Const(value=value):
                return self.constant(value)
            case nodes.Name() | nodes.Getattr() | nodes.Getitem():
                return self._field(self.path(node))
            case nodes.Filter():
                return self.filter(node)
            case nodes.Concat(nodes=parts):
                return self.joined(self.expression(part) for part in parts)
            case nodes.Add(left=left, right=right):
                return f"concat({self.expression(left)}, {self.expression(right)})"
            case nodes.CondExpr(test=test, expr1=yes, expr2=no):
                condition = self.condition(test)
                chosen = self._within(condition, lambda: self.expression(yes))
                other = self._within(f"NOT ({condition})", lambda: self.expression(no)) if no else "NULL"
                return f"if({condition}, {chosen}, {other})"
            case nodes.Or(left=left, right=right):
                return f"if({self.condition(left)}, {self.expression(left)}, {self.expression(right)})"
            case nodes.And(left=left, right=right):
                return f"if({self.condition(left)}, {self.expression(right)}, {self.expression(left)})"
            case nodes.Compare() | nodes.Not() | nodes.Test():
                return f"if({self.condition(node)}, 'True', 'False')"
        raise self.refusal(node, f"`{type(node).__name__.lower()}` is not possible here.")

    def condition(self, node: nodes.Node) -> str:
        match node:
            case nodes.Compare(expr=left, ops=[operand]):
                return self.comparison(node, left, operand)
            case nodes.And(left=left, right=right):
                return f"({self.condition(left)} AND {self.condition(right)})"
            case nodes.Or(left=left, right=right):
                return f"({self.condition(left)} OR {self.condition(right)})"
            case nodes.Not(node=inner):
                return f"(NOT {self.condition(inner)})"
            case nodes.Test(node=inner, name=name):
                if name not in TESTS:
                    raise self.refusal(
                        node, f"there is no test `{name}`; known are {', '.join(TESTS)}.", name
                    )
                return f"({self.expression(inner)} IS {'NOT ' if name == 'defined' else ''}NULL)"
            case nodes.Const(value=bool() as value):
                return "true" if value else "false"
        sql = self.expression(node)
        return f"(coalesce({sql}, '') NOT IN {_FALSE})"

    def comparison(self, node: nodes.Compare, left: nodes.Node, operand: nodes.Operand) -> str:
        right = operand.expr
        if operand.op in ("in", "notin"):
            negated = "NOT " if operand.op == "notin" else ""
            if isinstance(right, nodes.List | nodes.Tuple):
                items = ", ".join(self.expression(item) for item in right.items)
                found = f"{self.expression(left)} IN ({items})" if items else "false"
            else:
                found = f"contains({self.expression(right)}, {self.expression(left)})"
            return f"({negated}coalesce({found}, false))"
        operator = _OPERATORS[operand.op]
        sides = [self.expression(left), self.expression(right)]
        if any(isinstance(side, nodes.Const) and _is_number(side.value) for side in (left, right)):
            return self._number_comparison(operand.op, operator, *sides)
        if operand.op == "ne":  # what is missing differs from everything
            return f"(NOT coalesce({sides[0]} = {sides[1]}, false))"
        return f"coalesce({sides[0]} {operator} {sides[1]}, false)"

    @staticmethod
    def _number_comparison(op: str, operator: str, left: str, right: str) -> str:
        """The comparison of numbers: of their digits where a decimal has them all, else as doubles."""
        doubles = [f"if({side} RLIKE '{NUMBER}', try_cast({side} AS double), NULL)" for side in (left, right)]
        decimals = [f"try_cast({side} AS decimal(38,18))" for side in (left, right)]
        is_exact = " AND ".join(f"coalesce({side} RLIKE '{DECIMAL}', false)" for side in (left, right))
        symbol = "=" if op == "ne" else operator
        found = f"if({is_exact}, {f' {symbol} '.join(decimals)}, {f' {symbol} '.join(doubles)})"
        return f"({'NOT ' if op == 'ne' else ''}coalesce({found}, false))"

    def filter(self, node: nodes.Filter) -> str:
        if node.node is None or node.name not in FILTERS:
            raise self.refusal(
                node, f"there is no filter `{node.name}`; known are {', '.join(FILTERS)}.", node.name
            )
        if node.dyn_args or node.dyn_kwargs:
            raise self.refusal(node, f"the filter `{node.name}` takes no `*` arguments.", node.name)
        sql = self.expression(node.node)
        arguments = [*node.args, *(pair.value for pair in node.kwargs)]
        match node.name:
            case "string":
                return sql
            case "lower" | "upper" | "trim":
                return f"{node.name}({sql})"
            case "title":
                return f"initcap({sql})"
            case "capitalize":
                return f"concat(upper(left({sql}, 1)), lower(substring({sql}, 2)))"
            case "default" | "d":
                value = self.expression(arguments[0]) if arguments else "''"
                if len(arguments) > 1 and self.condition(arguments[1]) == "true":
                    return f"if({self.condition(node.node)}, {sql}, {value})"
                return f"coalesce({sql}, {value})"
            case "replace":
                if len(arguments) != 2:
                    raise self.refusal(node, "`replace` needs two arguments, old and new text.", node.name)
                return f"replace({sql}, {self.expression(arguments[0])}, {self.expression(arguments[1])})"
        return self.date(node, sql, arguments)

    def date(self, node: nodes.Filter, sql: str, arguments: list[Any]) -> str:
        pattern = (
            arguments[0].value if len(arguments) == 1 and isinstance(arguments[0], nodes.Const) else None
        )
        if not isinstance(pattern, str):
            raise self.refusal(node, "`date` needs a pattern as text, such as '%Y_%m'.", node.name)
        moment = f"CASE WHEN {sql} RLIKE '{MOMENT}' THEN try_cast({sql} AS timestamp) END"
        try:
            written = date_sql(moment, pattern)
        except ValueError as error:
            raise self.refusal(node, f"{error}", pattern) from None
        got = f"coalesce(concat('\"', {sql}, '\"'), 'nothing')"
        reason = f"concat('the filter `date` got ', {got}, ', which is not a time')"
        condition = " AND ".join([*self._guards, f"({moment}) IS NULL"])
        self.failures.append((condition, reason))
        return written

    def path(self, node: nodes.Node) -> Path:
        match node:
            case nodes.Name(name=name):
                return () if name == EVENT else (name,)
            case nodes.Getattr(node=parent, attr=name):
                return (*self.path(parent), name)
            case nodes.Getitem(node=parent, arg=nodes.Const(value=str() as name)):
                return (*self.path(parent), name)
        raise self.refusal(node, "only fields can be accessed, by name.")

    def constant(self, value: Any) -> str:
        if value is None:
            return "cast(NULL AS string)"
        return literal(str(value))

    def refusal(self, node: nodes.Node, reason: str, mark: str = "") -> TemplateRefused:
        lines = self._text.splitlines() or [""]
        line = lines[min(node.lineno, len(lines)) - 1]
        found = re.search(rf"(?<!\w){re.escape(mark)}(?!\w)", line) if mark else re.search(r"{[{%]", line)
        return TemplateRefused(self._text, reason, node.lineno, found.start() + 1 if found else 1)

    def _within(self, guard: str, compile: Callable[[], str]) -> str:
        self._guards.append(guard)
        try:
            return compile()
        finally:
            self._guards.pop()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _end(text: str, line: int) -> int:
    lines = text.splitlines()
    return len(lines[line - 1]) if 0 < line <= len(lines) else 1
