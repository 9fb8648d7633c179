"""A plan by py4j calls alone, for where the agent cannot be compiled: commands and leaves, no expressions.

Each call costs a tenth of a millisecond, so only what names datasets is asked for: the commands at the top,
the columns of their queries, the leaves. The document is java/Walk.java's with `"columns":false`; fields are
those of java/Fields.java, so that the same visitors read both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

__all__ = ["plain_plan", "sequence"]

MOST_LEAVES = 200
MOST_ITEMS = 200
MOST_CLASSES = 5000
DEEPEST = 3
WITHOUT_COLUMNS = "seen without the compiled agent: no columns, no subqueries of expressions in commands"
MASK = "*********(redacted)"

_SECRET = re.compile(r"secret|password|passwd|pwd|token|credential|passphrase|jaas|key|signature", re.I)
_IN_URL = re.compile(r"//[^/@\s]*@")
_IN_PARAMETERS = re.compile(
    r"((?:secret|password|passwd|pwd|token|credential|key|sig|signature)=)[^&;,)\s]+", re.I
)
_CONTAINER = re.compile(r"(abfss?|wasbs?):", re.I)  # there, a container stands before the @
_BELOW = {"query", "child", "children", "left", "right", "plan", "cteDefs", "isAnalyzed"}
Document = dict[str, Any]


def sequence(found: Any) -> Iterator[Any]:
    """Elements of a Scala or Java collection; of anything else none."""
    try:
        all_of_it = found.iterator()
        while all_of_it.hasNext():
            yield all_of_it.next()
    except Exception:  # py4j has one class of errors for everything that Java throws
        return


def plain_plan(plan: Any) -> Document:
    """The document of a JVM plan; raises what py4j raises."""
    nodes: list[Document] = []
    root = _Walk(nodes).add(plan)
    return {"v": 1, "root": root, "nodes": nodes, "columns": False, "cut": WITHOUT_COLUMNS}


class _Walk:
    def __init__(self, nodes: list[Document]) -> None:
        self._nodes = nodes

    def add(self, plan: Any, depth: int = 0) -> int:
        """A node with what is below it; its number."""
        cls = str(plan.getClass().getName())
        kids = list(sequence(plan.children()))
        inner = [each for each in sequence(plan.innerChildren()) if _is_plan(each)]
        if not kids and not inner:
            return self._node(cls, plan, columns=True, fields=True)
        is_command = depth <= DEEPEST and (_is_command(cls) or (depth == 0 and cls.endswith(".Union")))
        if is_command:
            below = [self.add(kid, depth + 1) for kid in kids]
            inside = [self.add(each, depth + 1) for each in inner]
            return self._node(cls, plan, kids=below, inner=inside, columns=False, fields=True)
        leaves = [*sequence(plan.collectLeaves())]
        for each in sequence(plan.subqueriesAll()):
            leaves += sequence(each.collectLeaves())
        numbers = [
            self._node(str(leaf.getClass().getName()), leaf, columns=True, fields=True)
            for leaf in leaves[:MOST_LEAVES]
        ]
        return self._node(cls, plan, kids=numbers, columns=True, fields=False)

    def _node(self, cls: str, plan: Any, *, columns: bool, fields: bool, **below: list[int]) -> int:
        number = len(self._nodes)
        node: Document = {"id": number, "cls": cls, **below}
        self._nodes.append(node)  # kids are there already: post-order
        if columns:
            node["out"] = [
                [int(one.exprId().id()), str(one.name()), msgspec.json.decode(str(one.dataType().json()))]
                for one in sequence(plan.output())
            ]
        if fields:
            node["f"] = _fields(plan)
        return number


def _is_command(cls: str) -> bool:
    simple = cls.rpartition(".")[2]
    return "Command" in simple or simple.startswith(
        (
            "Append",
            "Overwrite",
            "Replace",
            "Create",
            "Write",
            "Merge",
            "Update",
            "Delete",
            "Insert",
            "Drop",
            "Cache",
        )
    )


def _is_plan(found: Any) -> bool:
    return "LogicalPlan" in str(found.getClass().getSuperclass()) or ".plans.logical." in str(
        found.getClass()
    )


def _fields(holder: Any, depth: int = 0) -> Document:
    """The parameters of a case class, by name."""
    found: Document = {}
    for place in range(int(holder.productArity())):
        with suppress(Exception):  # one field less
            name, each = _name(holder, place), holder.productElement(place)
            if name in _BELOW and not _is_name(each):
                continue  # a node of its own
            value = _value(each, depth)
            if value is not None:
                found[name] = value
    return found


def _is_name(found: Any) -> bool:
    """A resolved name is as small as a field, and the command is of no use without it."""
    return str(found.getClass().getSimpleName()).startswith("Resolved")


def _name(holder: Any, place: int) -> str:
    try:
        return str(holder.productElementName(place))
    except Exception:  # Scala 2.12: the parameters are the first final fields
        final = 0x10
        named = [
            each.getName() for each in holder.getClass().getDeclaredFields() if each.getModifiers() & final
        ]
        return str(named[place])


def _value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return masked(value)
    cls = str(value.getClass().getName())
    if cls in ("scala.Some", "scala.None$"):
        return None if cls == "scala.None$" else _value(value.get(), depth)
    simple = cls.rpartition(".")[2]
    for ending, rule in _RULES.items():
        if simple.endswith(ending):
            return rule(value, depth)
    if _has(value, "isDefinedAt") and _has(value, "keySet"):
        return _map(value)
    if _has(value, "iterator"):
        told = [_value(each, depth + 1) for _, each in zip(range(MOST_ITEMS), sequence(value), strict=False)]
        return [each for each in told if each is not None]
    if _has(value, "productArity") and depth < DEEPEST:
        if ".plans.logical." in cls or ".datasources." in cls or _has(value, "collectLeaves"):
            return _nested(value, cls, depth)
        return {"cls": cls, "f": _fields(value, depth + 1)}
    if _is_relation(value):
        return {"@": "relation", "cls": cls}
    if cls.startswith("org.apache.spark.sql") and _has(value, "capabilities"):
        return _table(value, cls)
    return {"cls": cls, "name": str(value.shortName())} if _has(value, "shortName") else {"cls": cls}


def _nested(value: Any, cls: str, depth: int) -> Any:
    if cls.endswith(".HadoopFsRelation"):
        return _files(value, depth)
    if cls.endswith(".JDBCRelation"):
        return _jdbc(value.jdbcOptions())
    if not _has(value, "output"):
        return {"cls": cls, "f": _fields(value, depth + 1)}
    columns = [
        [int(one.exprId().id()), str(one.name()), msgspec.json.decode(str(one.dataType().json()))]
        for one in sequence(value.output())
    ]
    return {"@": "node", "cls": cls, "f": _fields(value, depth + 1), "out": columns}


def _files(relation: Any, depth: int) -> Document:
    paths = [masked(str(path.toString())) for path in sequence(relation.location().rootPaths())]
    kind = relation.fileFormat()
    name = str(kind.shortName()) if _has(kind, "shortName") else str(kind.getClass().getSimpleName())
    options = _map(relation.options())
    return {"@": "files", "paths": paths[:MOST_ITEMS], "format": name, "options": options}


def _jdbc(options: Any) -> Document:
    return {"@": "jdbc", "url": masked(str(options.url())), "options": _map(options.parameters())}


def _catalog_table(table: Any, depth: int) -> Document:
    storage = table.storage()
    found: Document = {"@": "catalogTable", "id": _identifier(table.identifier(), 0)}
    parts: dict[str, Callable[[], Any]] = {
        "type": lambda: str(table.tableType().name()),
        "provider": lambda: _value(table.provider(), depth),
        "location": lambda: _value(storage.locationUri(), depth),
        "options": lambda: _map(storage.properties()),
        "owner": lambda: str(table.owner()),
        "comment": lambda: _value(table.comment(), depth),
        "schema": lambda: msgspec.json.decode(str(table.schema().json())),
    }
    for name, part in parts.items():
        with suppress(Exception):  # of another release
            value = part()
            if value is not None:
                found[name] = value
    return found


def _identifier(name: Any, depth: int) -> Document:
    found: Document = {"@": "id", "table": str(name.table())}
    for part in ("database", "catalog"):
        if _has(name, part) and (value := _value(getattr(name, part)(), depth)):
            found[part] = value
    return found


def _named(name: Any, depth: int) -> Document:
    return {"@": "name", "namespace": [str(part) for part in name.namespace()], "name": str(name.name())}


def _table(table: Any, cls: str) -> Document:
    found: Document = {"@": "table", "cls": cls, "name": str(table.name())}
    if _has(table, "v1Table"):
        return _catalog_table(table.v1Table(), 0)
    if _has(table, "formatName"):
        paths = [str(path) for path in sequence(table.paths())]
        found |= {"format": str(table.formatName()), "paths": paths}
    if _has(table, "jdbcOptions"):
        found["jdbc"] = _jdbc(table.jdbcOptions())
    return found


def _map(found: Any) -> dict[str, str]:
    """Options, secrets masked (G12)."""
    told: dict[str, str] = {}
    pairs = (
        sequence(found)
        if _has(found, "keySet") and not _has(found, "entrySet")
        else sequence(found.entrySet())
    )
    for _, pair in zip(range(MOST_ITEMS), pairs, strict=False):
        is_scala = _has(pair, "_1")
        key = str(pair._1() if is_scala else pair.getKey())
        value = str(pair._2() if is_scala else pair.getValue())
        told[key] = MASK if _SECRET.search(key) else masked(value)
    return told


def masked(text: str) -> str:
    """A text that may hold a URL, without the secrets in it."""
    if not _CONTAINER.match(text):
        text = _IN_URL.sub("//", text)
    return _IN_PARAMETERS.sub(rf"\1{MASK}", text)


def _text(value: Any, depth: int) -> str:
    return masked(str(value.toString()))


def _is_relation(value: Any) -> bool:
    return _has(value, "sizeInBytes") and _has(value, "sqlContext")


def _has(value: Any, method: str) -> bool:
    cls = str(value.getClass().getName())
    if cls not in _members:
        if len(_members) > MOST_CLASSES:
            _members.clear()
        _members[cls] = frozenset(dir(value))  # one call of py4j for all of them
    return method in _members[cls]


_members: dict[str, frozenset[str]] = {}


_RULES: dict[str, Callable[[Any, int], Any]] = {
    "Path": _text,
    "URI": _text,
    "SaveMode": _text,
    "CatalogTable": _catalog_table,
    "TableIdentifier": _identifier,
    "IdentifierImpl": _named,
    "HadoopFsRelation": _files,
    "StructType": lambda value, depth: msgspec.json.decode(str(value.json())),
}
