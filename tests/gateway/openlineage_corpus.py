"""A fixed corpus of OpenLineage events: complete examples of every kind and facet, and mutants of them.

Everything is made from the derived schema by rules written here, without asking a validator: each mutation
knows by its construction which rule it breaks, and where. No randomness; two runs make the same corpus.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import orjson

__all__ = ["BASE", "Mutation", "Seed", "definitions", "mutations", "replaced", "seeds"]

Json = Any
Steps = tuple[str | int, ...]

definitions: dict[str, dict[str, Json]] = orjson.loads(
    files("headwater.gateway").joinpath("openlineage_schema.json").read_bytes()
)["$defs"]

BASE = {"_producer": "https://example.com/producer", "_schemaURL": "https://example.com/facet#/$defs/Custom"}
KINDS = {"run": "RunEvent", "job": "JobEvent", "dataset": "DatasetEvent"}

GOOD: dict[str, tuple[Json, ...]] = {
    "string": ("text", "", "ünï😀"),
    "boolean": (False, True),
    "integer": (7, 0, -1, 1.0, 2**63),
    "number": (1.5, 0, -3, 1e300),
    "uuid": ("01890a5d-ac96-774b-bcce-b302099a8057", "01890A5D-AC96-774B-BCCE-B302099A8057"),
    "uri": ("https://example.com/x", "s3://bucket", "urn:a:b", "jdbc:postgresql://host:5432/db"),
    "date-time": (
        "2024-05-01T10:00:00Z",
        "2024-05-01T10:00:00.123456789+02:00",
        "2024-05-01t10:00:00z",
    ),
}
BAD: dict[str, tuple[str, ...]] = {
    "uuid": ("", "nope", "01890a5dac96774bbcceb302099a8057", "{01890a5d-ac96-774b-bcce-b302099a8057}"),
    "uri": ("", "file", "bigquery", "/path", "https://exa mple"),
    "date-time": ("", "2024-05-01T10:00:00", "2024-05-01 10:00:00Z", "2024-05-01", "2024-02-30T10:00:00Z"),
}
FITS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
OF_EACH_TYPE: tuple[Json, ...] = (None, "text", True, 1.5, [], {})


@dataclass(frozen=True)
class Seed:
    """A valid event, and the part of it that is to be mutated."""

    name: str
    kind: str
    event: dict[str, Json]
    steps: Steps
    schema: dict[str, Json]


@dataclass(frozen=True)
class Mutation:
    """A changed event. `rule` is the rule that it breaks at `path`; "" where it stays valid."""

    name: str
    kind: str
    event: dict[str, Json]
    path: str
    rule: str


def resolved(schema: dict[str, Json]) -> dict[str, Json]:
    """The definition behind a reference."""
    return definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def example(schema: dict[str, Json], turn: int = 0, inside: tuple[str, ...] = ()) -> Json:
    """A value with every field filled; `turn` picks the branch where the schema leaves a choice."""
    name = schema.get("$ref", "")
    schema = resolved(schema)
    if "allOf" in schema:
        branches = [choice["then"] for choice in schema["allOf"]]
        if name in inside:  # deep enough: choose a branch that ends
            branches = [branch for branch in branches if branch["$ref"] not in inside]
        return example(branches[turn % len(branches)], turn, (*inside, name))
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    if schema["type"] == "array":
        choices = len(resolved(schema["items"]).get("allOf", ()))
        return [example(schema["items"], item, (*inside, name)) for item in range(choices or 1)]
    if schema["type"] != "object":
        return GOOD[schema["format"] if "format" in schema else schema["type"]][0]
    if "properties" not in schema:
        inner = schema.get("additionalProperties")
        return {"key": example(inner, turn, (*inside, name)) if inner else [None, 1, "any"]}
    return {
        key: example(inner, turn, (*inside, name))
        for key, inner in schema["properties"].items()
        if name not in inside or key in schema.get("required", ()) or "$ref" not in inner.get("items", inner)
    }


def events() -> dict[str, dict[str, Json]]:
    """One plain event of each kind, without facets."""
    base = {key: example(inner) for key, inner in definitions["BaseEvent"]["properties"].items()}
    table = {"namespace": "s3://bucket", "name": "table"}
    job = {"namespace": "scheduler", "name": "daily"}
    flow = {"inputs": [table], "outputs": [table]}
    run = {"runId": GOOD["uuid"][0]}
    return {
        "run": {**base, "eventType": "START", "run": run, "job": job, **flow},
        "job": {**base, "job": job, **flow},
        "dataset": {**base, "dataset": table},
    }


PLACES: tuple[tuple[str, Steps, str], ...] = (
    ("run", ("run", "facets"), "RunFacets"),
    ("run", ("job", "facets"), "JobFacets"),
    ("job", ("job", "facets"), "JobFacets"),
    ("run", ("inputs", 0, "facets"), "DatasetFacets"),
    ("job", ("outputs", 0, "facets"), "DatasetFacets"),
    ("dataset", ("dataset", "facets"), "DatasetFacets"),
    ("run", ("inputs", 0, "inputFacets"), "InputDatasetFacets"),
    ("job", ("inputs", 0, "inputFacets"), "InputDatasetFacets"),
    ("run", ("outputs", 0, "outputFacets"), "OutputDatasetFacets"),
    ("job", ("outputs", 0, "outputFacets"), "OutputDatasetFacets"),
)


def seeds() -> Iterator[Seed]:
    """Every kind of event bare, and every facet, complete, at every place where it may stand."""
    plain = events()
    for kind, event in plain.items():
        yield Seed(f"{kind} event", kind, event, (), {"$ref": f"#/$defs/{KINDS[kind]}"})
    for kind, steps, container in PLACES:
        event = replaced(plain[kind], steps, {"custom": BASE})
        yield Seed(f"{kind}:{pointer(steps)}", kind, event, steps, {"$ref": f"#/$defs/{container}"})
        facets = definitions[container]["properties"] | {
            "custom": definitions[container]["additionalProperties"]
        }
        for key, schema in facets.items():
            seen: list[Json] = []
            for turn in range(4):
                facet = example(schema, turn)
                if facet not in seen:
                    seen.append(facet)
                    event = replaced(plain[kind], steps, {key: facet})
                    name = f"{kind}:{pointer((*steps, key))}:{turn}"
                    yield Seed(name, kind, event, (*steps, key), schema)


def mutations(seed: Seed) -> Iterator[Mutation]:
    """All single changes of the seed's part, each with what it has to lead to."""
    for label, steps, event, where, rule in _changes(seed):
        yield Mutation(f"{seed.name} {label} at {pointer(steps)}", seed.kind, event, pointer(where), rule)


Change = tuple[str, Steps, dict[str, Json], Steps, str]


def _changes(seed: Seed) -> Iterator[Change]:
    for steps, schema, value in _walk(seed.schema, found(seed.event, seed.steps), seed.steps):

        def put(label: str, new: Json, rule: str = "", at: Steps = (), steps: Steps = steps) -> Change:
            return label, steps, replaced(seed.event, steps, new), (*steps, *at), rule

        is_event = steps == ()
        if "enum" in schema:
            bad = [value.lower() if value.lower() != value else value.upper(), "", None, 1, [value]]
            yield from (put(f"enum {new!r}", new, "enum") for new in bad)
            # another tag would ask for other fields
            good = [schema["const"]] if "const" in schema else schema["enum"]
            yield from (put(f"enum {new!r}", new) for new in good)
            continue
        if not is_event:
            for new in OF_EACH_TYPE:
                # in Python True is an int, in JSON it is no number
                is_number = type(new) is not bool or schema["type"] == "boolean"
                if not (isinstance(new, FITS[schema["type"]]) and is_number):
                    yield put(f"type {new!r}", new, "type")
        if schema["type"] == "object":
            yield from _object_changes(seed, steps, schema, value)
        elif schema["type"] == "array":
            yield put("empty", [])
            yield put("twice", value + value)
            inner = resolved(schema["items"])
            yield put("null item", [*value, None], "type", (len(value),))
            if "required" in inner:
                yield put("empty item", [{}, *value], "required", (0,))
        elif "minimum" in schema:
            yield put("below", schema["minimum"] - 1, "minimum")
            yield put("least", schema["minimum"])
        else:
            text_format = schema.get("format", "")
            yield from (put(f"good {new!r}", new) for new in GOOD[text_format or schema["type"]])
            yield from (put(f"bad {new!r}", new, f"format:{text_format}") for new in BAD.get(text_format, ()))


def _object_changes(seed: Seed, steps: Steps, schema: dict[str, Json], value: Json) -> Iterator[Change]:
    def put(label: str, new: Json, rule: str = "", at: Steps = ()) -> Change:
        return label, steps, replaced(seed.event, steps, new), (*steps, *at), rule

    required, pairs = schema.get("required", ()), schema.get("dependentRequired", {})
    kind_keys = {"run", "job", "dataset"} if steps == () else set()
    for key in value:
        if key in kind_keys:
            continue
        rule = "required" if key in required else "dependentRequired" if key in pairs else ""
        yield put(f"without {key}", {other: item for other, item in value.items() if other != key}, rule)
    for first, seconds in pairs.items():
        both = {first, *seconds}
        yield put("without pair", {key: item for key, item in value.items() if key not in both})
    if steps:
        yield put("emptied", {}, "required" if required else "")
    inner = schema.get("additionalProperties")
    if inner is False:
        yield put("unknown", {**value, "unknown key": 1}, "additionalProperties", ("unknown key",))
    elif inner:
        yield put("other null", {**value, "a/b~c": None}, "type", ("a/b~c",))
    else:
        yield put("unknown", {**value, "unknown": None})


def _walk(schema: Json, value: Json, steps: Steps) -> Iterator[tuple[Steps, dict[str, Json], Json]]:
    """Each value in the tree with the schema that holds for it, a choice by `type` already made."""
    schema = resolved(schema)
    if "allOf" in schema:
        tag = value["type"]
        chosen = next(
            branch["then"] for branch in schema["allOf"] if branch["if"]["properties"]["type"]["const"] == tag
        )
        branch = resolved(chosen)
        tag_property = {"type": schema["properties"]["type"] | {"const": tag}}
        schema = branch | {"properties": branch["properties"] | tag_property}
    yield steps, schema, value
    if isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if inner:
                yield from _walk(inner, item, (*steps, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(schema["items"], item, (*steps, index))


def found(event: Json, steps: Steps) -> Json:
    """The value at the end of the steps."""
    for step in steps:
        event = event[step]
    return event


def replaced(event: Json, steps: Steps, new: Json) -> Json:
    """A copy of the event with another value at the end of the steps; the rest is shared."""
    if not steps:
        return new
    head, rest = steps[0], steps[1:]
    if isinstance(event, list):
        return [replaced(item, rest, new) if index == head else item for index, item in enumerate(event)]
    return {**event, head: replaced(event.get(head), rest, new)}


def pointer(steps: Steps) -> str:
    """The JSON pointer of the steps."""
    escaped = (str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    return "".join(itertools.chain.from_iterable(("/", step) for step in escaped))
