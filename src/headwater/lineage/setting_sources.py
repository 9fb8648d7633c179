"""Where settings of lineage stand: Spark's configuration, openlineage.yml, the environment."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["Found", "find"]

logger = logging.getLogger(__name__)

SPARK_PREFIX = "spark.openlineage."
ENVIRONMENT_PREFIX = "OPENLINEAGE__"


def find(spark: Mapping[str, str], environ: Mapping[str, str]) -> Found:
    """What is set, by source, the one that wins first."""
    own = {key[len(SPARK_PREFIX) :]: value for key, value in spark.items() if key.startswith(SPARK_PREFIX)}
    return Found([own, dict(_flat(_file(environ))), dict(_environment(environ))])


class Found:
    """Settings as dotted keys, from several sources. Keys are compared without case and underscores."""

    def __init__(self, sources: list[dict[str, Any]]) -> None:
        self._sources = [{_normal(key): (key, value) for key, value in source.items()} for source in sources]

    def text(self, key: str) -> Any:
        """One value, or None."""
        wanted = _normal(key)
        return next((source[wanted][1] for source in self._sources if wanted in source), None)

    def array(self, key: str) -> list[str] | None:
        """`[a;b]`, `a,b`, or a list of YAML."""
        value = self.text(key)
        if value is None or isinstance(value, list):
            return value
        text = str(value).strip()
        parts = (
            text[1:-1].split(";")
            if text.startswith("[") and text.endswith("]")
            else text.replace(";", ",").split(",")
        )
        return [part.strip() for part in parts if part.strip()]

    def tree(self, key: str) -> dict[str, Any] | None:
        """Everything below the key, of the first source that has any of it."""
        prefix = _normal(key) + "."
        for source in self._sources:
            found: dict[str, Any] = {}
            for wanted, (written, value) in source.items():
                if wanted.startswith(prefix):
                    _put(found, written.split(".")[key.count(".") + 1 :], value)
            if found:
                return found
        return None

    def disabled_facets(self) -> dict[str, bool]:
        """By key of the facet, whether it is switched off; `facets.disabled=[a;b]` is the old form."""
        found = dict.fromkeys(self.array("facets.disabled") or [], True)
        for source in reversed(self._sources):
            for written, value in source.values():
                parts = written.split(".")
                if len(parts) > 2 and parts[0].lower() == "facets" and parts[-1].lower() == "disabled":
                    found[".".join(parts[1:-1])] = str(value).strip().lower() == "true"
        return found

    def flat(self) -> dict[str, str]:
        """All of it, the source that wins last; not the transport's, where secrets are (G12)."""
        every = [pair for source in reversed(self._sources) for pair in source.values()]
        return {key: str(value) for key, value in every if not _normal(key).startswith("transport.")}


def _normal(key: str) -> str:
    return key.replace("_", "").lower()


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        tree = inner
    tree[path[-1]] = value


def _flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif prefix:
        yield prefix, tree


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, value in environ.items():
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        key = name[len(ENVIRONMENT_PREFIX) :].lower().replace("__", ".")
        if value.lstrip().startswith(("{", "[")):
            try:  # JSON at any level, as openlineage-python has it
                yield from _flat(yaml.safe_load(value), key)
                continue
            except yaml.YAMLError:
                pass
        yield key, value


def _file(environ: Mapping[str, str]) -> Any:
    """openlineage.yml from where openlineage-python would take it."""
    named = environ.get("OPENLINEAGE_CONFIG")
    for path in [
        *([Path(named)] if named else []),
        Path("openlineage.yml"),
        Path("~/.openlineage/openlineage.yml"),
    ]:
        try:
            found = path.expanduser()
            if found.is_file():
                return yaml.safe_load(found.read_text(encoding="utf-8"))
        except (OSError, RuntimeError, yaml.YAMLError) as error:
            logger.warning("%s is not used: %s", path, error)
    return None
