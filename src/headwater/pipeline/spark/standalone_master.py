"""Whether the master of a standalone cluster is there, and which Spark it runs.

Spark's own driver takes more than a minute to give up, and does not say why: neither that no process listens
at the address, nor that the master cannot read the messages of another version.
"""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Iterator

from headwater.pipeline.spark.java_runtime import SparkUnavailable
from headwater.settings import PipelineSettings

CONNECT_SECONDS = 5.0
PAGE_SECONDS = 2.0
PAGE_PORT = 8080
_SCHEME = "spark://"
_VERSION = re.compile(rb'class="version[^"]*"[^>]*>\s*(\d+\.\d+\.\d+[^<\s]*)')


def is_standalone(master: str) -> bool:
    """Whether the address is that of a standalone cluster."""
    return master.startswith(_SCHEME)


def check_master(settings: PipelineSettings) -> str:
    """The version of the cluster's Spark, empty if that is not known; SparkUnavailable if it is of no use."""
    if not is_standalone(settings.master):
        return ""
    reasons = []
    for host, port in _addresses(settings.master):
        try:
            socket.create_connection((host, port), CONNECT_SECONDS).close()
        except (OSError, UnicodeError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
            continue
        version = _version_of(host, int(settings.spark.get("spark.master.ui.port", PAGE_PORT)))
        _compare(version, settings.master)
        return version
    raise SparkUnavailable(
        f"no master of Spark answers at {settings.master}: {'; '.join(reasons)}.",
        hint="Check `pipeline.master` or `--master`, and that the master runs.",
    )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    """Hosts and ports; a cluster with stand-by masters has several."""
    for address in master.removeprefix(_SCHEME).split(","):
        host, _, port = address.strip().rpartition(":")
        if not host.strip("[]") or not port.isdigit():
            raise SparkUnavailable(
                f"{master} is not an address of a master.", hint="Write it as spark://host:7077."
            )
        yield host.strip("[]"), int(port)


def _version_of(host: str, port: int) -> str:
    """The version that the master's page shows; empty if there is no such page."""
    name = f"[{host}]" if ":" in host else host
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{name}:{port}/", timeout=PAGE_SECONDS) as answer:
            found = _VERSION.search(answer.read(64 * 1024))
    except (OSError, ValueError):
        return ""
    return found[1].decode() if found else ""


def _compare(version: str, master: str) -> None:
    from pyspark import __version__ as own

    if version and version.split(".")[:2] != own.split(".")[:2]:
        raise SparkUnavailable(
            f"the master at {master} runs Spark {version}, and this pipeline {own}; both need the same.",
            hint=f"Use a cluster of Spark {'.'.join(own.split('.')[:2])}.",
        )
