"""Where settings of lineage come from: Spark's configuration, openlineage.yml, the environment."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.formats.yaml_text import BadYaml, load_yaml

logger = logging.getLogger(__name__)

SPARK_PREFIX = "spark.openlineage."
ENVIRONMENT_PREFIX = "OPENLINEAGE__"


def find(spark: Mapping[str, str], environ: Mapping[str, str]) -> Found:
    """The settings of each source, in order of precedence."""
    own = {key[len(SPARK_PREFIX) :]: value for key, value in spark.items() if key.startswith(SPARK_PREFIX)}
    return Found([own, dict(_flat(_file(environ))), dict(_environment(environ))])


class Found:
    """Settings as dotted keys, from several sources. Keys are compared without case and underscores."""

    def __init__(self, sources: list[dict[str, Any]]) -> None:
        self._sources = [{normal(key): (key, value) for key, value in source.items()} for source in sources]

    @property
    def is_of_spark(self) -> bool:
        """Whether Spark's configuration has settings of openlineage-spark; `headwater.*` are only ours."""
        return any(not key.startswith("headwater.") for key in self._sources[0])

    def text(self, key: str) -> Any:
        """One value, or None."""
        wanted = normal(key)
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
        """The settings below the key, from the first source that has any."""
        prefix = normal(key) + "."
        for source in self._sources:
            found: dict[str, Any] = {}
            for wanted, (written, value) in source.items():
                if wanted.startswith(prefix):
                    _put(found, written.split(".")[key.count(".") + 1 :], value)
            if found:
                return found
        return None

    def disabled_facets(self) -> dict[str, bool]:
        """Whether each facet is disabled; `facets.disabled=[a;b]` is the old form."""
        found = dict.fromkeys(self.array("facets.disabled") or [], True)
        for source in reversed(self._sources):
            for written, value in source.values():
                parts = written.split(".")
                if len(parts) > 2 and parts[0].lower() == "facets" and parts[-1].lower() == "disabled":
                    text = str(value).strip().lower()
                    if text not in ("true", "false"):
                        logger.warning("Lineage setting %s=%r is neither true nor false.", written, value)
                    found[".".join(parts[1:-1])] = text == "true"
        if str(self.text("debugFacet") or "").strip().lower() == "enabled":  # openlineage-spark's old key
            found.setdefault("debug", False)
        return found

    @property
    def keys_of_spark(self) -> dict[str, str]:
        """The keys in Spark's configuration as they are written, by their normal form."""
        return {key: written for key, (written, _) in self._sources[0].items()}

    @property
    def keys(self) -> dict[str, str]:
        """The keys of all sources, likewise."""
        return {key: written for source in reversed(self._sources) for key, (written, _) in source.items()}

    def flat(self) -> dict[str, str]:
        """All settings by key, without the transport's, which hold secrets (G12)."""
        every = [pair for source in reversed(self._sources) for pair in source.values()]
        return {key: str(value) for key, value in every if not normal(key).startswith("transport.")}


def normal(key: str) -> str:
    """A key without case and underscores."""
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
            try:  # JSON at any level, as in openlineage-python
                yield from _flat(load_yaml(value), key)
                continue
            except BadYaml:
                pass
        yield key, value


def _file(environ: Mapping[str, str]) -> Any:
    """openlineage.yml from the places of openlineage-python."""
    named = environ.get("OPENLINEAGE_CONFIG")
    for path in [
        *([Path(named)] if named else []),
        Path("openlineage.yml"),
        Path("~/.openlineage/openlineage.yml"),
    ]:
        try:
            found = path.expanduser()
            if found.is_file():
                return load_yaml(found.read_text(encoding="utf-8"))
        except BadYaml as error:
            if error.value is not None:
                logger.warning("%s: %s; the last one is used", path, error)
                return error.value
            logger.warning("%s is not used: %s", path, error)
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            logger.warning("%s is not used: %s", path, error)
    return None
