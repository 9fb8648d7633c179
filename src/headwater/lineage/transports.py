"""The transport that the settings ask for: one of openlineage-python's, by their own rules of precedence.

Keys of `spark.openlineage.transport` are those of the Java client; where the Python client has another word
for the same thing it is translated here.
"""

from __future__ import annotations

import logging
from typing import Any

from openlineage.client import OpenLineageClient

from headwater.lineage.settings import LineageSettings

__all__ = ["client"]

logger = logging.getLogger(__name__)

_SPOOL = "headwater.spool.SpoolTransport"
_WORDS = {
    "headers": "custom_headers",
    "location": "log_file_path",
    "topicName": "topic",
    "properties": "config",
}


def client(settings: LineageSettings) -> OpenLineageClient:
    """A client; raises what openlineage-python raises where its configuration cannot be used."""
    transport = _translated(settings.transport)
    if settings.spool:
        transport = _spooled(transport, settings.spool)
    if not transport.get("type"):
        return OpenLineageClient()  # openlineage.yml, OPENLINEAGE_URL and so on, as everywhere
    return OpenLineageClient(config={"transport": transport})


def _translated(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, dict) and key in ("transports", "transport"):
            found[key] = {
                name: _translated(each) if isinstance(each, dict) else each for name, each in value.items()
            }
        elif key == "timeoutInMillis":
            found["timeout"] = float(value) / 1000
        elif key == "urlParams":
            continue
        else:
            found[_WORDS.get(key, key)] = value
    if found.get("type") == "file":
        found.setdefault("append", True)  # one file of lines, as the Java client writes it
    for flag in ("append", "verify", "flush", "continue_on_failure"):
        if isinstance(found.get(flag), str):
            found[flag] = found[flag].strip().lower() == "true"
    return found


def _spooled(transport: dict[str, Any], path: str) -> dict[str, Any]:
    """The spool before an HTTP backend; others keep their events themselves, or cannot be spooled."""
    if not transport.get("type"):
        found = OpenLineageClient()
        config = getattr(found.transport, "config", None)
        if getattr(found.transport, "kind", None) != "http" or config is None:
            logger.warning("The spool needs an http transport; events go out without it.")
            return transport
        transport = {"type": "http", "url": config.url, "endpoint": config.endpoint}
        if key := getattr(config.auth, "api_key", None):
            transport["auth"] = {"type": "api_key", "apiKey": key}
    if transport["type"] != "http":
        logger.warning("The spool stands before an http transport only, not before %s.", transport["type"])
        return transport
    kept: dict[str, Any] = {}
    for key in ("url", "endpoint", "auth", "compression"):
        if key in transport:
            kept[key] = transport[key]
    if "custom_headers" in transport:
        kept["headers"] = transport["custom_headers"]
    return {"type": _SPOOL, "path": path, **kept}
