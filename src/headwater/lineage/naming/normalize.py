"""Normalizes names of datasets: partition folders are cut off, namespaces resolved.

`…/orders/day=2026-01-01` and its neighbours are one dataset. Every name of an event passes the same
NameNormalizer: inputs, outputs, columns' inputs, RDDs. The paths before trimming become the `subset` facet.
The trimmers are those of openlineage-python.
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

logger = logging.getLogger(__name__)

Rule = Callable[[str], str]
MAX_PASSES = 16
_HOST = re.compile(r"[^,;/@]+")
_JAVA_NAME = re.compile(r"^io\.openlineage\.client\.(?:\w+\.)*(\w+)\Z")


class NameNormalizer:
    """Trims names by the enabled trimmers and the group `remove` of `remove_pattern`; resolves namespaces.

    Settings written for openlineage-spark name Java classes; the Python class of the same name is used.

    `resolvers` are the settings `dataset.namespaceResolvers.<name>.…` of openlineage-spark. hostList: `hosts`
    are replaced, as whole names, by the resolver's name; pattern: hosts that match `regex` as a whole are;
    patternGroup: such a host is replaced by its group `matchingGroup`. The port stays unless the regex
    includes it.
    `schema` restricts a resolver to namespaces of one scheme.
    """

    def __init__(
        self,
        *,
        disabled_trimmers: Sequence[str] = (),
        extra_trimmers: Sequence[str] = (),
        remove_pattern: str = "",
        resolvers: Mapping[str, Any] | None = None,
    ) -> None:
        config = DatasetConfig(
            disabled_trimmers=[_python_name(name) for name in disabled_trimmers],
            extra_trimmers=[_python_name(name) for name in extra_trimmers],
        )
        self._trimmers: list[DatasetNameTrimmer] = config.get_dataset_name_trimmers()
        self._remove = re.compile(_python_regex(remove_pattern)) if remove_pattern else None
        self._resolvers: list[Rule] = []
        for name, each in (resolvers or {}).items():
            try:
                self._resolvers.append(_resolver(str(name), each))
            except (KeyError, TypeError, AttributeError, re.error) as error:
                logger.warning("Namespace resolver %s is not used: %s", name, error)
        self._trimmed = lru_cache(maxsize=4096)(self._trim)
        self._resolved = lru_cache(maxsize=1024)(self._resolve)

    def normalize(self, dataset: DatasetId, *, trim: bool = True) -> DatasetId:
        """The normalized name; names that are not paths are not trimmed."""
        name = self._trimmed(dataset.name) if trim else dataset.name
        return DatasetId(self._resolved(dataset.namespace), name)

    def _resolve(self, namespace: str) -> str:
        for resolver in self._resolvers:
            resolved = resolver(namespace)
            if resolved != namespace:
                return resolved
        return namespace

    def _trim(self, name: str) -> str:
        if self._remove is not None and (found := self._remove.search(name)):
            start, end = found.span("remove") if "remove" in self._remove.groupindex else found.span()
            name = name[:start] + name[end:]
        if "/" not in name:
            return name
        start_name = name
        for _ in range(MAX_PASSES):
            before = name
            for trimmer in self._trimmers:
                name = _shorter(trimmer, name)
            if name == before:
                return name
        return start_name


def _resolver(name: str, given: Mapping[str, Any]) -> Rule:
    kind = str(given.get("type", "hostList"))
    scheme = str(given.get("schema") or "")
    if kind == "hostList":
        hosts = given["hosts"]
        if isinstance(hosts, str):
            hosts = [host.strip() for host in hosts.strip("[]").split(";")]
        regex = "|".join(re.escape(str(host)) for host in hosts) or r"(?!)"
    elif kind in ("pattern", "patternGroup"):
        regex = _python_regex(given["regex"])
    else:
        raise KeyError(f"there is no type {kind}")
    pattern = re.compile(regex, re.IGNORECASE)
    group = str(given["matchingGroup"]) if kind == "patternGroup" else ""
    if group and group not in pattern.groupindex:
        raise KeyError(f"its regex has no group {group}")
    rule = _of_hosts(pattern, lambda match: str(match[group]) if group else name)
    return lambda space: rule(space) if not scheme or space.startswith(f"{scheme}://") else space


def _of_hosts(pattern: re.Pattern[str], new: Callable[[re.Match[str]], str]) -> Rule:
    """Replaces hosts that match as a whole, alone or with their port; `db1` does not match in `db12`."""

    def replaced(found: re.Match[str]) -> str:
        host, colon, port = found[0].rpartition(":")
        if match := pattern.fullmatch(found[0]):
            return new(match)
        match = pattern.fullmatch(host) if port.isdigit() else None
        return f"{new(match)}{colon}{port}" if match else found[0]

    def resolve(namespace: str) -> str:
        scheme, mark, hosts = namespace.rpartition("://")
        return f"{scheme}{mark}{_HOST.sub(replaced, hosts)}"

    return resolve


def _python_regex(regex: Any) -> str:
    """The regex in Python's syntax: named groups of Java have no P."""
    return re.sub(r"\(\?<(\w+)>", r"(?P<\1>", str(regex))


def _shorter(trimmer: DatasetNameTrimmer, name: str) -> str:
    try:
        shorter = trimmer.trim(name)
    except Exception as error:  # the user's own trimmer
        logger.debug("The trimmer %r failed on %s: %s", trimmer, name, error)
        return name
    return shorter if shorter and len(shorter) <= len(name) else name


def _python_name(name: str) -> str:
    found = _JAVA_NAME.match(name.strip())
    return f"openlineage.client.dataset.trimmers.{found[1]}" if found else name.strip()
