"""The transport of the settings: one of openlineage-python's, by its rules of precedence.

Keys of `spark.openlineage.transport` are those of the Java client; they are translated for the Python client.
Keys that neither openlineage-python nor the spool reads are logged, since both ignore them silently.
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

logger = logging.getLogger(__name__)

_SPOOL = "headwater.spool.SpoolTransport"
_WORDS = {
    "headers": "custom_headers",
    "location": "log_file_path",
    "topicName": "topic",
    "properties": "config",
    "continueOnFailure": "continue_on_failure",
}
# Keys of openlineage-python's http transport that are no fields of its configuration.
_HTTP = {"type", "name", "priority", "sslContext", "sslcontext"}
_ENDPOINT = "api/v1/lineage"


def client(settings: LineageSettings) -> OpenLineageClient:
    """A client; raises what openlineage-python raises for a configuration that is not valid."""
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
        elif plain == "withthreadpool":  # openlineage-python sends to one after the other
            _warn_of_unused([key])
        else:
            found[_WORDS.get(key, key)] = value
    if parameters:  # openlineage-python has no key for them, but its endpoint may have a query
        found["endpoint"] = f"{found.get('endpoint') or _ENDPOINT}?{urlencode(parameters)}"
    if found.get("type") == "http":
        _warn_of_unused(set(found) - _HTTP - {each.name for each in attr.fields(HttpConfig)})
    if found.get("type") == "file":
        found.setdefault("append", True)  # one file of lines, as in the Java client
    for flag in ("append", "verify", "flush", "continue_on_failure"):
        if isinstance(found.get(flag), str):
            found[flag] = found[flag].strip().lower() == "true"
    return found


def _spooled(transport: dict[str, Any], path: str) -> dict[str, Any]:
    """The spool before an HTTP backend; other transports are used without it."""
    if not transport.get("type"):
        found = OpenLineageClient()
        config = getattr(found.transport, "config", None)
        if getattr(found.transport, "kind", None) != "http" or config is None:
            logger.warning("The spool needs an http transport; events are sent without the spool.")
            return transport
        transport = {"type": "http", "url": config.url, "endpoint": config.endpoint}
        if key := getattr(config.auth, "api_key", None):
            transport["auth"] = {"type": "api_key", "apiKey": key}
    if transport["type"] != "http":
        logger.warning("The spool needs an http transport; %s is used without it.", transport["type"])
        return transport
    wanted = {"url", "endpoint", "auth", "compression"}
    kept: dict[str, Any] = {key: value for key, value in transport.items() if key in wanted}
    _warn_of_unused(set(transport) - set(kept) - {"type", "name", "custom_headers"}, " by the spool")
    if "?" in str(kept.get("endpoint")):
        kept["batch"] = "never"  # the path of a batch would come after the query
    if "custom_headers" in transport:
        kept["headers"] = transport["custom_headers"]
    return {"type": _SPOOL, "path": path, **kept}


def _warn_of_unused(keys: Iterable[str], by: str = "") -> None:
    for key in sorted(keys):
        logger.warning("Lineage setting transport.%s is not used%s.", key, by)
