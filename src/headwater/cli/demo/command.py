"""`headwater demo`: delivery while processes are killed, and events that become tables with lineage."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from headwater.cli.demo.delivery import DeliveryReport, run_delivery
from headwater.cli.demo.pipeline import LoadReport, is_possible, print_report, run_pipeline, show_page
from headwater.cli.output import echo, format_table, json_text
from headwater.system.installation import install_command


@click.command("demo")
@click.option("--events", default=200, show_default=True, type=click.IntRange(min=1), help="Events per step.")
@click.option(
    "--part",
    type=click.Choice(["sidecar", "pipeline", "both"]),
    default="both",
    show_default=True,
    help="`sidecar`: delivery during outages; `pipeline`: events into tables.",
)
@click.option("--lake", is_flag=True, help="Tables in Delta Lake, with their versions, instead of DuckDB.")
@click.option(
    "--page/--no-page", default=None, help="Then serve the page until Ctrl-C; default: in a terminal."
)
@click.option(
    "--keep-running", is_flag=True, help="Then run page and pipeline until Ctrl-C, for events of your own."
)
@click.option("--keep", is_flag=True, help="Keep the folder of the demo.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, for programs.")
@click.pass_context
def command(
    ctx: click.Context,
    events: int,
    part: str,
    lake: bool,
    page: bool | None,
    keep_running: bool,
    keep: bool,
    as_json: bool,
) -> None:
    """Deliver events while processes are killed, load events into tables, trace a column.

    Everything runs on this machine in a temporary folder. Exit code 1 if an acknowledged event is lost or out
    of order, or if the counts do not add up.
    """
    # SIGTERM ends the demo like Ctrl-C: with its processes and its folder
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    delivery: DeliveryReport | None = None
    load: LoadReport | None = None
    step = _Steps()
    try:
        if part != "pipeline":
            delivery = run_delivery(folder, events, step)
        if part != "sidecar":
            if is_possible(lake):
                (folder / "pipeline").mkdir()
                load = run_pipeline(folder / "pipeline", events, step, lake=lake)
            else:
                extras = ("pipeline", "java", *(("delta",) if lake else ()))
                step(f"the second half needs more packages: {install_command(*extras)}")
        if as_json:
            echo(json_text({"sidecar": delivery, "pipeline": load}))
        else:
            if delivery is not None:
                _print(delivery, folder if keep else None)
            if load is not None:
                print_report(load, folder / "pipeline" if keep else None)
        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if load is not None and (keep_running or (page if page is not None else is_terminal)):
            show_page(folder / "pipeline", with_pipeline=keep_running, lake=lake)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if not keep and not as_json:
        echo("The folder was removed; `headwater demo --keep` keeps it.")
    if (delivery and (delivery.lost or delivery.out_of_order)) or (load and not load.adds_up):
        ctx.exit(1)


class _Steps:
    """Prints a line per step with the seconds since the start, on stderr: stdout is for the result."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        echo(f"{time.monotonic() - self._started:5.1f} s  {text}", err=True)


def _print(delivery: DeliveryReport, folder: Path | None) -> None:
    rows = [
        ("sent", delivery.sent, "by the producer"),
        ("acknowledged", delivery.acknowledged, "answered 200, hence on disk (G1)"),
        ("delivered", delivery.delivered, "distinct events at the backend"),
        ("duplicates", delivery.duplicates, "sent again after a kill: at least once (G4)"),
        ("lost", delivery.lost, "acknowledged but not delivered (G3)"),
        ("out of order", delivery.out_of_order, "delivered before one acknowledged earlier (G2)"),
    ]
    echo()
    echo(format_table(("events", "", ""), rows))
    echo()
    echo(f"{delivery.seconds:.0f} seconds, {delivery.kills} kills.")
    if folder is not None:
        echo(f"configuration  {folder / 'headwater.yml'}   (try: headwater -c … status)")
        echo(f"log, rejects   {folder / 'data'}")
        echo(f"backend        {folder / 'received.ndjson'}   (the events that it received)")
        echo(f"output         {folder / 'sidecar.txt'}, {folder / 'backend.txt'}")
