"""A server with 300 outlets and 1,000 tokens: `make bench-many-parts`.

Each token gets an event, and each outlet sends one, so that every part has worked. Time to start is from the
process to the first 200; time to stop from SIGTERM to the exit, in which 1,000 event files are completed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import httpx2
import msgspec
import psutil

from bench.report import Table, write_result
from headwater.testing import OpenLineageServer
from headwater.testing.processes import HeadwaterProcess

__all__ = ["Figures", "run"]

OUTLETS, TOKENS = 300, 1_000
LIMIT_SECONDS = 300.0
EVENT = {
    "eventType": "COMPLETE",
    "eventTime": "2026-11-16T10:00:00Z",
    "producer": "https://example.com/bench",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "run": {"runId": "01941f29-7c00-7743-867b-1e1b4bd4ac2a"},
    "job": {"namespace": "bench", "name": "many-parts"},
}


class Figures(msgspec.Struct):
    """What so many parts cost."""

    outlets: int
    tokens: int
    threads: int
    rss_bytes: int
    start_seconds: float
    stop_seconds: float
    start_cpu_seconds: float
    cpu_seconds: float
    files: int
    exit_code: int | None


def run(folder: Path, outlets: int = OUTLETS, tokens: int = TOKENS) -> Figures:
    """Start the server, use every part, and stop it."""
    with OpenLineageServer() as backend:
        settings = {
            "gateway": {"port": 0},
            "outlets": [{"name": f"o{i}", "type": "openlineage", "url": backend.url} for i in range(outlets)],
            "tokens": [{"id": f"t{i}", "server_secret": f"secret-{i}"} for i in range(tokens)],
        }
        server = HeadwaterProcess(folder, "serve", settings=settings)
        began = time.perf_counter()
        with server:
            with httpx2.Client(base_url=server.url) as client:
                client.get("/healthz").raise_for_status()
                started = time.perf_counter() - began
                process = psutil.Process(server.pid)
                start_cpu = process.cpu_times()
                client.post("/api/v1/lineage", json=EVENT).raise_for_status()
                for i in range(tokens):
                    headers = {"X-Auth-Token": f"secret-{i}"}
                    client.post("/api/v1/s2s/event", json={"i": i}, headers=headers).raise_for_status()
            deadline = time.monotonic() + LIMIT_SECONDS
            while len(backend.events()) < outlets:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(backend.events())} of {outlets} outlets have sent")
                time.sleep(0.05)
            threads, rss = process.num_threads(), process.memory_info().rss
            cpu = process.cpu_times()
            began = time.perf_counter()
            code = server.stop(seconds=LIMIT_SECONDS)
            stopped = time.perf_counter() - began
    files = len(list((folder / "headwater-data" / "events" / "incoming").glob("incoming.tok=*.log")))
    return Figures(
        outlets=outlets,
        tokens=tokens,
        threads=threads,
        rss_bytes=rss,
        start_seconds=started,
        stop_seconds=stopped,
        start_cpu_seconds=start_cpu.user + start_cpu.system,
        cpu_seconds=cpu.user + cpu.system,
        files=files,
        exit_code=code,
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        print(f"many parts: {OUTLETS:,} outlets and {TOKENS:,} tokens ...", flush=True)
        figures = run(Path(folder))
    table = Table("", "threads", "memory", "start", "CPU of it", "stop", "CPU in all")
    table.row(
        "sidecar",
        figures.threads,
        f"{figures.rss_bytes / 1e6:.0f} MB",
        f"{figures.start_seconds:.1f} s",
        f"{figures.start_cpu_seconds:.1f} s",
        f"{figures.stop_seconds:.1f} s",
        f"{figures.cpu_seconds:.1f} s",
    )
    print(table)
    is_good = figures.files == TOKENS and figures.exit_code == 0
    print(f"{figures.files:,} event files complete: {'good' if is_good else 'NOT GOOD'}")
    print(f"written: {write_result('many_parts', figures)}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
