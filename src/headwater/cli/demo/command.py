"""`headwater demo`: events through a sidecar that is killed, and events that become tables."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import click

from headwater.cli.demo.pipeline import Tally, is_possible, print_tally, run_pipeline, show_page
from headwater.cli.demo.processes import Backend, Journey, Producer, Sidecar
from headwater.cli.output import format_table, json_text
from headwater.errors import HeadwaterError

__all__ = ["command"]

DRAIN_SECONDS = 45.0


@click.command("demo")
@click.option("--events", default=200, show_default=True, type=click.IntRange(min=1), help="Events per step.")
@click.option(
    "--part",
    type=click.Choice(["sidecar", "pipeline", "both"]),
    default="both",
    show_default=True,
    help="The sidecar with its outages, or events that become tables.",
)
@click.option(
    "--page/--no-page", default=None, help="Stay until Ctrl-C and serve the page; default: in a terminal."
)
@click.option("--keep", is_flag=True, help="Keep the folder with all that was made.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, for programs.")
@click.pass_context
def command(ctx: click.Context, events: int, part: str, page: bool | None, keep: bool, as_json: bool) -> None:
    """Send events through outages, make tables of others, count; trace columns.

    Everything happens in a temporary folder and on this machine. Exit code 1 if an acknowledged event was
    lost or out of order, or if the numbers do not add up.
    """
    folder = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    journey: Journey | None = None
    tally: Tally | None = None
    step = _Steps()
    try:
        if part != "pipeline":
            journey = _sidecar(folder, events, step)
        if part != "sidecar":
            if is_possible():
                tally = run_pipeline(folder, events, step)
            else:
                step("events become tables only with Spark: pip install 'headwater[pipeline,java]'")
        if as_json:
            click.echo(json_text({"sidecar": journey, "pipeline": tally}))
        else:
            if journey is not None:
                _print(journey, folder if keep else None)
            if tally is not None:
                print_tally(tally, folder if keep else None)
        if tally is not None and (page if page is not None else sys.stdin.isatty() and sys.stdout.isatty()):
            show_page(folder)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if not keep and not as_json:
        click.echo("The folder was removed; `headwater demo --keep` leaves it for you to look at.")
    if (journey and (journey.lost or journey.out_of_order)) or (tally and not tally.adds_up):
        ctx.exit(1)


def _sidecar(folder: Path, events: int, step: _Steps) -> Journey:
    started = time.monotonic()
    backend = Backend(folder)
    sidecar = Sidecar(folder, backend.url)
    try:
        journey = _run(backend, sidecar, events, step)
    finally:
        sidecar.stop()
        backend.stop()
    journey.seconds = time.monotonic() - started
    return journey


def _run(backend: Backend, sidecar: Sidecar, events: int, step: _Steps) -> Journey:
    step("starting a small OpenLineage backend, and the sidecar in front of it")
    backend.start()
    sidecar.start()
    producer = Producer(sidecar.url)

    step(f"sending {events} events with the openlineage-python client, plain")
    producer.send(events, "plain")
    step(f"sending {events} events, gzip")
    producer.send(events, "gzip")
    _wait(sidecar, producer)

    step("stopping the backend")
    backend.stop()
    step(f"sending {events} events all the same; the sidecar acknowledges them and keeps them")
    producer.send(events, "plain")
    step(f"    {sidecar.waiting():,} events are waiting on disk")

    step(f"sending {events} events while the sidecar is killed with kill -9 and started again")
    with producer.sending(events, "gzip"):
        producer.wait_for(events // 3)
        sidecar.kill()
        sidecar.start()
    step("starting the backend again")
    backend.start()
    step(f"sending {events} events while backend and sidecar are both killed with kill -9 and started again")
    with producer.sending(events, "plain"):
        producer.wait_for(events // 3)
        backend.kill()
        sidecar.kill()
        sidecar.start()
        backend.start()

    step("waiting until everything is delivered")
    _wait(sidecar, producer)
    producer.close()
    return producer.compare(backend.journal())


def _wait(sidecar: Sidecar, producer: Producer) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    while sidecar.waiting():
        if time.monotonic() > deadline:
            raise HeadwaterError(
                f"{sidecar.waiting()} of {producer.sent} events were not delivered in {DRAIN_SECONDS:g} s.",
                hint="Run it again with --keep and look at the folder it names.",
            )
        time.sleep(0.05)


class _Steps:
    """One plain line a step, with the seconds since the start, on stderr: stdout is for the result."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._started:5.1f} s  {text}", err=True)


def _print(journey: Journey, folder: Path | None) -> None:
    rows = [
        ("sent", journey.sent, "by the producer"),
        ("acknowledged", journey.acknowledged, "answered 200, hence on disk (G1)"),
        ("delivered", journey.delivered, "different events that the backend has"),
        ("duplicates", journey.duplicates, "sent again after a kill: at least once (G4)"),
        ("lost", journey.lost, "acknowledged but not delivered (G3)"),
        ("out of order", journey.out_of_order, "delivered before one acknowledged earlier (G2)"),
    ]
    click.echo()
    click.echo(format_table(("events", "", ""), rows))
    click.echo()
    click.echo(f"{journey.seconds:.0f} seconds, {journey.kills} kills.")
    if folder is not None:
        click.echo(f"configuration  {folder / 'headwater.yml'}   (try: headwater -c … status)")
        click.echo(f"log, rejects   {folder / 'data'}")
        click.echo(f"backend        {folder / 'received.ndjson'}   (what it received, in order)")
        click.echo(f"lines printed  {folder / 'sidecar.txt'}, {folder / 'backend.txt'}")
