"""`headwater check`: checks the configuration before a server starts with it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import click
import msgspec

from headwater.cli.options import as_json, log_folder, with_settings
from headwater.cli.output import echo, format_table, json_text
from headwater.cli.serve import Server
from headwater.cli.server import descriptors
from headwater.cli.server.exposure import exposures
from headwater.cli.server.left_over_readers import left_over_readers
from headwater.clock import SystemClock
from headwater.delivery.keys import Keys
from headwater.delivery.outlets.base import Outlet, load_outlet
from headwater.errors import HeadwaterError, LogTooNew, OutletUnavailable, SettingsError
from headwater.gateway.context import Context
from headwater.gateway.failed_events import load_handler
from headwater.gateway.senders.tokens import Sender, Token
from headwater.graph.store import database as graph_database
from headwater.graph.store import schema as graph_schema
from headwater.http.server import tls_context
from headwater.log.backup import refuse_half_restored
from headwater.log.last_start import LastStart, losing_changes
from headwater.log.orphans import has_left_over_files, left_over_queues, orphans
from headwater.log.queue.offline import stat
from headwater.log.rejects.store import RejectStore
from headwater.log.schema_versions import MIGRATED, other_versions
from headwater.settings import (
    DestinationSettings,
    GatewaySettings,
    KafkaSettings,
    OutletSettings,
    PipelineSettings,
    Settings,
    TlsSettings,
)
from headwater.system.durable_files import is_locked
from headwater.system.installation import install_command
from headwater.system.network import is_loopback
from headwater.system.permissions import find_denied, nearest, permission_hint

if TYPE_CHECKING:
    from headwater.pipeline.preview import Preview

CONNECT_SECONDS = 5.0  # for Kafka
VALUE_WIDTH = 60


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: its subject, its level, and what to do."""

    about: str
    level: Literal["ok", "warning", "problem"]
    text: str


@click.command("check")
@click.option(
    "--connect", is_flag=True, help="Also connect to outlets, destinations and Kafka; no event is sent."
)
@click.option(
    "--event",
    type=click.File("rb"),
    metavar="FILE",
    help="Instead, print the row of the event in FILE (or -) at each destination.",
)
@as_json
@with_settings
@click.pass_context
def command(
    ctx: click.Context, settings: Settings, connect: bool, event: IO[bytes] | None, as_json: bool
) -> None:
    """Check the configuration and list its problems.

    Checks every setting, the data folder, the port, TLS files, outlets, handlers, tokens and destinations;
    exit code 1 if there is a problem. With an event: its table, columns, types and values at each
    destination; nothing is stored.
    """
    if event is not None:
        ctx.exit(0 if _show_event(settings, event.read(), as_json) else 1)
    findings = list(_findings(settings, connect))
    problems = [finding for finding in findings if finding.level == "problem"]
    if as_json:
        echo(json_text({"ok": not problems, "findings": findings}))
    else:
        colours = {"ok": "green", "warning": "yellow", "problem": "red"}
        for finding in findings:
            click.secho(finding.level, fg=colours[finding.level], nl=False)
            echo(f": {finding.about}: {finding.text}")
    if problems:
        ctx.exit(1)


def _finding(about: str, check: Callable[[], str]) -> Finding:
    """Return the result of a check, which returns the text of its success or raises a HeadwaterError."""
    try:
        return Finding(about, "ok", check())
    except HeadwaterError as error:
        return Finding(about, "problem", str(error))


def server_findings(settings: Settings, connect: bool = False) -> Iterator[Finding]:
    """Check what `serve` uses; it refuses the settings exactly if one of the findings is a problem."""
    running = is_locked(log_folder(settings))
    parts = [_data_dir(settings, running), *_gateway(settings.gateway, running)]
    if parts[0].level != "problem":
        parts += [*_half_restored(settings), *_schema_versions(settings)]
    if all(each.level != "problem" for each in (parts[0], *(x for x in parts if x.about == "schema"))):
        changes = losing_changes(settings, LastStart.load(Path(settings.data_dir)))
        parts += [Finding("changed settings", "problem", text) for text in changes]
    if settings.tokens and settings.events.kafka is None:
        parts.append(_events_dir(settings))
    parts += [_outlet(outlet, connect) for outlet in settings.outlets]
    yield from parts
    if all(finding.level != "problem" for finding in parts):
        yield from _server(settings)


def _findings(settings: Settings, connect: bool) -> Iterator[Finding]:
    yield from server_findings(settings, connect)
    yield from _open_files(settings)
    for warning in exposures(settings):
        yield Finding("exposure", "warning", warning)
    with contextlib.suppress(LogTooNew):  # reported above
        yield from _readers(settings)
    if not settings.outlets and not settings.tokens and not settings.destinations:
        yield Finding(
            "outlets",
            "warning",
            "there are none; events are kept up to the retention limits and not forwarded",
        )
    with contextlib.suppress(OSError, ValueError, LogTooNew):  # what cannot be used is reported above
        yield from list(_waiting(settings))
    yield from _pipeline_findings(settings, connect)


def _readers(settings: Settings) -> Iterator[Finding]:
    if (folder := log_folder(settings)).exists():
        for warning in left_over_readers([reader.name for reader in stat(folder).readers], settings):
            yield Finding("readers", "warning", warning)


def _half_restored(settings: Settings) -> Iterator[Finding]:
    """The problem of a folder whose restore was interrupted."""
    try:
        refuse_half_restored(Path(settings.data_dir))
    except HeadwaterError as error:
        yield Finding("restore", "problem", str(error))
    except (OSError, ValueError):
        return  # a folder that cannot be used is reported elsewhere


def _schema_versions(settings: Settings) -> Iterator[Finding]:
    """Files that this release cannot open, or changes for good when it does."""
    with contextlib.suppress(OSError, ValueError):  # a folder that cannot be used is reported elsewhere
        data_dir = Path(settings.data_dir)
        graph = data_dir / "graph" / graph_database.FILE
        further = ((graph, len(graph_schema.MIGRATIONS)),)
        for each in list(other_versions(data_dir, settings.events_dir, further)):
            if each.is_newer and each.path == graph:
                text = (
                    f"{graph} has schema version {each.found}, and this release knows up to {each.known}; "
                    "the graph stands still: run the release that wrote it, or a newer one"
                )
                yield Finding("graph", "warning", text)
            elif each.is_newer:
                text = (
                    f"{each.path} has schema version {each.found}, and this release knows up to {each.known}"
                    "; run the release that wrote it, or a newer one"
                )
                yield Finding("schema", "problem", text)
            elif each.path.name in MIGRATED:
                text = (
                    f"the next start brings {each.path} from schema version {each.found} to {each.known}; "
                    "earlier releases refuse it then, and `headwater backup FOLDER` keeps a copy from before"
                )
                yield Finding("schema", "warning", text)


def _waiting(settings: Settings) -> Iterator[Finding]:
    """Compare the settings with what waits for the pipeline: it loads it, or refuses to start."""
    for orphan in orphans(settings):
        yield Finding("waiting events", "problem", str(orphan))
    for destination in left_over_queues(settings):
        who = "pipeline run" if settings.events.kafka is None else "pipeline stream"
        text = f"destination {destination.id} has events in a queue; the next `headwater {who}` loads them"
        yield Finding("waiting events", "warning", text)
    if has_left_over_files(settings):
        text = "event files wait for destinations in stream mode; `headwater pipeline stream` loads them"
        yield Finding("waiting events", "warning", text)


def _server(settings: Settings) -> Iterator[Finding]:
    """Build the server as `serve` does, in an empty folder and without Kafka, which `_kafka` checks."""
    with tempfile.TemporaryDirectory() as folder:
        events = msgspec.structs.replace(settings.events, dir="", kafka=None)
        server = Server(
            msgspec.structs.replace(settings, data_dir=folder, events=events),
            with_graph=settings.graph.enabled is not False,
        )
        try:
            asyncio.run(_composed(server))
        except HeadwaterError as error:
            yield Finding("server", "problem", str(error))
        except Exception as error:  # of an extension, or a defect: `serve` would end with it
            yield Finding("server", "problem", f"{type(error).__name__}: {error}")


async def _composed(server: Server) -> None:
    try:
        server.compose()
    finally:
        await server.close()


def _data_dir(settings: Settings, running: bool) -> Finding:
    folder = Path(settings.data_dir).resolve()
    if running:
        return Finding("data_dir", "ok", f"{folder} is in use by a running server")
    if reason := _unusable(folder, folder / "log", folder / "graph"):
        return Finding("data_dir", "problem", reason)
    if folder.exists() and folder.stat().st_mode & 0o007:
        text = f"every user of this machine can look into {folder}; run `chmod -R o= {folder}`"
        return Finding("data_dir", "warning", text)
    disk = os.statvfs(nearest(folder))
    free = disk.f_bavail * disk.f_frsize
    if free < settings.log.retention_bytes:
        return Finding(
            "data_dir",
            "warning",
            f"{folder} has {free:,} bytes free, less than `log.retention_bytes`: "
            "during a long outage the disk fills up first, and producers receive 507",
        )
    return Finding("data_dir", "ok", f"{folder}")


def _open_files(settings: Settings) -> Iterator[Finding]:
    needed, limit = descriptors.needed(settings), descriptors.limit()
    if needed > limit:
        text = (
            f"connections, outlets and tokens may open {needed:,} files, and the limit is {limit:,}; set "
            f"`LimitNOFILE={needed}` in the unit, `ulimit -Hn {needed}`, or lower `gateway.max_connections`"
        )
        yield Finding("open files", "warning", text)


def _events_dir(settings: Settings) -> Finding:
    folder = settings.events_dir.resolve()
    reason = _unusable(folder, folder / "incoming", folder / "archive", folder / "failed")
    return Finding("events.dir", "problem" if reason else "ok", reason or str(folder))


def _unusable(*folders: Path) -> str:
    """Return why a folder cannot be made or written to; empty if all can."""
    for folder in folders:
        if not nearest(folder).is_dir():
            return f"{nearest(folder)} is a file; name a folder"
    if denied := find_denied(folders):
        return f"this user may not use {denied}. {permission_hint(denied)}"
    return _cannot_be_made(folders[0])


def _cannot_be_made(folder: Path) -> str:
    """Return why a folder cannot be made; it is made, and removed again if it was not there."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made: {error.strerror}"
    finally:
        for path in missing:
            with contextlib.suppress(OSError):  # it was not made, or a server has begun to use it
                path.rmdir()
    return ""


def _gateway(gateway: GatewaySettings, running: bool) -> Iterator[Finding]:
    address = f"{gateway.host}:{gateway.port}"
    if running:
        yield Finding("gateway", "ok", f"{address} (not checked: the server is running)")
    else:
        try:
            family = socket.getaddrinfo(gateway.host, gateway.port, type=socket.SOCK_STREAM)[0][0]
            with socket.socket(family, socket.SOCK_STREAM) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((gateway.host, gateway.port))
            yield Finding("gateway", "ok", f"{address} is free")
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
            reason = getattr(error, "strerror", None) or error
            yield Finding("gateway", "problem", f"cannot listen on {address}: {reason}")
    if gateway.tls is not None:
        yield _finding("gateway.tls", partial(_tls, gateway.tls))
    elif gateway.api_keys and not is_loopback(gateway.host):
        yield Finding("gateway.tls", "warning", "API keys are sent unencrypted without TLS")
    yield _finding("gateway.failed_events", partial(_failed_events, gateway.failed_events))


def _tls(settings: TlsSettings) -> str:
    tls_context(settings)
    return settings.certificate


def _failed_events(name: str) -> str:
    # A handler receives the store of rejects: here an empty one, so that it cannot change the real one.
    with tempfile.TemporaryDirectory() as folder:
        rejects = RejectStore(Path(folder) / "rejects.db", max_bytes=1)
        try:
            load_handler(name, rejects).close()
        finally:
            rejects.close()
    return name


def _outlet(settings: OutletSettings, connect: bool) -> Finding:
    about = f"outlet {settings.name}"
    try:
        outlet = load_outlet(settings)
        Keys(settings.group_by)
        if connect:
            asyncio.run(_reach(outlet, settings.timeout_seconds or None))
    except HeadwaterError as error:
        return Finding(about, "problem", str(error))
    except TimeoutError:
        return Finding(about, "problem", f"no answer within {settings.timeout_seconds:g} s")
    except Exception as error:  # An outlet may be an extension, and the others must be checked too.
        return Finding(about, "problem", f"{type(error).__name__}: {error}")
    return Finding(about, "ok", f"type {settings.type}{', reached' if connect else ''}")


async def _reach(outlet: Outlet, timeout_seconds: float | None) -> None:
    async with asyncio.timeout(timeout_seconds):
        try:
            await outlet.connect()
        finally:
            await outlet.close()
    # An outlet over HTTP connects with its first event only.
    url = urlsplit(str(getattr(outlet.options, "url", "") or ""))
    if url.hostname:
        port = url.port or {"https": 443}.get(url.scheme, 80)
        try:
            socket.create_connection((url.hostname, port), timeout_seconds).close()
        except (OSError, UnicodeError) as error:
            raise OutletUnavailable(f"{url.hostname}:{port} cannot be reached: {error}.") from None


# --- the pipeline


def _pipeline_findings(settings: Settings, connect: bool) -> Iterator[Finding]:
    """Check tokens, event files, destinations and Spark; no findings if none is set."""
    if not settings.tokens and not settings.destinations:
        return
    yield _tokens(settings)
    if settings.events.kafka is not None:
        yield _kafka(settings.events.kafka, connect)
    if not settings.destinations:
        text = "there are none; events are stored in files and not loaded"
        yield Finding("destinations", "warning", text)
        return
    if not all(importlib.util.find_spec(name) for name in ("pyspark", "jinja2", "pyarrow")):
        missing = f"the pipeline is not installed; run `{install_command('pipeline', 'java')}`"
        yield Finding("pipeline", "problem", missing)
        return
    yield _java()
    if connect:
        yield from _master(settings.pipeline)
    yield _locks(settings)
    if settings.pipeline.staging_url:
        yield _staging(settings.pipeline.staging_url, connect)
    for destination in settings.destinations:
        problems = list(_problems(destination, settings.pipeline, connect))
        about = f"destination {destination.id}"
        for problem in problems:
            yield Finding(about, "problem", problem.removeprefix(f"{about}: "))
        if not problems and _is_open_to_browsers(settings, destination):
            text = (
                "anyone who has a client secret can name its tables; list those that the template may give "
                "in `tables`, such as `tables: [pageview, order_*]`"
            )
            yield Finding(about, "warning", text)
        elif not problems:
            reached = ", reached" if connect else ""
            yield Finding(about, "ok", f"type {destination.type}{reached}")


def _tokens(settings: Settings) -> Finding:
    ids = ", ".join(token.id for token in settings.tokens)
    if not ids:
        return Finding("tokens", "warning", "there are none, so no event can be posted for the destinations")
    if settings.gateway.tls is None and not is_loopback(settings.gateway.host):
        text = f"{ids}; their secrets are sent in clear text without `gateway.tls`"
        return Finding("tokens", "warning", text)
    return Finding("tokens", "ok", ids)


def _kafka(settings: KafkaSettings, connect: bool) -> Finding:
    from headwater.log.kafka.client import check_brokers
    from headwater.log.kafka.topics import new_producer

    def check() -> str:
        new_producer(settings)
        check_brokers(settings, CONNECT_SECONDS if connect else 0.0)
        return settings.servers + (", reached" if connect else "")

    return _finding("events.kafka", check)


def _staging(url: str, connect: bool) -> Finding:
    from headwater.pipeline.spark.storage import ObjectFolder

    def check() -> str:
        folder = ObjectFolder(url)
        folder.filesystem_and_path()
        if connect:
            folder.check()
        return str(folder) + (", reached" if connect else "")

    return _finding("pipeline.staging_url", check)


def _java() -> Finding:
    from headwater.pipeline.spark.java_runtime import find_java

    try:
        java = find_java()
    except HeadwaterError as error:
        return Finding("pipeline", "problem", str(error))
    if java.warning:
        return Finding("pipeline", "warning", java.warning)
    return Finding("pipeline", "ok", f"Java in {java.home}")


def _master(settings: PipelineSettings) -> Iterator[Finding]:
    from headwater.pipeline.spark.standalone_master import check_master, is_standalone

    def check() -> str:
        version = check_master(settings)
        return f"{settings.master}, reached" + (f", Spark {version}" if version else "")

    if is_standalone(settings.master):
        yield _finding("pipeline.master", check)


def _locks(settings: Settings) -> Finding:
    from headwater.destinations.locks import load_locks

    def check() -> str:
        load_locks(settings.pipeline.lock, settings.locks_dir)
        return settings.pipeline.lock.type

    return _finding("pipeline.lock", check)


def _is_open_to_browsers(settings: Settings, destination: DestinationSettings) -> bool:
    from headwater.pipeline.steps.table_rules import open_to_browsers
    from headwater.pipeline.steps.template import Template

    is_constant = Template(destination.table_name_template).constant is not None
    return open_to_browsers(settings, destination, is_constant=is_constant)


def _problems(settings: DestinationSettings, pipeline: PipelineSettings, connect: bool) -> Iterator[str]:
    from headwater.destinations.base import load_destination
    from headwater.pipeline.steps import mapping
    from headwater.pipeline.steps.enrich.base import load_enricher
    from headwater.pipeline.steps.route import Router
    from headwater.pipeline.steps.table_rules import TableRules
    from headwater.pipeline.steps.template import Template

    try:
        Router(
            Template(settings.table_name_template), max_identifier_length=63, rules=TableRules.of(settings)
        )
    except HeadwaterError as error:
        yield str(error)
    for problem in mapping.problems(settings.mappings):
        yield f"`mappings`: {problem}"
    for rule in settings.enrichment:
        try:
            load_enricher(rule.name, pipeline)
        except HeadwaterError as error:
            yield str(error)
    try:
        destination = load_destination(settings)
        if connect:
            destination.connect()
            destination.close()
    except HeadwaterError as error:
        yield str(error)
    except Exception as error:  # A destination may be an extension, and the others must be checked too.
        yield f"{type(error).__name__}: {error}"


# --- an event


def _show_event(settings: Settings, body: bytes, as_json: bool) -> bool:
    """Print the row that each destination would load; return whether all can. Nothing is stored."""
    if not settings.destinations:
        raise SettingsError(["`destinations` is empty; no destination could load the event"])
    from headwater.cli.pipeline import start_spark
    from headwater.pipeline.preview import preview

    logging.getLogger("py4j").setLevel(logging.WARNING)
    event = _enriched(settings, body)
    found = preview(settings, start_spark(settings), event)
    if as_json:
        echo(json_text(found))
    else:
        for each in found:
            _print(each)
    return not any(each.reason for each in found)


def _enriched(settings: Settings, body: bytes) -> bytes:
    """The event as the gateway would store it; an event with `_timestamp` was stored before."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HeadwaterError(
            f"This is not an event: {error}.", hint="Give a file with one JSON object in it."
        ) from None
    if "_timestamp" in fields or not settings.tokens:
        return body
    token = settings.tokens[0]
    is_server = not token.client_secret
    sender = Sender(Token(token, SystemClock()), is_server, token.id if is_server else token.client_secret)
    echo(f"enriched as a {'server' if is_server else 'browser'} event of token {token.id}", err=True)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    return Context(sender, "127.0.0.1", "headwater check", stamp).enrich(body)[0]


def _print(found: Preview) -> None:
    echo()
    if found.reason:
        echo(f"{found.destination}: rejected: {found.reason}")
        return
    if not found.table:
        echo(f"{found.destination}: skipped, since its template gives no table")
        return
    echo(f"{found.destination}: table {found.table}")
    rows = [(column.name, column.kind, column.sql_type, _short(column.value)) for column in found.columns]
    echo(format_table(("column", "kind", "type", "value"), rows))
    if found.unmapped:
        echo(f"_unmapped_data: {_short(found.unmapped)}")


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 1] + "…"
