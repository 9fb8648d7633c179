"""The published interfaces of OpenLineage for nodes of JVM extensions."""

from __future__ import annotations

from pathlib import Path

from tests.parts import maven

__all__ = ["find_interfaces"]

_NAME = "spark-extension-interfaces"
_VERSION = "1.20.5"


def find_interfaces() -> Path:
    """The jar, with the client that it contains; raises Missing where it cannot be fetched."""
    return maven.jars(_NAME, f"io.openlineage:{_NAME}:{_VERSION}") / f"{_NAME}-{_VERSION}.jar"
