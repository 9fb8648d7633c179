"""Extensions and transports that do what nobody should."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from openlineage.client.transport import Config, Transport

from headwater.lineage.extend.builders import (
    AbstractRunFacetBuilder,
    Consumer,
    CustomFacetBuilder,
    OpenLineageEventListenerFactory,
)

__all__ = ["HangingTransport", "Raising", "Sleeping"]


class _Raises(AbstractRunFacetBuilder[object]):
    def accept(self, event: object, consumer: Consumer) -> None:
        raise ZeroDivisionError("somebody's mistake")


class Raising(OpenLineageEventListenerFactory):
    """Its builder raises."""

    def create_run_facet_builders(self) -> Collection[CustomFacetBuilder[Any, Any]]:
        return [_Raises()]


class _Sleeps(AbstractRunFacetBuilder[object]):
    def accept(self, event: object, consumer: Consumer) -> None:
        threading.Event().wait()


class Sleeping(OpenLineageEventListenerFactory):
    """Its builder never returns."""

    def create_run_facet_builders(self) -> Collection[CustomFacetBuilder[Any, Any]]:
        return [_Sleeps()]


class HangingTransport(Transport):
    """Takes one event and never comes back."""

    kind = "hanging"
    config_class = Config

    def __init__(self, config: Config) -> None:
        self.config = config

    def emit(self, event: Any) -> None:
        threading.Event().wait()
