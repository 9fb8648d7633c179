"""Validates events against the OpenLineage specification, and names the violations of a refused event.

Covers run, job and dataset events and every standard facet by container and key. The schema beside this file
is derived (scripts/derive_openlineage_schema.py); docs/openlineage.md documents the rules.

The compiled schema accepts or refuses in microseconds. Its list of errors is unbounded and copies the
offending value into each error, so that ten megabytes of nested errors cost seconds and gigabytes. So
`ViolationFinder` walks the event itself: it stops after `LIMIT` violations, skips parts that the compiled
schema accepts, and keeps no copies. It validates nested parts again and again, so a `Budget` limits its work
for a request (G8, G12).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec
import orjson

SCHEMA = "openlineage_schema.json"
LIMIT = 20  # violations in an answer, for errors and for warnings; the last one says so when there were more
ECHO = 100  # characters of a value or key of the event that a reason or path repeats
CHUNK = 250  # items of a long array or object that are validated together
PATH = 500  # characters of a path; a longer one is cut and ends in an ellipsis
BUDGET_BYTES = 6 * 1024 * 1024  # of parts that the walk validates for one request: 60 ms of CPU time
NODE_BYTES = 256  # what a step of the walk costs, in the same unit
DEEP_BYTES = 16 * 1024  # of a part that is nested too deeply for its size to be measured

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
_NOT_SOUGHT = Violation(
    "", "this does not fit the schema; the request is too large for each violation to be located", "limit"
)


class Budget:
    """The work that finding violations may still cost, in bytes. The verdict does not depend on it."""

    __slots__ = ("left",)

    def __init__(self, size: int = BUDGET_BYTES) -> None:
        self.left = size


_DEFINITIONS = {"run": "RunEvent", "job": "JobEvent", "dataset": "DatasetEvent"}


class Validation(msgspec.Struct, frozen=True):
    """The result for one event. `kind` is run, job or dataset, or "" if the event does not show it."""

    kind: str
    errors: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the event may be accepted; warnings do not count."""
        return not self.errors

    @property
    def summary(self) -> str:
        """One sentence: the first error, and the number of others."""
        first = self.errors[0]
        more = len(self.errors) - 1
        others = f" (and {more} more)" if more else ""
        return f"Not compliant with OpenLineage: {first.path or 'event'}: {first.reason}{others}."


_VALID = {kind: Validation(kind) for kind in _DEFINITIONS}

_NOT_AN_OBJECT = Violation("", "expected one OpenLineage event, a JSON object", "type")
_NO_KIND = Violation(
    "",
    "neither `run` and `job` (a run event) nor `job` (a job event) nor `dataset` (a dataset event) is there",
    "kind",
)
_TWO_KINDS = Violation(
    "",
    "`job` and `dataset` without `run`: this may be a job event or a dataset event; "
    "leave one of them out, or add `run` for a run event",
    "kind",
)


class Validator:
    """Checks events against the OpenLineage schema 2-0-2 and the standard facets. Thread-safe.

    With `strict` it agrees with the official schemas, formats asserted. Without, a value that is not a URI
    and the fields that a facet with `"_deleted": true` lacks are warnings; everything else stays an error.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._finder = ViolationFinder(derived_schema()["$defs"])
        self._accepted_by = {
            kind: self._finder.compiled(name).is_valid for kind, name in _DEFINITIONS.items()
        }

    def check(self, event: object, budget: Budget | None = None) -> Validation:
        """Validate one decoded JSON value of any shape. Never raises; result and work are bounded (G12).

        Events of one request share a budget. When it is spent, further violations are not named.
        """
        if not isinstance(event, dict):
            return Validation("", (_NOT_AN_OBJECT,))
        # The keys decide the kind, so that a violation can name a path; trying all three kinds could not.
        if "job" in event:
            if "run" in event:
                kind = "run"
            elif "dataset" in event:
                return self._check_two_kinds(event, budget or Budget())
            else:
                kind = "job"
        elif "dataset" in event:
            kind = "dataset"
        elif "run" in event or "eventType" in event:
            kind = "run"
        else:
            return self._refuse_without_kind(event, budget or Budget())
        if self._accepted_by[kind](event):
            return _VALID[kind]
        return self._explain(kind, event, budget or Budget())

    def _explain(self, kind: str, event: dict[str, object], budget: Budget) -> Validation:
        errors, warnings = self._inspect(_DEFINITIONS[kind], event, budget)
        return Validation(kind, first_violations(errors), first_violations(warnings))

    def _inspect(
        self, name: str, event: dict[str, object], budget: Budget
    ) -> tuple[list[Violation], list[Violation]]:
        errors, warnings = self._finder.inspect(name, event, budget)
        return (errors + warnings, []) if self._strict else (errors, warnings)

    def _tolerates(self, kind: str, event: dict[str, object]) -> bool:
        """Return whether an event that the strict schema refuses has only warnings."""
        if self._strict:
            return False
        return self._finder.compiled(_DEFINITIONS[kind], tolerant=True).is_valid(event)

    def _check_two_kinds(self, event: dict[str, object], budget: Budget) -> Validation:
        """`job` and `dataset` without `run` is officially valid if it is exactly one of the two kinds."""
        kinds = ("job", "dataset")
        accepted = [kind for kind in kinds if self._accepted_by[kind](event)]
        if len(accepted) == 1:
            return _VALID[accepted[0]]
        if accepted:
            return Validation("", (_TWO_KINDS,))
        tolerated = [kind for kind in kinds if self._tolerates(kind, event)]
        if len(tolerated) == 1:
            return self._explain(tolerated[0], event, budget)
        # violations of fields that both kinds share, such as eventTime, are listed once
        found = dict.fromkeys(
            error for kind in kinds for error in self._inspect(_DEFINITIONS[kind], event, budget)[0]
        )
        return Validation("", first_violations([_TWO_KINDS, *found]))

    def _refuse_without_kind(self, event: dict[str, object], budget: Budget) -> Validation:
        errors, warnings = self._inspect("BaseEvent", event, budget)
        return Validation("", first_violations([_NO_KIND, *errors]), first_violations(warnings))


def derived_schema() -> dict[str, Any]:
    """Return the derived schema of all events and facets."""
    schema: dict[str, Any] = orjson.loads(files(__package__).joinpath(SCHEMA).read_bytes())
    return schema


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

    def inspect(
        self, name: str, value: object, budget: Budget | None = None
    ) -> tuple[list[Violation], list[Violation]]:
        """Return the errors and the warnings of a value; both are empty only if the definition accepts it.

        The walk ends soon after `LIMIT` errors, which `first_violations` says, or when the budget is spent.
        It keeps an explicit stack, since an event may be nested deeper than Python recurses.
        """
        budget = budget or Budget()
        errors: list[Violation] = []
        warnings: list[Violation] = []
        if self.compiled(name).is_valid(value):
            return errors, warnings
        only_warnings = self.compiled(name, tolerant=True).is_valid(value)
        pending: list[Iterator[Node]] = [iter([(self._definitions[name], value, ())])]
        while pending and len(errors) <= LIMIT and not (only_warnings and len(warnings) > LIMIT):
            budget.left -= NODE_BYTES
            if budget.left <= 0:
                (warnings if only_warnings else errors).append(_NOT_SOUGHT)
                break
            node = next(pending[-1], None)
            if node is None:
                pending.pop()
                continue
            schema, value, steps = node
            if "$ref" in schema:
                name = schema["$ref"].rpartition("/")[2]
                budget.left -= _size(value)
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
                pending.append(self._children(schema, value, steps, warnings, budget))
        if not errors and not (only_warnings and warnings):
            errors.append(_UNNAMED)
        return errors, warnings

    def _children(
        self, schema: Schema, value: Any, steps: PathSteps, warnings: list[Violation], budget: Budget
    ) -> Iterator[Node]:
        if isinstance(value, list):
            entries = enumerate(value)
            for index, item in self._failing_chunks(schema["items"], entries, len(value), warnings, budget):
                yield schema["items"], item, (steps, index)
            return
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key in known:
            if key in value:
                yield known[key], value[key], (steps, key)
        if others:
            rest = ((key, item) for key, item in value.items() if key not in known)
            for key, item in self._failing_chunks(others, rest, len(value), warnings, budget):
                yield others, item, (steps, key)
        for choice in schema.get("allOf", ()):  # alternatives by `type`, as the derived schema has them
            if value.get("type") == choice["if"]["properties"]["type"]["const"]:
                yield choice["then"], value, steps

    def _failing_chunks(
        self,
        schema: Schema,
        entries: Iterator[tuple[Any, object]],
        count: int,
        warnings: list[Violation],
        budget: Budget,
    ) -> Iterator[tuple[Any, object]]:
        """Yield the entries of those chunks that the compiled schema refuses, within the budget."""
        if count <= CHUNK:
            yield from entries
            return
        name = f"items {orjson.dumps(schema).decode()}"
        while budget.left > 0 and (chunk := list(islice(entries, CHUNK))):
            validator = self._compile(name, {"items": schema}, len(warnings) > LIMIT)
            items = [item for _, item in chunk]
            budget.left -= _size(items)
            if not validator.is_valid(items):
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


def _size(value: object) -> int:
    """Return about how many bytes of JSON a value is."""
    if not isinstance(value, dict | list):
        return len(value) if isinstance(value, str) else 8
    try:
        return len(msgspec.json.encode(value))
    except RecursionError:
        return DEEP_BYTES


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
