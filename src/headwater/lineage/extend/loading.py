"""Finds the factories of extensions and loads their builders into the context, each method once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from headwater.errors import ExtensionError
from headwater.extensions import load_all
from headwater.lineage.extend.builders import OpenLineageContext, OpenLineageEventListenerFactory
from headwater.lineage.extend.isolation import Guard, class_name
from headwater.lineage.runs import ExtractionError

logger = logging.getLogger(__name__)

GROUP = "headwater.lineage"
Factory = Callable[[], OpenLineageEventListenerFactory]


class Extensions:
    """Loads the built-in factory and those of extensions; `errors` lists factories that failed."""

    _METHODS = (
        ("create_input_dataset_query_plan_visitors", "input_dataset_query_plan_visitors"),
        ("create_output_dataset_query_plan_visitors", "output_dataset_query_plan_visitors"),
        ("create_input_dataset_builder", "input_dataset_builders"),
        ("create_output_dataset_builder", "output_dataset_builders"),
        ("create_input_dataset_facet_builders", "input_dataset_facet_builders"),
        ("create_output_dataset_facet_builders", "output_dataset_facet_builders"),
        ("create_dataset_facet_builders", "dataset_facet_builders"),
        ("create_run_facet_builders", "run_facet_builders"),
        ("create_job_facet_builders", "job_facet_builders"),
    )

    def __init__(
        self,
        context: OpenLineageContext,
        guard: Guard,
        builtin: OpenLineageEventListenerFactory,
        factories: Iterable[Factory] = (),
    ) -> None:
        self._context = context
        self.errors: list[ExtractionError] = []
        self.has_user_builders = False
        for made in self._load_factory(builtin):
            guard.register_builtin(made)
        for create in factories:
            try:
                self._load_factory(create())
                self.has_user_builders = True
            except Exception as error:
                self._failed(create, error)

    def _load_factory(self, factory: OpenLineageEventListenerFactory) -> list[object]:
        factory.set_open_lineage_context(self._context)
        loaded: list[object] = []
        for method, collection in self._METHODS:
            try:
                made = list(getattr(factory, method)())
            except Exception as error:
                self._failed(factory, error, f".{method}")
                continue
            getattr(self._context, collection).extend(made)
            loaded += made
        return loaded

    def _failed(self, factory: Any, error: Exception, where: str = "") -> None:
        is_function = callable(factory) and not isinstance(factory, type)
        name = (repr(factory) if is_function else class_name(factory)) + where
        text = f"{type(error).__name__}: {error}"
        logger.warning("Lineage extension %s is not used: %s", name, text)
        self.errors.append(ExtractionError(name, text))


def find_factories(names: Iterable[str]) -> tuple[list[Factory], list[ExtractionError]]:
    """The factories of entry points, then those of the setting `extensions`; and the errors."""
    loaded, failures = load_all(GROUP)
    errors = [ExtractionError(GROUP, str(failure)) for failure in failures]
    found: list[Factory] = list(loaded.values())
    for name in names:
        try:
            found.append(_import(name))
        except Exception as error:
            errors.append(ExtractionError(name, f"{type(error).__name__}: {error}"))
    for each in errors:
        logger.warning("Lineage extension %s is not used: %s", each.task, each.text)
    return found, errors


def _import(name: str) -> Factory:
    module, _, attribute = name.replace(":", ".").rpartition(".")
    found: Factory = getattr(import_module(module), attribute)
    if not callable(found):
        raise ExtensionError(f"{name} is not a class.", hint="Set the dotted name of a factory class.")
    return found
