"""The enrichment contract: how a value is looked up.

An enricher is a class named by an entry point of the group `headwater.enrichers`. The driver constructs it
and calls `open`, so that a missing part is an error at the start. It is then pickled to Spark's workers,
where `lookup` is called with values that are distinct within a batch, in any order; the resources that it
opened must not be pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headwater.destinations.column_types import Kind
from headwater.extensions import load
from headwater.settings import PipelineSettings
from headwater.system.installation import install_command

GROUP = "headwater.enrichers"

Found = Mapping[str, Any] | None
"""The result of a lookup: values by name, without the unknown ones; None if it found none."""


class Enricher(ABC):
    """Looks up a text of the event; the result becomes an object of the event."""

    fields: ClassVar[Mapping[str, Kind]]
    """The names and kinds of a result's values: fixed, so that columns do not depend on the batch."""

    def __init__(self, settings: PipelineSettings) -> None:  # noqa: B027
        """Opens nothing: that is for `open`."""

    def open(self) -> None:  # noqa: B027 - many rules have nothing to open
        """Open what `lookup` needs, once; raises ExtensionError or SettingsError if it is unavailable."""

    @abstractmethod
    def lookup(self, values: Sequence[str]) -> list[Found]:
        """A result per value, in order. Never raises: a value that cannot be read has none (G6)."""


def load_enricher(name: str, settings: PipelineSettings) -> Enricher:
    """The enricher that a rule names, opened."""
    install = install_command("pipeline")
    kind = load(GROUP, name, Enricher, what="enrichment rule", install=install)  # type: ignore[type-abstract]
    enricher = kind(settings)
    enricher.open()
    return enricher
