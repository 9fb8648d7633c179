"""OpenLineage: whether an event is what the specification says, and if not, where and why.

Covers run, job and dataset events and every standard facet by container and key. The schema beside this file
is derived (scripts/derive_openlineage_schema.py); docs/openlineage.md tells the rules to users.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec
import orjson

from headwater.gateway.openlineage.violations import Inspector, Violation, limited

__all__ = ["Validator", "Verdict", "Violation"]

_DEFINITIONS = {"run": "RunEvent", "job": "JobEvent", "dataset": "DatasetEvent"}


class Verdict(msgspec.Struct, frozen=True):
    """What the validator says about one event. `kind` is run, job or dataset, or "" where none is told."""

    kind: str
    errors: tuple[Violation, ...] = ()
    warnings: tuple[Violation, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the event may be accepted; warnings do not count."""
        return not self.errors

    @property
    def reason(self) -> str:
        """One sentence for all errors: the first, and how many more there are."""
        first = self.errors[0]
        more = len(self.errors) - 1
        others = f" (and {more} more)" if more else ""
        return f"Not compliant with OpenLineage: {first.path or 'event'}: {first.reason}{others}."


_FINE = {kind: Verdict(kind) for kind in _DEFINITIONS}

_NOT_AN_OBJECT = Violation("", "expected one OpenLineage event, a JSON object", "type")
_NO_KIND = Violation(
    "",
    "neither `run` and `job` (a run event) nor `job` (a job event) nor `dataset` (a dataset event) is there",
    "kind",
)
_TWO_KINDS = Violation(
    "",
    "`job` and `dataset` without `run`: it cannot be told whether this is a job event or a dataset event; "
    "leave one of them out, or add `run` for a run event",
    "kind",
)


class Validator:
    """Checks events against the OpenLineage schema 2-0-2 and the standard facets. Safe to share by threads.

    With `strict` it agrees with the official schemas, formats asserted. Without, a value that is not a URI
    and the fields that a facet with `"_deleted": true` lacks are warnings; everything else stays an error.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._inspector = Inspector(_load()["$defs"])
        self._accepted_by = {
            kind: self._inspector.compiled(name).is_valid for kind, name in _DEFINITIONS.items()
        }

    def check(self, event: object) -> Verdict:
        """The verdict on one decoded JSON value of any shape. Never raises, never answers at length (G12)."""
        if not isinstance(event, dict):
            return Verdict("", (_NOT_AN_OBJECT,))
        # The kind is told by the keys and not by trying all three, so that a violation can name a path.
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
            return _FINE[kind]
        return self._explain(kind, event)

    def _explain(self, kind: str, event: dict[str, object]) -> Verdict:
        errors, warnings = self._inspect(_DEFINITIONS[kind], event)
        return Verdict(kind, limited(errors), limited(warnings))

    def _inspect(self, name: str, event: dict[str, object]) -> tuple[list[Violation], list[Violation]]:
        errors, warnings = self._inspector.inspect(name, event)
        return (errors + warnings, []) if self._strict else (errors, warnings)

    def _tolerates(self, kind: str, event: dict[str, object]) -> bool:
        """Whether an event that the strict schema refuses deserves only warnings."""
        if self._strict:
            return False
        return self._inspector.compiled(_DEFINITIONS[kind], tolerant=True).is_valid(event)

    def _check_two_kinds(self, event: dict[str, object]) -> Verdict:
        """`job` and `dataset` without `run` is officially valid if it is exactly one of the two kinds."""
        kinds = ("job", "dataset")
        accepted = [kind for kind in kinds if self._accepted_by[kind](event)]
        if len(accepted) == 1:
            return _FINE[accepted[0]]
        if accepted:
            return Verdict("", (_TWO_KINDS,))
        tolerated = [kind for kind in kinds if self._tolerates(kind, event)]
        if len(tolerated) == 1:
            return self._explain(tolerated[0], event)
        # what both kinds share, such as eventTime, is told once
        found = dict.fromkeys(
            error for kind in kinds for error in self._inspect(_DEFINITIONS[kind], event)[0]
        )
        return Verdict("", limited([_TWO_KINDS, *found]))

    def _refuse_without_kind(self, event: dict[str, object]) -> Verdict:
        errors, warnings = self._inspect("BaseEvent", event)
        return Verdict("", limited([_NO_KIND, *errors]), limited(warnings))


def _load() -> Any:
    return orjson.loads(files(__package__).joinpath("schema.json").read_bytes())
