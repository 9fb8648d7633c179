"""Extensions and transports that raise or hang."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection
from typing import Any

from openlineage.client.serde import Serde
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
        raise ZeroDivisionError("a builder's mistake")


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
    """Writes events to the file in HANGING_EVENTS, and never returns from the last one of an application."""

    kind = "hanging"
    config_class = Config

    def __init__(self, config: Config) -> None:
        self.config = config

    def emit(self, event: Any) -> None:
        written = Serde.to_dict(event)
        with open(os.environ["HANGING_EVENTS"], "a", encoding="utf-8") as file:
            file.write(json.dumps(written) + "\n")
        if "parent" not in written["run"]["facets"] and written["eventType"] != "START":
            threading.Event().wait()
