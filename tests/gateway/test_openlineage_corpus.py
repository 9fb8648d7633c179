"""Every mutation in the corpus leads to the verdict that its construction foretells, at the path it names."""

from __future__ import annotations

import pytest

from headwater.gateway.openlineage_validator import Validator
from tests.gateway.openlineage_corpus import (
    BASE,
    PLACES,
    Seed,
    definitions,
    events,
    mutations,
    replaced,
    seeds,
)

SEEDS = list(seeds())
STRICT = Validator(strict=True)
LENIENT = Validator()


@pytest.mark.parametrize("seed", [pytest.param(seed, id=seed.name) for seed in SEEDS])
def test_complete_event_is_accepted_when_every_field_is_filled(seed: Seed) -> None:
    for validator in (STRICT, LENIENT):
        verdict = validator.check(seed.event)
        assert (verdict.kind, verdict.errors, verdict.warnings) == (seed.kind, (), ())


@pytest.mark.parametrize("seed", [pytest.param(seed, id=seed.name) for seed in SEEDS])
def test_verdict_names_path_and_rule_when_one_thing_is_changed(seed: Seed) -> None:
    checked = 0
    for mutation in mutations(seed):
        strict, lenient = STRICT.check(mutation.event), LENIENT.check(mutation.event)
        assert strict.kind == lenient.kind == mutation.kind, mutation.name
        assert strict.ok == (not mutation.rule), f"{mutation.name}: {strict}"
        assert lenient.ok == (mutation.rule in ("", "format:uri")), f"{mutation.name}: {lenient}"
        if mutation.rule:
            reported = {(violation.path, violation.rule) for violation in strict.errors}
            assert reported == {(mutation.path, mutation.rule)}, f"{mutation.name}: {strict}"
        assert lenient.errors + lenient.warnings == strict.errors
        checked += 1
    assert checked > 10


def test_corpus_covers_every_definition_when_all_seeds_are_made() -> None:
    used = str(SEEDS)
    reached = {name for name in definitions if f"#/$defs/{name}'" in used}
    standard = {
        schema["$ref"].rpartition("/")[2]
        for _, _, container in PLACES
        for schema in definitions[container]["properties"].values()
    }
    assert len(standard) == 40
    assert standard <= reached
    assert sum(1 for seed in SEEDS for _ in mutations(seed)) > 10_000


def test_only_base_fields_are_checked_when_a_facet_stands_in_a_foreign_container() -> None:
    plain = events()
    checked = 0
    for _, _, home in PLACES:
        for key, schema in definitions[home]["properties"].items():
            fields = definitions[schema["$ref"].rpartition("/")[2]]["properties"]
            nonsense = {field: None for field in fields if not field.startswith("_")} | BASE
            for kind, steps, container in PLACES:
                if key not in definitions[container]["properties"]:
                    assert STRICT.check(replaced(plain[kind], steps, {key: nonsense})).ok
                    assert not STRICT.check(replaced(plain[kind], steps, {key: {}})).ok
                    checked += 1
    assert checked > 100
