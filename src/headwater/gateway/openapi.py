"""Placeholder until the description lands."""

from __future__ import annotations

from typing import Any

__all__ = ["DESCRIPTION"]

DESCRIPTION: dict[str, Any] = {"openapi": "3.1.0"}
