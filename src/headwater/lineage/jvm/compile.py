"""The agent's Java, compiled inside the driver's JVM by Janino, which every Spark has for its own code.

No jar, no build, no compiler to install. Units are compiled one by one, each on the class loader of the one
before: a unit that a Spark release does not accept costs its feature and a warning, not the agent. The
classes are cached on disk by source and Spark release: compiling takes a second, loading milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger(__name__)

PACKAGE = "headwater.lineage"
# In this order: a unit uses earlier units directly, and later or optional ones by reflection.
UNITS = (
    "JsonWriter",
    "MessageQueue",
    "SparkEventFilter",
    "Reflection",
    "SecretMask",
    "LakeVersions",
    "RddChain",
    "NodeFields",
    "PlanWriter",
    "LineageNodeCaller",
    "ScanMetrics",
    "Agent",
)
_REQUIRED = ("JsonWriter", "MessageQueue", "SparkEventFilter", "Agent")
_KEPT_FORM = 1


class Units(msgspec.Struct, frozen=True):
    """The compiled classes of one JVM: their loader, and the reasons why units are missing."""

    loader: Any
    missing: dict[str, str]

    def new(self, gateway: Any, unit: str, *arguments: Any) -> Any:
        """An instance by the only constructor."""
        constructor = self.loader.loadClass(f"{PACKAGE}.{unit}").getConstructors()[0]
        return constructor.newInstance(java_array(gateway, arguments))


class _Compiled(msgspec.Struct, frozen=True):
    """The cache file: bytecode by class name."""

    form: int
    classes: dict[str, bytes]
    missing: dict[str, str]


def load(context: SparkContext) -> Units:
    """The units in this JVM: loaded already, else from the cache, else compiled now.

    Raises what Janino or py4j raise if a required unit does not compile.
    """
    jvm: Any = context._jvm
    sources = _sources()
    digest = hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in sources.items()).encode())
    key = f"headwater.lineage.{digest.hexdigest()[:16]}"
    # py4j caches methods by class name: load a class once per JVM, not once per session
    found = jvm.java.lang.System.getProperties().get(key)
    if found is not None:
        return Units(found.get("loader"), dict(found.get("missing")))
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    kept = _kept(digest.hexdigest(), f"{context.version}-{jvm.scala.util.Properties.versionNumberString()}")
    units = _read(jvm, parent, kept)
    if units is None:
        units, classes = _compile(jvm, parent, sources)
        _write(kept, _Compiled(_KEPT_FORM, classes, units.missing))
    for unit, why in units.missing.items():
        logger.warning(
            "Lineage runs without %s, which does not compile on Spark %s: %s", unit, context.version, why
        )
    place = jvm.java.util.HashMap()
    place.put("loader", units.loader)
    place.put("missing", units.missing)
    jvm.java.lang.System.getProperties().put(key, place)
    return units


def java_array(gateway: Any, items: Sequence[Any]) -> Any:
    """An Object[], the form of the arguments of the JVM's reflection."""
    array = gateway.new_array(gateway.jvm.java.lang.Object, len(items))
    for place, item in enumerate(items):
        array[place] = item
    return array


def _sources() -> dict[str, str]:
    folder = files(__package__) / "java"
    found = {name: folder / f"{name}.java" for name in UNITS}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items() if path.is_file()}


def _compile(jvm: Any, parent: Any, sources: dict[str, str]) -> tuple[Units, dict[str, bytes]]:
    classes: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    loader = parent
    for name, text in sources.items():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        try:
            compiler.cook(text)
        except Exception as error:
            missing[name] = reason(error)
            if name in _REQUIRED:
                raise
            continue
        codes = compiler.getBytecodes()
        classes |= {str(each): bytes(codes.get(each)) for each in list(codes.keySet())}
        loader = compiler.getClassLoader()
    return Units(loader, missing), classes


def reason(error: Exception) -> str:
    """The JVM's message in one line, without py4j's own first line."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.getMessage() if cause is not None else error) or repr(error)
    return text.splitlines()[0][:500]


def _kept(digest: str, version: str) -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = f"lineage-{digest[:16]}-{version}".replace("/", "_")
    return Path(root).expanduser() / "headwater" / f"{name}.classes"


def _read(jvm: Any, parent: Any, kept: Path) -> Units | None:
    try:
        found = msgspec.msgpack.decode(kept.read_bytes(), type=_Compiled)
        # a user who can write there can change the package as well: only format and owner are checked
        if found.form != _KEPT_FORM or kept.stat().st_uid != os.getuid():
            return None
        codes = jvm.java.util.HashMap()
        for name, code in found.classes.items():
            codes.put(name, code)
        loader = jvm.org.codehaus.commons.compiler.util.reflect.ByteArrayClassLoader(codes, parent)
        loader.loadClass(f"{PACKAGE}.Agent")
        return Units(loader, found.missing)
    except FileNotFoundError:
        return None
    except Exception as error:
        logger.debug("%s cannot be used and is compiled again: %s", kept, error)
        return None


def _write(kept: Path, compiled: _Compiled) -> None:
    """Write by rename; without a writable home the next session compiles again."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=kept.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.msgpack.encode(compiled))
            Path(name).replace(kept)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except (OSError, RuntimeError) as error:
        logger.debug("Compiled classes are not kept: %s", error)
