"""Checks values of the settings against each other."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator

from headwater.settings.settings import DestinationSettings, FieldSettings, Settings, TokenSettings


def inconsistencies(settings: Settings) -> Iterator[str]:
    """Yield a line for each inconsistency."""
    for name in _twice(outlet.name for outlet in settings.outlets):
        yield f"`outlets` has two named `{name}`; each needs a name of its own, which identifies its cursor"
    if not settings.gateway.host.strip():
        yield "`gateway.host` is empty; write 0.0.0.0 to listen on every address of this machine"
    keys = settings.gateway.key_texts
    if not all(key.strip() for key in keys):
        yield "`gateway.api_keys` has an empty key, which anyone could send; remove it or set its variable"
    if len(set(keys)) < len(keys):  # the message does not contain the key (G12)
        yield "`gateway.api_keys` has a key twice; one entry must have all of its namespaces"
    for i, network in enumerate(settings.gateway.trusted_proxies):
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            yield f"`gateway.trusted_proxies[{i}]` is not a network such as 10.0.0.0/8: {error}"
    if settings.gateway.max_event_bytes > settings.gateway.max_body_bytes:
        yield "`gateway.max_event_bytes` is larger than `gateway.max_body_bytes`"
    if settings.gateway.max_body_bytes > settings.gateway.max_pending_bytes:
        yield "`gateway.max_body_bytes` is larger than `gateway.max_pending_bytes`"
    if settings.log.partition_bytes * 2 > settings.log.retention_bytes:
        yield (
            "`log.retention_bytes` must be at least twice `log.partition_bytes`: "
            "space is freed one partition at a time"
        )
    yield from _of_folders(settings)
    yield from _of_tokens(settings.tokens)
    yield from _of_destinations(settings.destinations, {token.id for token in settings.tokens})
    if settings.events.kafka is not None:
        for i, destination in enumerate(settings.destinations):
            if destination.is_batch:
                yield (
                    f"`destinations[{i}].mode` is `{destination.mode}`, but with `events.kafka` there are no "
                    "files to load; set `mode: stream`"
                )


def _twice(names: Iterable[str]) -> list[str]:
    seen = list(names)
    return sorted({name for name in seen if seen.count(name) > 1})


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _of_folders(settings: Settings) -> Iterator[str]:
    folders = {
        "data_dir": settings.data_dir,
        "events.dir": settings.events.dir,
        "pipeline.staging_dir": settings.pipeline.staging_dir,
        "pipeline.lock.dir": settings.pipeline.lock.dir,
    }
    for key, folder in folders.items():
        if match := _URL.match(folder):  # the URL may have a secret, and is not in the message (G12)
            yield (
                f"`{key}` is a folder of this machine, and not a URL ({match[0]}…); for a cluster set "
                "`pipeline.staging_url`"
            )


def _of_tokens(tokens: tuple[TokenSettings, ...]) -> Iterator[str]:
    # lower case: on a file system that ignores case, two tokens would share their files
    for id in _twice(token.id.lower() for token in tokens):
        yield f"`tokens` has two with id `{id}`; each needs an id of its own, which names its files"
    for i, token in enumerate(tokens):
        if not (token.client_secret.strip() or token.server_secret.strip()):
            yield f"`tokens[{i}]` ({token.id}) has no secret; set `client_secret` or `server_secret`"
    secrets = [
        (token.id, secret) for token in tokens for secret in (token.client_secret, token.server_secret)
    ]
    shared = _twice(secret for _, secret in secrets if secret.strip())
    for secret in shared:  # the message does not contain the secret (G12)
        owners = ", ".join(sorted({id for id, other in secrets if other == secret}))
        yield f"`tokens` has a secret twice ({owners}); each client_secret and server_secret must differ"


def _of_destinations(destinations: tuple[DestinationSettings, ...], tokens: set[str]) -> Iterator[str]:
    for id in _twice(destination.id.lower() for destination in destinations):
        yield f"`destinations` has two with id `{id}`; each needs its own, which names its status"
    for i, destination in enumerate(destinations):
        for key in destination.only_keys:
            if key not in tokens:
                known = ", ".join(sorted(tokens)) or "none"
                yield f"`destinations[{i}].only_keys` names `{key}`, but no token has this id; known: {known}"
        if destination.mode == "both" and not destination.primary_key:
            yield (
                f"`destinations[{i}].mode` is `both`, and without a `primary_key` every event would be "
                "stored twice; set one, such as [eventn_ctx_event_id]"
            )
        for j, field in enumerate(destination.mappings.fields):
            for key in _missing(field):
                place = f"destinations[{i}].mappings.fields[{j}]"
                yield f"`{place}.{key}` is missing; `action: {field.action}` needs it"


def _missing(field: FieldSettings) -> Iterator[str]:
    if field.action in ("move", "remove") and not field.src:
        yield "src"
    if field.action in ("move", "constant") and not field.dst:
        yield "dst"
    if field.action == "cast" and not (field.src or field.dst):
        yield "src"
    if field.action == "cast" and not field.type:
        yield "type"
    if field.action == "constant" and field.value is None:
        yield "value"
