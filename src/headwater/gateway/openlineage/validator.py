"""Validates events against the OpenLineage specification.

Covers run, job and dataset events and every standard facet by container and key. The schema beside this file
is derived (scripts/derive_openlineage_schema.py); docs/openlineage.md documents the rules.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec
import orjson

from headwater.gateway.openlineage.violations import Violation, ViolationFinder, first_violations

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
        self._finder = ViolationFinder(_load()["$defs"])
        self._accepted_by = {
            kind: self._finder.compiled(name).is_valid for kind, name in _DEFINITIONS.items()
        }

    def check(self, event: object) -> Validation:
        """Validate one decoded JSON value of any shape. Never raises; the result is bounded (G12)."""
        if not isinstance(event, dict):
            return Validation("", (_NOT_AN_OBJECT,))
        # The keys decide the kind, so that a violation can name a path; trying all three kinds could not.
        if "job" in event:
            if "run" in event:
                kind = "run"
            elif "dataset" in event:
                return self._check_two_kinds(event)
            else:
                kind = "job"
        elif "dataset" in event:
            kind = "dataset"
        elif "run" in event or "eventType" in event:
            kind = "run"
        else:
            return self._refuse_without_kind(event)
        if self._accepted_by[kind](event):
            return _VALID[kind]
        return self._explain(kind, event)

    def _explain(self, kind: str, event: dict[str, object]) -> Validation:
        errors, warnings = self._inspect(_DEFINITIONS[kind], event)
        return Validation(kind, first_violations(errors), first_violations(warnings))

    def _inspect(self, name: str, event: dict[str, object]) -> tuple[list[Violation], list[Violation]]:
        errors, warnings = self._finder.inspect(name, event)
        return (errors + warnings, []) if self._strict else (errors, warnings)

    def _tolerates(self, kind: str, event: dict[str, object]) -> bool:
        """Return whether an event that the strict schema refuses has only warnings."""
        if self._strict:
            return False
        return self._finder.compiled(_DEFINITIONS[kind], tolerant=True).is_valid(event)

    def _check_two_kinds(self, event: dict[str, object]) -> Validation:
        """`job` and `dataset` without `run` is officially valid if it is exactly one of the two kinds."""
        kinds = ("job", "dataset")
        accepted = [kind for kind in kinds if self._accepted_by[kind](event)]
        if len(accepted) == 1:
            return _VALID[accepted[0]]
        if accepted:
            return Validation("", (_TWO_KINDS,))
        tolerated = [kind for kind in kinds if self._tolerates(kind, event)]
        if len(tolerated) == 1:
            return self._explain(tolerated[0], event)
        # violations of fields that both kinds share, such as eventTime, are listed once
        found = dict.fromkeys(
            error for kind in kinds for error in self._inspect(_DEFINITIONS[kind], event)[0]
        )
        return Validation("", first_violations([_TWO_KINDS, *found]))

    def _refuse_without_kind(self, event: dict[str, object]) -> Validation:
        errors, warnings = self._inspect("BaseEvent", event)
        return Validation("", first_violations([_NO_KIND, *errors]), first_violations(warnings))


def _load() -> Any:
    return orjson.loads(files(__package__).joinpath("schema.json").read_bytes())
