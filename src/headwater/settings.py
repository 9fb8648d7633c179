"""The configuration: one typed tree, read from `headwater.yml`.

Each field is declared once, with its default and its meaning; docs/settings.md is generated from here.
`${env.NAME}` and `${env.NAME|default}` are replaced in any value. An unknown key is refused and the nearest
known one is named.
"""

from __future__ import annotations

import difflib
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
import yaml

from headwater.errors import SettingsError

__all__ = [
    "GatewaySettings",
    "LogSettings",
    "MetricsSettings",
    "OutletSettings",
    "RetrySettings",
    "Settings",
    "StatsdSettings",
    "TlsSettings",
    "convert",
    "load",
    "parse",
]

S = TypeVar("S", bound=msgspec.Struct)
MIB = 1024 * 1024

Bytes = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Hours = Annotated[float, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


def _doc(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS for the gateway; without it the gateway speaks plain HTTP."""

    certificate: Annotated[str, _doc("PEM file with the certificate and its chain.")]
    key: Annotated[str, _doc("PEM file with the private key.")]
    client_ca: Annotated[str, _doc("PEM file; where set, clients must show a certificate signed by it.")] = ""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where events come in."""

    host: Annotated[str, _doc("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, _doc("Port to listen on; 0 takes a free one.")] = 8750
    tls: Annotated[TlsSettings | None, _doc("TLS; null for plain HTTP.")] = None
    api_keys: Annotated[
        tuple[str, ...], _doc("Bearer keys that producers must show; empty: none is asked for.")
    ] = ()
    strict: Annotated[
        bool, _doc("Refuse what the official schemas refuse; off, a bad `format: uri` is only a warning.")
    ] = False
    failed_events: Annotated[
        str, _doc("Handler of non-compliant events: `rejects`, `log`, `both`, or an extension's name.")
    ] = "rejects"
    max_event_bytes: Annotated[Bytes, _doc("Largest event, after decompression; larger: 413.")] = 1 * MIB
    max_body_bytes: Annotated[Bytes, _doc("Largest request body, after decompression; larger: 413.")] = (
        16 * MIB
    )
    max_batch_events: Annotated[Count, _doc("Most events in one batch; more: 413.")] = 10_000
    max_depth: Annotated[Count, _doc("Deepest nesting of an event; deeper: 400.")] = 100
    max_keys: Annotated[Count, _doc("Most object keys in an event; more: 400.")] = 50_000
    max_connections: Annotated[Count, _doc("Open connections; further ones are answered 503.")] = 1_000
    max_pending_bytes: Annotated[
        Bytes, _doc("Bytes of requests in memory that wait for the disk; beyond it: 503 with Retry-After.")
    ] = 32 * MIB
    request_timeout_seconds: Annotated[Seconds, _doc("A request must arrive whole within this time.")] = 30.0
    idle_timeout_seconds: Annotated[Seconds, _doc("A connection without a request is closed after it.")] = (
        75.0
    )
    shutdown_timeout_seconds: Annotated[Seconds, _doc("Time for what is under way when stopped.")] = 20.0


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much is kept."""

    partition_bytes: Annotated[Bytes, _doc("A partition file is closed at this size on disk.")] = 64 * MIB
    partition_hours: Annotated[Hours, _doc("A partition file is closed at this age.")] = 1.0
    retention_hours: Annotated[
        Hours, _doc("T: events are kept at least this long for a receiver that is away, then dropped.")
    ] = 168.0
    retention_bytes: Annotated[
        Bytes, _doc("B: bytes on disk; beyond it the oldest partitions are dropped, delivered or not.")
    ] = 4096 * MIB
    max_commit_bytes: Annotated[Bytes, _doc("Most bytes of events in one group commit.")] = 4 * MIB
    collect_seconds: Annotated[Seconds, _doc("Pause between two collections of what may go.")] = 10.0
    rejects_bytes: Annotated[Bytes, _doc("Bytes of rejects kept; beyond it the oldest are dropped.")] = (
        256 * MIB
    )


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an outlet waits before it tries again. It tries for ever: the log holds the events."""

    initial_seconds: Annotated[Seconds, _doc("First pause.")] = 0.5
    max_seconds: Annotated[Seconds, _doc("Longest pause.")] = 30.0
    multiplier: Annotated[float, msgspec.Meta(ge=1), _doc("Growth from one pause to the next.")] = 2.0
    jitter: Annotated[
        float, msgspec.Meta(ge=0, le=1), _doc("Each pause is varied at random by up to this part of it.")
    ] = 0.5
    max_retry_after_seconds: Annotated[Seconds, _doc("A receiver's Retry-After is honoured up to this.")] = (
        3600.0
    )


class OutletSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One receiver of the events. Keys that are not listed here are the outlet type's own."""

    name: Annotated[
        str,
        msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"),
        _doc("Names the outlet's cursor; keep it when you change the rest."),
    ]
    type: Annotated[str, _doc("`openlineage`, `file`, `console`, or an extension's name.")]
    start: Annotated[
        Literal["earliest", "latest"],
        _doc("Where a new outlet begins: all that is kept, or only new events."),
    ] = "earliest"
    on_refused: Annotated[
        Literal["reject", "block"],
        _doc("An event the receiver refuses for good: put it into the rejects, or retry it for ever."),
    ] = "reject"
    max_batch_events: Annotated[Count, _doc("Most events in one request.")] = 500
    max_batch_bytes: Annotated[Bytes, _doc("Most bytes of events in one request.")] = 4 * MIB
    batch_age_seconds: Annotated[
        Seconds, _doc("A batch that is not full is sent when its first event has waited this long.")
    ] = 0.0
    group_by: Annotated[
        tuple[str, ...],
        _doc(
            "JSON pointers such as `/run/runId`; events that differ in them go in sessions of their own, "
            "with order kept within each. Empty: one session, total order."
        ),
    ] = ()
    max_in_flight: Annotated[Count, _doc("Requests under way at once; one session never has two.")] = 16
    session_budget_bytes: Annotated[Bytes, _doc("Most bytes of events that one session holds in memory.")] = (
        8 * MIB
    )
    budget_bytes: Annotated[Bytes, _doc("Most bytes of events that the outlet holds in memory in all.")] = (
        32 * MIB
    )
    recovery_seconds: Annotated[
        Seconds,
        _doc("Without a log: a session in error takes new events again after this time at the latest."),
    ] = 300.0
    timeout_seconds: Annotated[Seconds, _doc("A request must be answered within this time; 0: no limit.")] = (
        30.0
    )
    retry: Annotated[RetrySettings, _doc("Pauses between tries.")] = RetrySettings()
    options: Annotated[dict[str, Any], _doc("The type's own settings.")] = msgspec.field(default_factory=dict)


class StatsdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the numbers are sent by UDP, beside `/metrics`."""

    host: Annotated[str, _doc("Host of the statsd server.")] = "127.0.0.1"
    port: Annotated[Port, _doc("Its UDP port.")] = 8125
    prefix: Annotated[str, _doc("First part of each name.")] = "headwater"
    interval_seconds: Annotated[float, msgspec.Meta(gt=0), _doc("Pause between two publications.")] = 10.0


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the numbers are published."""

    openmetrics: Annotated[bool, _doc("Serve `GET /metrics`.")] = True
    statsd: Annotated[StatsdSettings | None, _doc("Send to a statsd server; null: do not.")] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration."""

    data_dir: Annotated[str, _doc("Folder of the log and the rejects.")] = "./headwater-data"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _doc("Least severe line that is printed.")
    ] = "info"
    log_format: Annotated[Literal["text", "json"], _doc("Form of the lines.")] = "text"
    gateway: Annotated[GatewaySettings, _doc("Where events come in.")] = GatewaySettings()
    log: Annotated[LogSettings, _doc("How long and how much is kept.")] = LogSettings()
    outlets: Annotated[tuple[OutletSettings, ...], _doc("Who receives the events.")] = ()
    metrics: Annotated[MetricsSettings, _doc("How the numbers are published.")] = MetricsSettings()


def load(path: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of `path`, else of $HEADWATER_CONFIG, else of ./headwater.yml, else the defaults."""
    chosen = (
        path
        or environ.get("HEADWATER_CONFIG")
        or ("headwater.yml" if Path("headwater.yml").exists() else None)
    )
    if chosen is None:
        return Settings()
    try:
        text = Path(chosen).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"cannot be read: {error}"], source=str(chosen)) from None
    return parse(text, environ, source=str(chosen))


def parse(text: str, environ: Mapping[str, str] = os.environ, *, source: str = "settings") -> Settings:
    """The settings that a YAML text describes; all problems are raised together as one SettingsError."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError([f"is not YAML: {error}"], source=source) from None
    raw = {} if raw is None else raw
    problems: list[str] = []
    if not isinstance(raw, dict):
        raise SettingsError([f"must be a mapping, not {type(raw).__name__}"], source=source)
    # a section whose lines are all commented out is read as null, and means the defaults
    raw = _interpolate({key: value for key, value in raw.items() if value is not None}, environ, "", problems)
    if isinstance(raw.get("outlets"), list):
        raw["outlets"] = [_split_options(outlet) for outlet in raw["outlets"]]
    problems += _problems(raw, Settings, "")
    if problems:
        raise SettingsError(problems, source=source)
    settings = _convert(raw, Settings, source)
    problems = list(_contradictions(settings))
    if problems:
        raise SettingsError(problems, source=source)
    return settings


def convert(raw: Mapping[str, Any], kind: type[S], *, source: str) -> S:
    """Turn an extension's own settings into its Struct, with the same checks as for the whole tree."""
    if problems := list(_problems(dict(raw), kind, "")):
        raise SettingsError(problems, source=source)
    return _convert(dict(raw), kind, source)


def _convert(raw: dict[str, Any], kind: type[S], source: str) -> S:
    try:
        # not strict: an interpolated `${env.PORT}` is text and still has to become a number
        return msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError([re.sub(r"`\$\.?(.*?)`", r"`\1`", str(error))], source=source) from None


def _split_options(outlet: Any) -> Any:
    if not isinstance(outlet, dict):
        return outlet
    known = {field.encode_name for field in msgspec.structs.fields(OutletSettings)} - {"options"}
    own = {key: value for key, value in outlet.items() if key not in known and key != "options"}
    return {key: outlet[key] for key in outlet if key in known} | {
        "options": own | (outlet.get("options") or {})
    }


_REFERENCE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)(?:\|([^}]*))?\}")


def _interpolate(value: Any, environ: Mapping[str, str], path: str, problems: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolate(item, environ, f"{path}.{key}", problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolate(item, environ, f"{path}[{i}]", problems) for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name in environ:
            return environ[name]
        if default is None:
            problems.append(
                f"`{path.lstrip('.')}` needs the environment variable {name}: set it, "
                f"or give a default as ${{env.{name}|default}}"
            )
        return default or ""

    return _REFERENCE.sub(replace, value)


def _problems(raw: Any, kind: Any, path: str) -> Iterator[str]:
    """A line for each key that no field takes, with the nearest one that exists, and for each bad value.

    msgspec alone stops at the first; a person who mends a file wants to see all.
    """
    struct = _struct(kind)
    if struct is None or not isinstance(raw, dict):
        items = (
            get_args(_bare(kind))[:1] if get_origin(_bare(kind)) is tuple and isinstance(raw, list) else ()
        )
        if items and _struct(items[0]) is not None:
            for i, item in enumerate(raw):
                yield from _problems(item, items[0], f"{path}[{i}]")
        else:
            yield from _mismatch(raw, kind, path)
        return
    hints = typing.get_type_hints(struct, include_extras=True)
    prefix = f"{path}." if path else ""
    for key, value in raw.items():
        if key in hints:
            yield from _problems(value, hints[key], f"{prefix}{key}")
            continue
        near = difflib.get_close_matches(str(key), hints, n=1)
        guess = f"did you mean `{prefix}{near[0]}`?" if near else f"known are {', '.join(sorted(hints))}."
        yield f"`{prefix}{key}` is not a setting; {guess}"
    for field in msgspec.structs.fields(struct):
        if field.required and field.encode_name not in raw:
            yield f"`{prefix}{field.encode_name}` is missing"


def _mismatch(raw: Any, kind: Any, path: str) -> Iterator[str]:
    try:
        msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError as error:
        text, _, inner = str(error).partition(" - at ")
        yield f"`{path}{inner.strip('`').removeprefix('$')}`: {text[:1].lower()}{text[1:]}"


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _struct(kind: Any) -> type[msgspec.Struct] | None:
    bare = _bare(kind)
    options = get_args(bare) if get_origin(bare) in (types.UnionType, typing.Union) else (bare,)
    for option in options:
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None


def _contradictions(settings: Settings) -> Iterator[str]:
    names = [outlet.name for outlet in settings.outlets]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"`outlets` has two of the name `{name}`; each needs its own, since the cursor goes by it"
    if not all(key.strip() for key in settings.gateway.api_keys):
        yield "`gateway.api_keys` has an empty key, which anybody could show; remove it or set its variable"
    if settings.gateway.max_event_bytes > settings.gateway.max_body_bytes:
        yield "`gateway.max_event_bytes` is larger than `gateway.max_body_bytes`"
    if settings.gateway.max_body_bytes > settings.gateway.max_pending_bytes:
        yield "`gateway.max_body_bytes` is larger than `gateway.max_pending_bytes`: it could never be taken"
    if settings.log.partition_bytes * 2 > settings.log.retention_bytes:
        yield (
            "`log.retention_bytes` must be at least twice `log.partition_bytes`: "
            "space is given back a whole partition at a time"
        )
    if settings.log.partition_hours > settings.log.retention_hours:
        yield "`log.partition_hours` is longer than `log.retention_hours`"
