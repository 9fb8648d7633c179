"""YAML as people write settings: no key twice, and a number only where a person reads one.

It is YAML 1.1 without its surprises: keys are always text (`on:` too), `1:30` and `2026-01-31` are text and
not 90 and a date, and so are `010` and `0x10`, which YAML 1.1 and 1.2 read as different numbers.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_OURS = {
    "tag:yaml.org,2002:int": (re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z"), "-+0123456789"),
    "tag:yaml.org,2002:float": (
        re.compile(
            r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?"
            r"|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))\Z|\.(?:nan|NaN|NAN)\Z"
        ),
        "-+0123456789.",
    ),
}
_DROPPED = {*_OURS, "tag:yaml.org,2002:timestamp"}


class BadYaml(Exception):
    """The text is not YAML, or repeats keys; `.problems` has a line for each place.

    `.value` is what other readers make of repeated keys: the last one counts. None if it is not YAML.
    """

    def __init__(self, problems: list[str], value: Any = None) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.value = value


def load_yaml(text: str) -> Any:
    """The value of a YAML text; raises BadYaml."""
    try:
        loader = _Loader(text)
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, KeyError) as error:  # `!!bool x`, a number of 5,000 digits
        raise BadYaml([f"is not YAML: {error}"]) from None
    except RecursionError:
        raise BadYaml(["is nested too deeply"]) from None
    if loader.bad_keys:
        raise BadYaml(loader.bad_keys, found)
    return found


class _Loader(yaml.SafeLoader):
    yaml_constructors: ClassVar[dict[Any, Any]] = {
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
    }
    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML declares it
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _DROPPED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.bad_keys: list[str] = []
        self._open: set[str] = set()  # anchors of the collections that are being read

    # Composed, not constructed: `<<` puts the keys of other mappings among a mapping's own.
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._refuse(key, "a key must be text")
                continue
            if key.tag != _MERGE:
                key.tag = _TEXT
            if key.value in lines:
                self._refuse(key, f"the key `{key.value}` is there already, in line {lines[key.value]}")
            lines.setdefault(key.value, key.start_mark.line + 1)
        return node

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As in PyYAML, except that a collection cannot contain itself."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self._open:
                raise yaml.YAMLError(f"`*{event.anchor}` stands within what it names")
            return super().compose_node(parent, index)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._open.add(anchor)
        found = super().compose_node(parent, index)
        self._open.discard(anchor)
        return found

    def _refuse(self, node: yaml.Node, text: str) -> None:
        mark = node.start_mark
        self.bad_keys.append(f"line {mark.line + 1}, column {mark.column + 1}: {text}")


for _tag, (_pattern, _first) in _OURS.items():
    _Loader.add_implicit_resolver(_tag, _pattern, list(_first))
