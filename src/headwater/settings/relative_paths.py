"""Relative paths in a configuration file: they are relative to the folder of that file."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec

PATH = msgspec.Meta(extra={"is_path": True})
"""Marks a setting as the path of a file or folder."""
LIBRDKAFKA = msgspec.Meta(extra={"are_paths": ".location"})
"""Marks a section of librdkafka's settings, of which some are paths."""


class OptionsOfFile(dict[str, Any]):
    """The options of an outlet or destination, and the folder of the file that they come from."""

    def __init__(self, options: dict[str, Any], folder: Path) -> None:
        super().__init__(options)
        self.folder = folder


def resolved(raw: Any, kind: Any, folder: Path, path: str = "", *, but: Collection[str] = ()) -> Any:
    """The tree with relative paths joined to the folder; settings that are named in `but` stay."""
    if path and path in but:
        return raw
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    extras = {
        key: value
        for meta in (get_args(kind)[1:] if bare is not kind else ())
        if isinstance(meta, msgspec.Meta) and meta.extra
        for key, value in meta.extra.items()
    }
    if isinstance(raw, str):
        return joined(folder, raw) if "is_path" in extras else raw
    if isinstance(raw, list) and get_origin(bare) is tuple:
        return [resolved(item, get_args(bare)[0], folder) for item in raw]
    if not isinstance(raw, dict):
        return raw
    if suffix := extras.get("are_paths"):
        return {
            key: joined(folder, value)
            if isinstance(value, str) and str(key).endswith(suffix) and value != "probe"
            else value
            for key, value in raw.items()
        }
    options = get_args(bare) if get_origin(bare) in (types.UnionType, typing.Union) else (bare,)
    struct = next(
        (each for each in options if isinstance(each, type) and issubclass(each, msgspec.Struct)), None
    )
    if struct is None:
        return raw
    by_attribute = typing.get_type_hints(struct, include_extras=True)
    hints = {field.encode_name: by_attribute[field.name] for field in msgspec.structs.fields(struct)}
    return {
        key: resolved(value, hints[key], folder, f"{path}.{key}" if path else key, but=but)
        if key in hints
        else value
        for key, value in raw.items()
    }


def joined(folder: Path, text: str) -> str:
    """The path of a file that is named in a file of this folder; URLs and absolute paths stay as they are."""
    if not text or "://" in text or Path(text).is_absolute() or folder == Path():
        return text
    return str(folder / text)
