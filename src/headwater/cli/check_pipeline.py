"""The part of `headwater check` about events that become tables."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from headwater.cli.findings import Finding
from headwater.errors import HeadwaterError
from headwater.settings import DestinationSettings, KafkaSettings, PipelineSettings, Settings

__all__ = ["pipeline_findings"]

CONNECT_SECONDS = 5.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")
EXTRA = "pip install 'headwater[pipeline,java]'"


def pipeline_findings(settings: Settings, connect: bool) -> Iterator[Finding]:
    """What there is to say about tokens, event files, destinations and Spark; nothing where none is set."""
    if not settings.tokens and not settings.destinations:
        return
    yield _tokens(settings)
    yield _events_dir(settings)
    if settings.events.kafka is not None:
        yield _kafka(settings.events.kafka, connect)
    if not settings.destinations:
        text = "there are none; events are kept in files, and loaded nowhere"
        yield Finding("destinations", "warning", text)
        return
    if not all(importlib.util.find_spec(name) for name in ("pyspark", "jinja2", "pyarrow")):
        yield Finding("pipeline", "problem", f"the pipeline is not installed; type: {EXTRA}")
        return
    yield _java()
    if settings.pipeline.staging_url:
        yield _staging(settings.pipeline.staging_url, connect)
    for destination in settings.destinations:
        problems = list(_problems(destination, settings.pipeline, connect))
        about = f"destination {destination.id}"
        for problem in problems:
            yield Finding(about, "problem", problem.removeprefix(f"{about}: "))
        if not problems:
            reached = ", reached" if connect else ""
            yield Finding(about, "ok", f"type {destination.type}{reached}")


def _tokens(settings: Settings) -> Finding:
    ids = ", ".join(token.id for token in settings.tokens)
    if not ids:
        return Finding("tokens", "warning", "there are none; nobody can send events for the destinations")
    if settings.gateway.tls is None and settings.gateway.host not in LOOPBACK:
        return Finding("tokens", "warning", f"{ids}; their secrets travel in the clear without `gateway.tls`")
    return Finding("tokens", "ok", ids)


def _events_dir(settings: Settings) -> Finding:
    folder = settings.events_dir.resolve()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        return Finding("events.dir", "problem", f"{existing} is a file; name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("events.dir", "problem", f"{existing} cannot be written to by this user")
    return Finding("events.dir", "ok", str(folder))


def _kafka(settings: KafkaSettings, connect: bool) -> Finding:
    from headwater.log.topics import reach

    try:
        reach(settings, CONNECT_SECONDS if connect else 0.0)
    except HeadwaterError as error:
        return Finding("events.kafka", "problem", str(error))
    return Finding("events.kafka", "ok", settings.servers + (", reached" if connect else ""))


def _staging(url: str, connect: bool) -> Finding:
    from headwater.pipeline.object_store import ObjectFolder

    folder = ObjectFolder(url)
    try:
        folder.place()
        if connect:
            folder.check()
    except HeadwaterError as error:
        return Finding("pipeline.staging_url", "problem", str(error))
    return Finding("pipeline.staging_url", "ok", str(folder) + (", reached" if connect else ""))


def _java() -> Finding:
    from headwater.pipeline.java import find_java

    try:
        return Finding("pipeline", "ok", f"Java in {find_java().home}")
    except HeadwaterError as error:
        return Finding("pipeline", "problem", str(error))


def _problems(settings: DestinationSettings, pipeline: PipelineSettings, connect: bool) -> Iterator[str]:
    from headwater.pipeline import mapping
    from headwater.pipeline.enrich.base import load_enricher
    from headwater.pipeline.route import Template
    from headwater.warehouse.base import load_destination

    try:
        Template(settings.table_name_template)
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
    except Exception as error:  # a destination may be anybody's, and this command must tell of the others too
        yield f"{type(error).__name__}: {error}"
