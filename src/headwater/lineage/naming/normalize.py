"""Partition-like tails of names, cut off: `…/orders/day=2026-01-01` and its neighbours are one dataset.

Every name of an event goes through the same Trimming: inputs, outputs, columns' inputs, RDDs. The paths that
were cut are not lost; they become the `subset` facet. openlineage-python has the trimmers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from openlineage.client.dataset.dataset import DatasetConfig
from openlineage.client.dataset.trimmers import DatasetNameTrimmer

from headwater.lineage.naming.names import DatasetId

__all__ = ["NamespaceResolvers", "Trimming"]


logger = logging.getLogger(__name__)


Rule = Callable[[str], str]


class NamespaceResolvers:
    """`dataset.namespaceResolvers.<name>.…` of three types, as openlineage-spark has them.

    hostList: `hosts` become the name. pattern: what `regex` matches does. patternGroup: what `regex` matches
    becomes the group that `matchingGroup` names. `schema` keeps a resolver to namespaces of one scheme.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._rules: list[Rule] = []
        for name, each in settings.items():
            try:
                self._rules.append(_rule(str(name), each))
            except (KeyError, TypeError, AttributeError, re.error) as error:
                logger.warning("Namespace resolver %s is not used: %s", name, error)
        self.resolve = lru_cache(maxsize=1024)(self._resolve)

    def _resolve(self, namespace: str) -> str:
        for rule in self._rules:
            resolved = rule(namespace)
            if resolved != namespace:
                return resolved
        return namespace


def _rule(name: str, given: Mapping[str, Any]) -> Rule:
    kind = str(given.get("type", "hostList"))
    group = ""
    scheme = str(given.get("schema") or "")
    port = r"(:\d+)?"
    if kind == "hostList":
        hosts = given["hosts"]
        if isinstance(hosts, str):
            hosts = [host.strip() for host in hosts.strip("[]").split(";")]
        pattern = re.compile("|".join(rf"{re.escape(str(host))}{port}" for host in hosts), re.IGNORECASE)
    elif kind == "pattern":
        pattern = re.compile(f"(?:{_python(given['regex'])}){port}", re.IGNORECASE)
    elif kind == "patternGroup":
        group = str(given["matchingGroup"])
        pattern = re.compile(f"(?:{_python(given['regex'])}){port}", re.IGNORECASE)
        if group not in pattern.groupindex:
            raise KeyError(f"its regex has no group {group}")
    else:
        raise KeyError(f"there is no type {kind}")

    def rule(namespace: str) -> str:
        if scheme and not namespace.startswith(f"{scheme}://"):
            return namespace
        return pattern.sub(lambda match: str(match[group]) if group else name, namespace)

    return rule


def _python(regex: Any) -> str:
    return re.sub(r"\(\?<(\w+)>", r"(?P<\1>", str(regex))


MOST_PASSES = 16


_JAVA_NAME = re.compile(r"^io\.openlineage\.client\.(?:\w+\.)*(\w+)$")


class Trimming:
    """What is cut off names: by the trimmers that are on, then what `remove_pattern` calls `remove`.

    Settings written for openlineage-spark name Java classes; the Python ones of the same name are meant.
    """

    def __init__(
        self,
        *,
        disabled: Sequence[str] = (),
        extra: Sequence[str] = (),
        remove_pattern: str = "",
        enabled: bool = True,
    ) -> None:
        config = DatasetConfig(
            disabled_trimmers=[_python_name(name) for name in disabled],
            extra_trimmers=[_python_name(name) for name in extra],
        )
        self._trimmers: list[DatasetNameTrimmer] = config.get_dataset_name_trimmers() if enabled else []
        # Java writes named groups without the P
        self._remove = (
            re.compile(re.sub(r"\(\?<(\w+)>", r"(?P<\1>", remove_pattern)) if remove_pattern else None
        )
        self._trimmed = lru_cache(maxsize=4096)(self._trim)

    def trim(self, dataset: DatasetId) -> DatasetId:
        """The name without its tail; names that are not paths stay as they are."""
        return DatasetId(dataset.namespace, self._trimmed(dataset.name))

    def _trim(self, name: str) -> str:
        if self._remove is not None and (found := self._remove.search(name)):
            start, end = found.span("remove") if "remove" in self._remove.groupindex else found.span()
            name = name[:start] + name[end:]
        if "/" not in name:
            return name
        start_name = name
        for _ in range(MOST_PASSES):
            before = name
            for trimmer in self._trimmers:
                name = _shorter(trimmer, name)
            if name == before:
                return name
        return start_name


def _shorter(trimmer: DatasetNameTrimmer, name: str) -> str:
    try:
        shorter = trimmer.trim(name)
    except Exception as error:  # an extra trimmer of the user's
        logger.debug("The trimmer %r does not take %s: %s", trimmer, name, error)
        return name
    return shorter if shorter and len(shorter) <= len(name) else name


def _python_name(name: str) -> str:
    found = _JAVA_NAME.match(name.strip())
    return f"openlineage.client.dataset.trimmers.{found[1]}" if found else name.strip()
