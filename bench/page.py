"""CPU of the page: server and browser, for loading, tracing and dragging a graph: `make bench-page`.

1  Graphs of 13, 100 and 300 datasets with 20 columns each, around one dataset. The page draws at most 60
   boxes and stacks the others; so the drag is repeated with as many boxes in the document as datasets.
2  A catalogue of 100,000 datasets: a page of it, the next one, a filter, the latest updates, a search.

A load is measured with what the server remembers of its layout, and the first one without. The browser's CPU
is that of all its processes, which draw without a graphics card.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import psutil
from playwright.sync_api import Page, sync_playwright
from tests.page.browser.server import chromium, launch

from bench.graph import event, layers
from bench.report import Table, write_result
from bench.usage import cpu_seconds
from headwater.graph.ingest.import_files import import_events
from headwater.graph.store.database import GraphDatabase
from headwater.settings import GraphSettings
from headwater.testing.processes import HeadwaterProcess

__all__ = ["Figures", "run"]

SIZES = (13, 100, 300)
COLUMNS, CHILDREN, DEPTH = 20, 4, 5
LOADS, DRAGS, MOVES = 5, 3, 120
DATASETS = 100_000
NAMESPACE = "s3://warehouse"


class GraphCosts(msgspec.Struct):
    """Milliseconds of one graph; `drag_drawn_ms` is that of a document with as many boxes as datasets."""

    datasets: int
    boxes: int
    html_bytes: int
    first_server_ms: float
    load_server_ms: float
    load_browser_ms: float
    trace_server_ms: float
    trace_browser_ms: float
    drag_browser_ms: float
    drag_drawn_browser_ms: float


class Answer(msgspec.Struct):
    """Times of one view of the catalogue in milliseconds: until it was answered, and CPU of the server."""

    view: str
    p50_ms: float
    most_ms: float
    server_ms: float
    compressed_bytes: int


class Figures(msgspec.Struct):
    """All figures."""

    graphs: list[GraphCosts]
    catalogue_datasets: int
    catalogue: list[Answer]


def tree(size: int) -> Iterator[bytes]:
    """A graph of so many datasets around `centre`, half of them upstream and half downstream."""
    names = ["centre"]
    sides: dict[str, list[str]] = {"up": ["centre"], "down": ["centre"]}
    edges: list[tuple[str, str]] = []  # from, to
    while len(names) < size:
        for side, known in sides.items():
            if len(names) < size:
                parent, name = known[(len(known) - 1) // CHILDREN], f"{side}_{len(known):03d}"
                edges.append((name, parent) if side == "up" else (parent, name))
                names.append(name)
                known.append(name)
    inputs: dict[str, list[str]] = {}
    for source, target in edges:
        inputs.setdefault(target, []).append(source)
    for number, (target, sources) in enumerate(inputs.items(), 1):
        at = 1_760_000_000.0 + number
        yield event("COMPLETE", at, number, f"build_{target}", sources, target, number, COLUMNS)


def _serve(folder: Path, bodies: Iterator[bytes]) -> HeadwaterProcess:
    """A server on a graph of these events."""
    settings = {"gateway": {"port": 0}, "graph": {"enabled": True, "retention_days": 3650}}
    data = folder / "headwater-data" / "graph"
    data.mkdir(parents=True)
    database = GraphDatabase(data, GraphSettings(retention_days=3650))
    import_events(database, bodies)
    database.close()
    return HeadwaterProcess(folder, "serve", settings=settings).start()


class Costs:
    """CPU of the server and of the browser while something is done, in milliseconds."""

    def __init__(self, server: HeadwaterProcess, browser: psutil.Process) -> None:
        self._server, self._browser = server, browser

    def _now(self) -> tuple[float, float]:
        return cpu_seconds(self._server.pid), cpu_seconds(self._browser.pid)

    def of(self, work: Callable[[], object], times: int) -> tuple[float, float]:
        """The means of several times."""
        before = self._now()
        for _ in range(times):
            work()
        time.sleep(0.3)  # the browser draws on
        server, browser = self._now()
        return (server - before[0]) * 1000 / times, (browser - before[1]) * 1000 / times


def _settled(page: Page) -> None:
    page.locator("#board[data-ready]").wait_for()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def _drag(page: Page) -> None:
    board = page.locator("#board").bounding_box()
    assert board is not None
    x, y = board["x"] + board["width"] / 2, board["y"] + 30
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(MOVES):
        page.mouse.move(x + (step % 40) * 6, y + (step % 30) * 8)
    page.mouse.up()
    page.keyboard.press("0")
    _settled(page)


DRAW = """(count) => {
    const svg = document.querySelector('svg.graph'), boxes = [...svg.querySelectorAll('g.dataset')]
    const lines = [...svg.querySelectorAll('path.edge')]
    const { width, height } = svg.viewBox.baseVal
    for (let number = boxes.length; number < count; number++) {
        const box = boxes[number % boxes.length].cloneNode(true)
        box.setAttribute('transform', `translate(${number * 97 % width} ${number * 61 % height})`)
        svg.append(box)
        if (lines.length) svg.querySelector('g.edges').append(lines[number % lines.length].cloneNode(true))
    }
    return svg.querySelectorAll('g.dataset').length
}"""


def graph_costs(folder: Path, size: int) -> GraphCosts:
    """The costs of one graph."""
    with _serve(folder, tree(size)) as server, sync_playwright() as driver:
        address = f"{server.url}/lineage?namespace={NAMESPACE}&name=centre&depth={DEPTH}"
        with launch(driver) as browser:
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            costs = Costs(server, _process_of(browser.version))
            first = costs.of(lambda: httpx2.get(address, timeout=60).raise_for_status(), 1)

            def load() -> None:
                page.goto(address)
                _settled(page)

            load()
            loaded = costs.of(load, LOADS)
            boxes = page.locator("g.dataset").count()
            opened = f"{address}&open={page.locator('g.centre').get_attribute('data-key')}"

            def load_opened() -> None:
                page.goto(opened)
                _settled(page)

            def trace() -> None:
                load_opened()
                page.locator("g.centre a.row[data-column=column_0]").dispatch_event("click")
                page.locator("#trace-up").wait_for()
                _settled(page)

            whole = costs.of(trace, LOADS)
            plain = costs.of(load_opened, LOADS)
            traced = tuple(max(0.0, a - b) for a, b in zip(whole, plain, strict=True))
            load()
            dragged = costs.of(lambda: _drag(page), DRAGS)
            page.evaluate(DRAW, size)
            _settled(page)
            drawn = costs.of(lambda: _drag(page), DRAGS)
            html = len(httpx2.get(address, timeout=60).content)
    return GraphCosts(
        datasets=size,
        boxes=boxes,
        html_bytes=html,
        first_server_ms=first[0],
        load_server_ms=loaded[0],
        load_browser_ms=loaded[1],
        trace_server_ms=traced[0],
        trace_browser_ms=traced[1],
        drag_browser_ms=dragged[1],
        drag_drawn_browser_ms=drawn[1],
    )


def _process_of(version: str) -> psutil.Process:
    """The browser that this process started."""
    path = Path(chromium() or "chromium").resolve()
    for process in psutil.Process().children(recursive=True):
        if "--type=" not in " ".join(process.cmdline()) and path.name in " ".join(process.cmdline()[:1]):
            return process
    raise SystemExit(f"the browser {version} has no process")


def catalogue_costs(folder: Path, datasets: int, asked: int) -> list[Answer]:
    """The costs of views of a large catalogue."""
    found = []
    with _serve(folder, layers(datasets)) as server, httpx2.Client(base_url=server.url, timeout=60) as client:
        text = client.get("/catalogue").text
        following = re.search(r'href="(/catalogue\?after=[^"]+)"', text)
        assert following is not None
        views = {
            "first page": "/catalogue",
            "next page": following[1].replace("&amp;", "&"),
            "filtered by a name": "/catalogue?q=table_4321",
            "last updates": "/catalogue?sort=updated",
            "jobs": "/catalogue?kind=job",
            "search": "/search?q=table_4321",
            "home": "/",
        }
        for view, path in views.items():
            client.get(path)
            times, before = [], cpu_seconds(server.pid)
            for _ in range(asked):
                start = time.perf_counter()
                answer = client.get(path)
                times.append((time.perf_counter() - start) * 1000)
                answer.raise_for_status()
            busy = (cpu_seconds(server.pid) - before) * 1000 / asked
            size = int(answer.headers.get("content-length", 0))
            found.append(Answer(view, statistics.median(times), max(times), busy, size))
    return found


def run(sizes: tuple[int, ...] = SIZES, datasets: int = DATASETS, asked: int = 20) -> Figures:
    """All figures, in temporary folders."""
    graphs = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            graphs.append(graph_costs(Path(name), size))
    with tempfile.TemporaryDirectory() as name:
        return Figures(graphs, datasets, catalogue_costs(Path(name), datasets, asked))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", type=int, default=DATASETS)
    parser.add_argument("--asked", type=int, default=20, help="requests for each view of the catalogue")
    given = parser.parse_args()
    if chromium() is None:
        raise SystemExit("no Chromium is installed, such as Debian's package chromium")
    figures = run(datasets=given.datasets, asked=given.asked)
    graphs = figures.graphs
    table = Table("CPU, ms", *(f"{each.datasets} datasets" for each in graphs))
    rows: dict[str, Callable[[GraphCosts], Any]] = {
        "boxes drawn": lambda each: each.boxes,
        "HTML, KiB": lambda each: f"{each.html_bytes / 1024:.0f}",
        "load, server, nothing remembered": lambda each: f"{each.first_server_ms:.0f}",
        "load, server": lambda each: f"{each.load_server_ms:.0f}",
        "load, browser": lambda each: f"{each.load_browser_ms:.0f}",
        "trace, server": lambda each: f"{each.trace_server_ms:.0f}",
        "trace, browser": lambda each: f"{each.trace_browser_ms:.0f}",
        f"drag of {MOVES} moves, browser": lambda each: f"{each.drag_browser_ms:.0f}",
        "the same, all boxes in the document": lambda each: f"{each.drag_drawn_browser_ms:.0f}",
    }
    for name, figure in rows.items():
        table.row(name, *(figure(each) for each in graphs))
    print(table)
    print()
    known = f"{figures.catalogue_datasets:,} datasets"
    table = Table(known, "p50", "most", "CPU of the server", "compressed bytes")
    for answer in figures.catalogue:
        table.row(
            answer.view,
            f"{answer.p50_ms:.1f} ms",
            f"{answer.most_ms:.1f} ms",
            f"{answer.server_ms:.1f} ms",
            answer.compressed_bytes,
        )
    print(table)
    print(f"\nwritten to {write_result('page', figures)}")


if __name__ == "__main__":
    main()
