"""Namespaces that are one: hosts of a cluster, replicas of a database, under the name the user gave them."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

__all__ = ["NamespaceResolvers"]

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
