"""Finds the violations of a refused event, with path, reason and rule.

The compiled schema accepts or refuses in microseconds. Its list of errors is unbounded and copies the
offending value into each error, so that ten megabytes of nested errors cost seconds and gigabytes. This walk
stops after `LIMIT` violations, skips parts that the compiled schema accepts, and copies nothing (G8, G12).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec
import orjson

LIMIT = 20  # violations in an answer, for errors and for warnings; the last one says so when there were more
ECHO = 100  # characters of a value or key of the event that a reason or path repeats
CHUNK = 250  # items of a long array or object that are validated together
PATH = 500  # characters of a path; a longer one is cut and ends in an ellipsis

Schema = dict[str, Any]
# The path to a value, last step first, so that no list is copied at each step.
PathSteps = tuple["PathSteps", str | int] | tuple[()]
Node = tuple[Schema, object, PathSteps]

_EXPECTED = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "an array",
    "object": "an object",
    "uuid": "a UUID with dashes, such as 01890a5d-ac96-774b-bcce-b302099a8057",
    "uri": "an absolute URI, such as https://example.com/producer",
    "date-time": "a date and time with offset, such as 2024-05-01T10:00:00Z",
}
_FORMATS = {
    name: jsonschema_rs.validator_for({"format": name}, validate_formats=True)
    for name in ("uuid", "uri", "date-time")
}
_DELETED: Schema = {"properties": {"_deleted": {"const": True}}, "required": ["_deleted"]}


class Violation(msgspec.Struct, frozen=True):
    """One broken rule. `path` is a JSON pointer to a value that is in the event; "" is the whole event."""

    path: str
    reason: str
    rule: str


# For a value that the compiled schema refuses although the walk finds nothing.
_UNNAMED = Violation("", "this does not fit the schema", "schema")


class ViolationFinder:
    """Names the violations of a value against one definition of a schema. Thread-safe."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self._definitions = definitions
        self._tolerant_definitions = {name: _tolerant(schema) for name, schema in definitions.items()}
        # compiled on first use: most facets are never wrong
        self._compiled: dict[tuple[str, bool], jsonschema_rs.Validator] = {}

    def compiled(self, name: str, *, tolerant: bool = False) -> jsonschema_rs.Validator:
        """Return the compiled definition, formats asserted; `tolerant` accepts values with warnings only."""
        return self._compile(name, {"$ref": f"#/$defs/{name}"}, tolerant)

    def _compile(self, name: str, schema: Schema, tolerant: bool) -> jsonschema_rs.Validator:
        validator = self._compiled.get((name, tolerant))
        if validator is None:
            schema = _tolerant(schema) if tolerant else schema
            definitions = self._tolerant_definitions if tolerant else self._definitions
            validator = jsonschema_rs.validator_for({"$defs": definitions, **schema}, validate_formats=True)
            self._compiled[name, tolerant] = validator
        return validator

    def inspect(self, name: str, value: object) -> tuple[list[Violation], list[Violation]]:
        """Return the errors and the warnings of a value; both are empty only if the definition accepts it.

        The walk ends soon after `LIMIT` errors; `first_violations` says so. It keeps an explicit stack,
        since an event may be nested deeper than Python recurses.
        """
        errors: list[Violation] = []
        warnings: list[Violation] = []
        if self.compiled(name).is_valid(value):
            return errors, warnings
        only_warnings = self.compiled(name, tolerant=True).is_valid(value)
        pending: list[Iterator[Node]] = [iter([(self._definitions[name], value, ())])]
        while pending and len(errors) <= LIMIT and not (only_warnings and len(warnings) > LIMIT):
            node = next(pending[-1], None)
            if node is None:
                pending.pop()
                continue
            schema, value, steps = node
            if "$ref" in schema:
                name = schema["$ref"].rpartition("/")[2]
                if self.compiled(name, tolerant=len(warnings) > LIMIT).is_valid(value):
                    continue
                schema = self._definitions[name]
            if rule := _broken_by(schema, value):
                found = warnings if rule == "format:uri" else errors
                found.append(Violation(pointer(steps), self._reason(rule, schema, value), rule))
                continue
            if isinstance(value, dict):
                is_deleted = "_producer" in schema.get("properties", ()) and value.get("_deleted") is True
                found = warnings if is_deleted else errors
                found.extend(self._missing(schema, value, steps))
                errors.extend(_unpaired(schema, value, steps))
                errors.extend(_unknown(schema, value, steps))
            if isinstance(value, dict | list):
                pending.append(self._children(schema, value, steps, warnings))
        if not errors and not (only_warnings and warnings):
            errors.append(_UNNAMED)
        return errors, warnings

    def _children(
        self, schema: Schema, value: Any, steps: PathSteps, warnings: list[Violation]
    ) -> Iterator[Node]:
        if isinstance(value, list):
            for index, item in self._failing_chunks(schema["items"], enumerate(value), len(value), warnings):
                yield schema["items"], item, (steps, index)
            return
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key in known:
            if key in value:
                yield known[key], value[key], (steps, key)
        if others:
            rest = ((key, item) for key, item in value.items() if key not in known)
            for key, item in self._failing_chunks(others, rest, len(value), warnings):
                yield others, item, (steps, key)
        for choice in schema.get("allOf", ()):  # alternatives by `type`, as the derived schema has them
            if value.get("type") == choice["if"]["properties"]["type"]["const"]:
                yield choice["then"], value, steps

    def _failing_chunks(
        self, schema: Schema, entries: Iterator[tuple[Any, object]], count: int, warnings: list[Violation]
    ) -> Iterator[tuple[Any, object]]:
        """Yield the entries of those chunks that the compiled schema refuses."""
        if count <= CHUNK:
            yield from entries
            return
        name = f"items {orjson.dumps(schema).decode()}"
        while chunk := list(islice(entries, CHUNK)):
            validator = self._compile(name, {"items": schema}, len(warnings) > LIMIT)
            if not validator.is_valid([item for _, item in chunk]):
                yield from chunk

    def _reason(self, rule: str, schema: Schema, value: object) -> str:
        least = f"at least {schema['minimum']}" if rule == "minimum" else ""
        advice = "; leave the field out if there is no value" if value is None else ""
        return f"expected {least or self._expected(schema)}, got {_shown(value)}{advice}"

    def _missing(self, schema: Schema, value: dict[str, object], steps: PathSteps) -> Iterator[Violation]:
        for key in schema.get("required", ()):
            if key not in value:
                expected = self._expected(schema["properties"][key])
                yield Violation(pointer(steps), f"`{key}` is missing; expected {expected}", "required")

    def _expected(self, schema: Schema) -> str:
        if "$ref" in schema:
            schema = self._definitions[schema["$ref"].rpartition("/")[2]]
        if "enum" in schema:
            one_of = "one of " if len(schema["enum"]) > 1 else ""
            return one_of + ", ".join(f'"{choice}"' for choice in schema["enum"])
        if "const" in schema:
            return f'"{schema["const"]}"'
        return _EXPECTED[schema["format"] if "format" in schema else schema["type"]]


def first_violations(found: list[Violation]) -> tuple[Violation, ...]:
    """Return at most `LIMIT` violations; if there are more, the last one says so."""
    if len(found) <= LIMIT:
        return tuple(found)
    more = Violation("", f"there are more violations; only the first {LIMIT - 1} are shown", "limit")
    return (*found[: LIMIT - 1], more)


def pointer(steps: PathSteps) -> str:
    """Return the JSON pointer of a path; long keys are cut."""
    names: list[str] = []
    while steps:
        steps, step = steps
        names.append(_cut(str(step)[: ECHO + 1], ECHO).replace("~", "~0").replace("/", "~1"))
    return _cut("".join(f"/{step}" for step in reversed(names)), PATH)


def _broken_by(schema: Schema, value: object) -> str:
    """Return the rule that the value itself breaks, regardless of its contents; "" if none."""
    if "type" in schema and not _is_a(schema["type"], value):
        return "type"
    if "enum" in schema and value not in schema["enum"]:
        return "enum"
    if "const" in schema and value != schema["const"]:
        return "const"
    if "format" in schema and not _FORMATS[schema["format"]].is_valid(value):
        return f"format:{schema['format']}"
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        return "minimum"
    return ""


def _unpaired(schema: Schema, value: dict[str, object], steps: PathSteps) -> Iterator[Violation]:
    for key, others in schema.get("dependentRequired", {}).items():
        for other in others:
            if key in value and other not in value:
                reason = f"`{other}` is missing; it has to be there because `{key}` is"
                yield Violation(pointer(steps), reason, "dependentRequired")


def _unknown(schema: Schema, value: dict[str, object], steps: PathSteps) -> Iterator[Violation]:
    if schema.get("additionalProperties") is False:
        allowed = ", ".join(f"`{key}`" for key in schema["properties"])
        unknown = [key for key in value if key not in schema["properties"]]
        for key in unknown[: LIMIT + 1]:
            reason = f"unknown key; allowed here: {allowed}"
            yield Violation(pointer((steps, key)), reason, "additionalProperties")


def _is_a(kind: str, value: object) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            is_whole = isinstance(value, float) and value.is_integer()
            return is_whole or (isinstance(value, int) and not isinstance(value, bool))
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        value = _cut(value[: ECHO + 1], ECHO - 2)  # two characters are for the quotes
    return _cut(orjson.dumps(value).decode(), ECHO)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _tolerant(schema: Any) -> Any:
    """Return the schema without the rules that cause warnings: uri formats, fields of deleted facets."""
    if isinstance(schema, list):
        return [_tolerant(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _tolerant(value) for key, value in schema.items()}
    if inner.get("format") == "uri":
        del inner["format"]
    if "_producer" in inner.get("properties", ()) and "required" in inner:
        inner |= {"if": _DELETED, "else": {"required": inner.pop("required")}}
    return inner
