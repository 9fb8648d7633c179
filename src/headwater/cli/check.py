"""`headwater check`: what is wrong with the configuration, before a server starts with it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import click

from headwater.cli.check_pipeline import pipeline_findings
from headwater.cli.findings import Finding
from headwater.cli.options import as_json, log_folder, with_settings
from headwater.cli.tables import json_text
from headwater.delivery.outlets.base import load_outlet
from headwater.errors import HeadwaterError, OutletUnavailable
from headwater.gateway.failed import load_handler
from headwater.log.lock import is_locked
from headwater.log.rejects import Rejects
from headwater.settings import GatewaySettings, OutletSettings, Settings, TlsSettings

__all__ = ["command"]


@click.command("check")
@click.option(
    "--connect", is_flag=True, help="Also try to reach each outlet and destination; no event is sent."
)
@click.option(
    "--event",
    type=click.File("rb"),
    metavar="FILE",
    help="Print what the event in FILE (or -) would become at each destination, instead.",
)
@as_json
@with_settings
@click.pass_context
def command(
    ctx: click.Context, settings: Settings, connect: bool, event: IO[bytes] | None, as_json: bool
) -> None:
    """Say what is wrong with the configuration.

    Looks at every setting, the data folder, the port, TLS files, outlets, handlers, tokens and destinations;
    exit code 1 if there is a problem. With an event: its table, columns, types and values at each
    destination; nothing is stored.
    """
    if event is not None:
        from headwater.cli.check_event import show_event

        ctx.exit(0 if show_event(settings, event.read(), as_json) else 1)
    findings = list(_findings(settings, connect))
    problems = [finding for finding in findings if finding.level == "problem"]
    if as_json:
        click.echo(json_text({"ok": not problems, "findings": findings}))
    else:
        colours = {"ok": "green", "warning": "yellow", "problem": "red"}
        for finding in findings:
            click.echo(
                f"{click.style(finding.level, fg=colours[finding.level])}: {finding.about}: {finding.text}"
            )
    if problems:
        ctx.exit(1)


def _findings(settings: Settings, connect: bool) -> Iterator[Finding]:
    running = is_locked(log_folder(settings))
    yield _data_dir(settings, running)
    yield from _gateway(settings.gateway, running)
    if not settings.outlets and not settings.tokens and not settings.destinations:
        yield Finding(
            "outlets",
            "warning",
            "there are none; events are kept until the retention limits, and sent nowhere",
        )
    for outlet in settings.outlets:
        yield _outlet(outlet, connect)
    yield from pipeline_findings(settings, connect)


def _data_dir(settings: Settings, running: bool) -> Finding:
    folder = Path(settings.data_dir).resolve()
    if running:
        return Finding("data_dir", "ok", f"{folder} is in use by a running server")
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        return Finding("data_dir", "problem", f"{existing} is a file; name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("data_dir", "problem", f"{existing} cannot be written to by this user")
    disk = os.statvfs(existing)
    free = disk.f_bavail * disk.f_frsize
    if free < settings.log.retention_bytes:
        return Finding(
            "data_dir",
            "warning",
            f"{folder} has {free:,} bytes free, less than `log.retention_bytes`: "
            "during a long outage the disk fills up first, and producers are answered 507",
        )
    return Finding("data_dir", "ok", f"{folder}")


def _gateway(gateway: GatewaySettings, running: bool) -> Iterator[Finding]:
    address = f"{gateway.host}:{gateway.port}"
    if running:
        yield Finding("gateway", "ok", f"{address} (not tried: the server is running)")
    else:
        try:
            family = socket.getaddrinfo(gateway.host, gateway.port, type=socket.SOCK_STREAM)[0][0]
            with socket.socket(family, socket.SOCK_STREAM) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((gateway.host, gateway.port))
            yield Finding("gateway", "ok", f"{address} is free")
        except OSError as error:
            yield Finding("gateway", "problem", f"cannot listen on {address}: {error.strerror or error}")
    if gateway.tls is not None:
        yield _tls(gateway.tls)
    elif gateway.api_keys and gateway.host not in ("127.0.0.1", "::1", "localhost"):
        yield Finding("gateway.tls", "warning", "API keys travel in the clear without TLS")
    yield _failed_events(gateway.failed_events)


def _failed_events(name: str) -> Finding:
    # a handler is made with the rejects; with an empty store of its own it cannot touch the real one
    with tempfile.TemporaryDirectory() as folder:
        rejects = Rejects(Path(folder) / "rejects.db", max_bytes=1)
        try:
            load_handler(name, rejects).close()
        except HeadwaterError as error:
            return Finding("gateway.failed_events", "problem", str(error))
        finally:
            rejects.close()
    return Finding("gateway.failed_events", "ok", name)


def _tls(tls: TlsSettings) -> Finding:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        return Finding("gateway.tls", "problem", f"{tls.certificate}, {tls.key} cannot be used: {error}")
    return Finding("gateway.tls", "ok", tls.certificate)


def _reach_host(url: object, timeout_seconds: float | None) -> None:
    """An outlet over HTTP connects only when it has something to send; see whether anybody listens there."""
    parts = urlsplit(str(url or ""))
    if parts.hostname:
        port = parts.port or {"https": 443}.get(parts.scheme, 80)
        try:
            socket.create_connection((parts.hostname, port), timeout_seconds).close()
        except OSError as error:
            raise OutletUnavailable(f"{parts.hostname}:{port} cannot be reached: {error}.") from None


def _outlet(settings: OutletSettings, connect: bool) -> Finding:
    about = f"outlet {settings.name}"
    try:
        outlet = load_outlet(settings)
        if not connect:
            return Finding(about, "ok", f"type {settings.type}")

        async def reach() -> None:
            try:
                async with asyncio.timeout(settings.timeout_seconds or None):
                    await outlet.connect()
            finally:
                await outlet.close()

        asyncio.run(reach())
        _reach_host(getattr(outlet.options, "url", ""), settings.timeout_seconds or None)
    except HeadwaterError as error:
        return Finding(about, "problem", str(error))
    except TimeoutError:
        return Finding(about, "problem", f"no answer within {settings.timeout_seconds:g} s")
    except Exception as error:  # an outlet may be anybody's, and this command must tell of the others too
        return Finding(about, "problem", f"{type(error).__name__}: {error}")
    return Finding(about, "ok", f"type {settings.type}, reached")
