"""The transport that the settings ask for: one of openlineage-python's, by their own rules of precedence.

Keys of `spark.openlineage.transport` are those of the Java client; where the Python client has another word
for the same thing it is translated here. What neither openlineage-python nor the spool would look at is told
in the log, since both pass over it in silence (G11).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

import attr
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpConfig

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
# Keys of openlineage-python's http transport that are no fields of its configuration.
_HTTP = {"type", "name", "priority", "sslContext", "sslcontext"}
_ENDPOINT = "api/v1/lineage"


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
    parameters: Any = None
    for key, value in given.items():
        plain = key.replace("_", "").lower()  # the environment has underscores and no capitals
        if isinstance(value, dict) and key in ("transports", "transport"):
            found[key] = {
                name: _translated(each) if isinstance(each, dict) else each for name, each in value.items()
            }
        elif plain == "timeoutinmillis":
            found["timeout"] = float(value) / 1000
        elif plain == "urlparams":
            parameters = value
        else:
            found[_WORDS.get(key, key)] = value
    if parameters:  # openlineage-python has no word for them; but its endpoint may have a query
        found["endpoint"] = f"{found.get('endpoint') or _ENDPOINT}?{urlencode(parameters)}"
    if found.get("type") == "http":
        _tell_unused(set(found) - _HTTP - {each.name for each in attr.fields(HttpConfig)})
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
    wanted = {"url", "endpoint", "auth", "compression"}
    kept: dict[str, Any] = {key: value for key, value in transport.items() if key in wanted}
    _tell_unused(set(transport) - set(kept) - {"type", "name", "custom_headers"}, " by the spool")
    if "?" in str(kept.get("endpoint")):
        kept["batch"] = "never"  # the path of a batch would end up behind the query
    if "custom_headers" in transport:
        kept["headers"] = transport["custom_headers"]
    return {"type": _SPOOL, "path": path, **kept}


def _tell_unused(keys: Iterable[str], by: str = "") -> None:
    for key in sorted(keys):
        logger.warning("Lineage setting transport.%s is not used%s.", key, by)
