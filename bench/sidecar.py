"""`make bench-sidecar`: durable acknowledged events per second, side by side with peers, in one run.

- headwater: `headwater serve`, as a user starts it
- with the graph: `headwater serve --graph`, whose other process ingests the events meanwhile
- uvicorn: the same validator and the same log behind uvicorn (bench/asgi.py)
- group commit alone: the same bytes into the same log on the same disk, without HTTP and validation

Rounds alternate, so that whatever else the machine does hits all of them; medians are reported, as ratios.
Then: how fast an outlet delivers what was accepted, memory idle and under load with a backlog of 1 GB, and
the time from the start of the process to its first 200.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import orjson

from bench.samples import events
from headwater.log.queue.log import Log
from headwater.settings import LogSettings

CONNECTIONS = 128
BACKLOG_BYTES = 1_000_000_000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, *arguments], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()


def wait_for(port: int, path: str = "/healthz", seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        time.sleep(0.01)
    raise SystemExit(f"nothing listens on port {port} after {seconds} s ({path})")


def memory(pid: int, field: str = "VmRSS") -> float:
    """MB (10^6 bytes) of a process: resident now, or `VmHWM`, the most it ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"no {field} of process {pid}")


def configuration(folder: Path, port: int, outlets: list[dict[str, Any]]) -> str:
    path = folder / "headwater.yml"
    tree = {
        "data_dir": str(folder / "data"),
        "log_level": "error",
        "gateway": {"port": port},
        "outlets": outlets,
    }
    path.write_bytes(orjson.dumps(tree))  # JSON is YAML
    return str(path)


def load(port: int, seconds: float) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", str(port), str(seconds), str(CONNECTIONS)],
        check=True,
        capture_output=True,
    )
    result: dict[str, Any] = orjson.loads(done.stdout)
    if set(result["statuses"]) != {"200"}:
        raise SystemExit(f"answers other than 200: {result['statuses']}")
    return result


def loaded(pid: int, port: int, seconds: float) -> dict[str, Any]:
    """A load's figures, with the server's own CPU time per event: steady where the clock is not."""
    before = cpu_seconds(pid)
    result = load(port, seconds)
    result["cpu_us"] = (cpu_seconds(pid) - before) / result["total"] * 1e6
    return result


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def round_of_headwater(seconds: float, *options: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        settings = configuration(Path(folder), port, [])
        with process("-m", "headwater", "--config", settings, "serve", *options) as server:
            wait_for(port)
            return loaded(server.pid, port, seconds)


def round_of_uvicorn(seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        with process("-m", "bench.asgi", str(port), folder) as server:
            wait_for(port)
            return loaded(server.pid, port, seconds)


def round_of_commits(seconds: float) -> dict[str, Any]:
    """128 clients without a network: each appends its next event when the last one is on disk."""
    bodies = events(2000)
    over = threading.Event()
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(Path(folder))

        def answer(tokens: list[Any], error: Exception | None) -> None:
            nonlocal count
            assert error is None, error
            count += len(tokens)
            if not over.is_set():
                for token in tokens:
                    log.append([bodies[(token + count) % len(bodies)]], answer, token)

        for number in range(CONNECTIONS):
            log.append([bodies[number]], answer, number)
        time.sleep(min(1.0, seconds / 4))
        before, began = count, time.perf_counter()
        time.sleep(seconds)
        rate = (count - before) / (time.perf_counter() - began)
        over.set()
        log.close()
    return {"events_per_second": rate}


def drain_figures(seconds: float) -> dict[str, float]:
    """Events per second taken in while the receiver is down, then sent to it; then both at the same time.

    The receiver only cuts batches into events and keeps them: the sidecar is what is measured.
    """
    with tempfile.TemporaryDirectory() as name:
        folder, port, backend = Path(name), free_port(), free_port()
        outlets = [{"name": "backend", "type": "openlineage", "url": f"http://127.0.0.1:{backend}"}]
        with process("-m", "headwater", "--config", configuration(folder, port, outlets), "serve") as server:
            wait_for(port)
            taken = load(port, seconds)
            figures = {"intake": taken["events_per_second"]}
            with process("-m", "headwater.testing.openlineage_server", "--port", str(backend)):
                wait_for(backend)
                while (first := delivered(port)) == 0:  # until the outlet has noticed
                    time.sleep(0.02)
                began, cpu = time.perf_counter(), cpu_seconds(server.pid)
                while (last := delivered(port)) < 0.9 * taken["total"]:
                    time.sleep(0.02)
                figures["drained"] = (last - first) / (time.perf_counter() - began)
                figures["drain_cpu_us"] = (cpu_seconds(server.pid) - cpu) / (last - first) * 1e6
                while (last := delivered(port)) < taken["total"]:
                    time.sleep(0.02)
                at_once = load(port, seconds)
                figures["intake_while_draining"] = at_once["events_per_second"]
                figures["left_at_once"] = at_once["total"] - (delivered(port) - last)
        return figures


def metric(port: int, name: str) -> float:
    text = httpx2.get(f"http://127.0.0.1:{port}/metrics").text
    for line in text.splitlines():
        if line.startswith(f"headwater_{name}{{"):
            return float(line.rpartition(" ")[2])
    return 0.0


def delivered(port: int) -> float:
    # not the lag, which is brought up to date only once a second
    return metric(port, "delivery_events_delivered_total")


def lag(port: int) -> float:
    return metric(port, "delivery_lag_events")


def memory_figures(seconds: float) -> dict[str, float]:
    """Idle, then with a backlog of 1 GB, a dead receiver, and full load."""
    with tempfile.TemporaryDirectory() as name:
        folder, port, dead = Path(name), free_port(), free_port()
        outlets = [{"name": "dead", "type": "openlineage", "url": f"http://127.0.0.1:{dead}"}]
        path = configuration(folder, port, outlets)
        figures: dict[str, float] = {}
        with process("-m", "headwater", "--config", path, "serve") as server:
            wait_for(port)
            httpx2.post(f"http://127.0.0.1:{port}/api/v1/lineage", content=events(1)[0]).raise_for_status()
            time.sleep(2)
            figures["idle_mb"] = memory(server.pid)
        backlog(folder / "data" / "log")
        with process("-m", "headwater", "--config", path, "serve") as server:
            wait_for(port)
            time.sleep(2)
            figures["backlog_events"] = lag(port)
            load(port, seconds)
            figures["loaded_peak_mb"] = memory(server.pid, "VmHWM")
        return figures


def backlog(folder: Path) -> None:
    bodies, done = events(2000), 0
    log = Log.open(folder, LogSettings())
    while done < BACKLOG_BYTES:
        log.append_wait(bodies)
        done += sum(map(len, bodies))
    log.close()


def first_200(times: int) -> list[float]:
    """Seconds from the start of the process to the first acknowledged event."""
    body, taken = events(1)[0], []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            path = configuration(Path(folder), port, [])
            began = time.perf_counter()
            with process("-m", "headwater", "--config", path, "serve"):
                while True:
                    try:
                        httpx2.post(
                            f"http://127.0.0.1:{port}/api/v1/lineage", content=body
                        ).raise_for_status()
                        break
                    except httpx2.TransportError:
                        time.sleep(0.005)
                taken.append(time.perf_counter() - began)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    arguments = parser.parse_args()
    runs: dict[str, Callable[[float], dict[str, Any]]] = {
        "headwater": round_of_headwater,
        "with the graph": lambda seconds: round_of_headwater(seconds, "--graph"),
        "uvicorn": round_of_uvicorn,
        "group commit alone": round_of_commits,
    }
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    for number in range(arguments.rounds):
        for name, run in runs.items():
            print(f"round {number + 1} of {arguments.rounds}: {name} …", flush=True)
            rounds[name].append(run(arguments.seconds))
    rates = {name: statistics.median(r["events_per_second"] for r in done) for name, done in rounds.items()}
    size = statistics.mean(map(len, events(200)))
    print(
        f"\n{CONNECTIONS} connections, {size:.0f}-byte events, one worker, fsync before the answer, median:"
    )
    for name, rate in rates.items():
        extra = ""
        if "p99_ms" in rounds[name][0]:
            p50, p99 = (statistics.median(r[f"p{p}_ms"] for r in rounds[name]) for p in (50, 99))
            cpu = statistics.median(r["cpu_us"] for r in rounds[name])
            extra = f"   {cpu:4.0f} µs CPU/event   p50 {p50:5.1f} ms   p99 {p99:5.1f} ms"
        ratio = rates["headwater"] / rate
        print(f"  {name:20} {rate:9,.0f} events/s   headwater is {ratio:5.2f} x{extra}")
    print("drain …", flush=True)
    drain = drain_figures(arguments.seconds)
    print(
        f"  intake {drain['intake']:,.0f} events/s, drain {drain['drained']:,.0f} events/s"
        f" ({drain['drain_cpu_us']:.0f} µs CPU/event): {drain['drained'] / drain['intake']:.2f} x"
    )
    print(
        f"  both at once: intake {drain['intake_while_draining']:,.0f} events/s,"
        f" {drain['left_at_once']:,.0f} events not yet delivered at its end"
    )
    print("memory …", flush=True)
    figures = memory_figures(arguments.seconds)
    print(
        f"  idle {figures['idle_mb']:.1f} MB (aim 64), peak under load with a backlog of 1 GB"
        f" ({figures['backlog_events']:,.0f} events) {figures['loaded_peak_mb']:.1f} MB (aim 128)"
    )
    starts = first_200(5)
    print(f"  first 200 after {statistics.median(starts):.2f} s (median of {len(starts)}, aim 1 s)")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    report = {"rates": rates, "first_200": starts} | drain | figures
    report["machine"] = {"cores": os.cpu_count()}
    (results / "sidecar.json").write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
