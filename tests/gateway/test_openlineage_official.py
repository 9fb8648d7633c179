"""Strict mode against the official schemas, event by event, where they are at hand.

The official files are composed without our tables: which definition belongs to which container is read from
the base facet that it extends, and its key from the file's own root.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from headwater.gateway.openlineage_validator import Validator
from tests.gateway.openlineage_corpus import (
    PLACES,
    Seed,
    definitions,
    events,
    found,
    mutations,
    replaced,
    seeds,
)

ROOT = Path(__file__).resolve().parents[2]
SPEC = Path(os.environ.get("HEADWATER_OPENLINEAGE_SPEC", ROOT.parent / "shared/openlineage-spec"))
CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"

pytestmark = pytest.mark.skipif(
    not (SPEC / "OpenLineage.json").is_file(),
    reason="not published: the official schemas; HEADWATER_OPENLINEAGE_SPEC may name their folder",
)

# base facet -> the definition of the core schema, and its key, that holds such facets
HOLDERS = {
    "RunFacet": ("Run", "facets", "RunFacets"),
    "JobFacet": ("Job", "facets", "JobFacets"),
    "DatasetFacet": ("Dataset", "facets", "DatasetFacets"),
    "InputDatasetFacet": ("InputDataset", "inputFacets", "InputDatasetFacets"),
    "OutputDatasetFacet": ("OutputDataset", "outputFacets", "OutputDatasetFacets"),
}

Facet = tuple[str, str, str, dict[str, Any]]


def official_facets() -> Iterator[Facet]:
    """Base facet, key, address and fields of each facet definition in the official files."""
    for path in sorted((SPEC / "facets").glob("*.json")):
        document = json.loads(path.read_text())
        (key,) = document["properties"]
        for name, schema in document["$defs"].items():
            parts = schema.get("allOf", [{}])
            base = parts[0].get("$ref", "").partition(f"{CORE}#/$defs/")[2]
            if base in HOLDERS:
                yield base, key, f"{document['$id']}#/$defs/{name}", parts[1]["properties"]


def official_validator() -> jsonschema_rs.Validator:
    """The core schema with the facet files hung in by container and key, formats asserted."""
    core = json.loads((SPEC / "OpenLineage.json").read_text())
    for base, key, address, _ in official_facets():
        holder, field, _ = HOLDERS[base]
        schema = core["$defs"][holder]
        for part in [schema, *schema.get("allOf", ())]:
            if field in part.get("properties", ()):
                part["properties"][field].setdefault("properties", {})[key] = {"$ref": address}
    documents = [json.loads(path.read_text()) for path in sorted((SPEC / "facets").glob("*.json"))]
    registry = jsonschema_rs.Registry([(document["$id"], document) for document in [core, *documents]])
    return jsonschema_rs.validator_for(core, registry=registry, validate_formats=True, offline=True)


def newer_fields() -> dict[tuple[str, str], set[str]]:
    """By container and key, the fields that our version of a facet has and the official file does not."""
    newer: dict[tuple[str, str], set[str]] = {}
    for base, key, address, fields in official_facets():
        container = HOLDERS[base][2]
        ours = definitions[definitions[container]["properties"][key]["$ref"].rpartition("/")[2]]
        own = {field for field in ours["properties"] if not field.startswith("_")}
        assert set(fields) <= own, address
        if own > set(fields):
            assert f"/{ours['$comment']}/" not in address, f"same version, other fields: {address}"
            newer[container, key] = own - set(fields)
    return newer


def comparable_seeds() -> Iterator[Seed]:
    """The corpus, without the fields that only a newer version of a facet knows."""
    newer = newer_fields()
    containers = {steps: container for _, steps, container in PLACES}
    for seed in seeds():
        drop = newer.get(
            (containers.get(seed.steps[:-1], ""), str(seed.steps[-1]) if seed.steps else ""), set()
        )
        facet = {key: item for key, item in found(seed.event, seed.steps).items() if key not in drop}
        yield Seed(seed.name, seed.kind, replaced(seed.event, seed.steps, facet), seed.steps, seed.schema)


def wild(base: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """Events with several changes at random places: parts of one event put into another, parts left out."""
    chance = random.Random(20240501)
    parts = [part for event in base[:: len(base) // 400] for part in _parts(event)]
    parts += [
        (),
        None,
        True,
        0,
        -1,
        1.5,
        "",
        "text",
        "DATASET",
        "JOB",
        "binary",
        [],
        {},
        [None],
        {"type": "JOB"},
    ]
    for _ in range(count):
        event = chance.choice(base)
        if chance.random() < 0.2:  # two kinds in one, with the parts of either
            event = {**event, **chance.choice(base)}
        for _ in range(chance.choice((1, 1, 2, 3))):
            steps = chance.choice(list(_places(event)))
            if chance.random() < 0.3:
                parent = found(event, steps[:-1])
                if isinstance(parent, dict):
                    rest = {key: item for key, item in parent.items() if key != steps[-1]}
                    event = replaced(event, steps[:-1], rest)
                    if not event:
                        break
                    continue
            event = replaced(event, steps, chance.choice(parts))
        yield event


def _places(value: Any, steps: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in inner:
        yield (*steps, key)
        yield from _places(item, (*steps, key))


def _parts(value: Any) -> Iterator[Any]:
    return (found(value, steps) for steps in _places(value))


def test_every_official_facet_is_in_our_table_when_read_from_the_files() -> None:
    official = {(HOLDERS[base][2], key) for base, key, _, _ in official_facets()}
    ours = {(container, key) for _, _, container in PLACES for key in definitions[container]["properties"]}
    assert official == ours
    assert len(official) == 40


def test_strict_mode_agrees_with_the_official_schemas_when_events_are_mutated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    official, strict, lenient = official_validator(), Validator(strict=True), Validator()
    plain = list(events().values())
    known = list(comparable_seeds())
    mutants = [mutation.event for seed in known for mutation in mutations(seed)]
    mixed = [{key: item for event in plain for key, item in event.items() if key not in out} for out in MIXES]
    candidates = [seed.event for seed in known] + mixed + mutants + list(wild(mutants, 14_000))
    invalid = 0
    for event in candidates:
        expected = official.is_valid(event)
        verdict = strict.check(event)
        assert verdict.ok == expected, f"{verdict} but official says {expected}: {json.dumps(event)}"
        assert lenient.check(event).ok or not expected, json.dumps(event)
        assert "schema" not in {error.rule for error in verdict.errors}, json.dumps(event)
        invalid += not expected
    with capsys.disabled():
        print(f"\n{len(candidates):,} events compared with the official schemas, {invalid:,} of them invalid")
    assert len(candidates) >= 20_000
    assert 4_000 < invalid < len(candidates) - 4_000


MIXES: tuple[frozenset[str], ...] = tuple(
    frozenset(key for bit, key in enumerate(("run", "job", "dataset", "eventType")) if mask >> bit & 1)
    for mask in range(16)
)
