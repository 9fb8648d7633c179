"""Calls back for each new SparkContext, whether a session or the program creates it.

Does not import Spark: it patches Spark's modules when the program imports them. Light, since the environment
variable HEADWATER_LINEAGE loads it in every Python process, Spark's workers included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from headwater.lineage.process.exit_status import exit_status

_CONTEXTS = ("pyspark.core.context", "pyspark.context")  # of Spark 4 and of Spark 3
_CONNECT = "pyspark.sql.connect.session"

_on_context: Callable[[Any], None] | None = None
_on_connect: Callable[[Any], None] | None = None
_originals: list[tuple[type, str, Any]] = []
_finder: _Finder | None = None


def from_environment() -> None:
    """Install lineage for every session of this process; the .pth file calls it for HEADWATER_LINEAGE."""

    def context(made: Any) -> None:
        from headwater.lineage.process.install import attach_or_warn

        attach_or_warn(made)

    def connect(session: Any) -> None:
        from headwater.lineage.process.install import warn_of_connect

        warn_of_connect(session)

    hook_spark(context, connect)
    exit_status.install()  # before the script evaluates `sys.exit`


def hook_spark(context: Callable[[Any], None], connect: Callable[[Any], None]) -> None:
    """From now on call `context` with each new SparkContext, `connect` with each Connect session."""
    global _on_context, _on_connect, _finder
    _on_context, _on_connect = context, connect
    for name in (*_CONTEXTS, _CONNECT):
        if name in sys.modules:
            _patch(sys.modules[name])
    if _finder is None:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)


def unhook_spark() -> None:
    """Restore the originals."""
    global _on_context, _on_connect, _finder
    _on_context = _on_connect = None
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)
    if _finder is not None:
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        _finder = None


def _patch(module: ModuleType) -> None:
    exit_status.install()  # again: by the time a script imports Spark, `exit` exists
    if module.__name__ == _CONNECT:
        _wrap(getattr(module, "SparkSession", None), "__init__", lambda made: _call(_on_connect, made))
    elif getattr(getattr(module, "SparkContext", None), "__module__", None) == module.__name__:
        _wrap(module.SparkContext, "_do_init", lambda made: _call(_on_context, made))


def _wrap(owner: Any, name: str, after: Callable[[Any], None]) -> None:
    original = getattr(owner, name, None)
    if original is None or any(each[0] is owner for each in _originals):
        return

    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        after(self)
        return result

    wrapped.__name__, wrapped.__doc__ = original.__name__, original.__doc__
    wrapped.__wrapped__ = original  # type: ignore[attr-defined]
    _originals.append((owner, name, original))
    setattr(owner, name, wrapped)


def _call(target: Callable[[Any], None] | None, made: Any) -> None:
    if target is not None:
        try:
            target(made)
        except Exception as error:  # G10
            print(f"headwater: no lineage: {error}", file=sys.stderr)  # noqa: T201


class _Finder(MetaPathFinder):
    """Delegates to the other finders, and patches Spark's modules once they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in (*_CONTEXTS, _CONNECT):
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._inner.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        # the module must look unpatched
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        _patch(module)
