"""`headwater demo`: a sidecar, a backend, a producer with the real openlineage-python client, and kill -9."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import click

from headwater.cli.demo_parts import Backend, Journey, Producer, Sidecar
from headwater.cli.tables import format_table, json_text
from headwater.errors import HeadwaterError

__all__ = ["command"]

DRAIN_SECONDS = 45.0


@click.command("demo")
@click.option("--events", default=200, show_default=True, type=click.IntRange(min=1), help="Events per step.")
@click.option("--keep", is_flag=True, help="Keep the folder with the log and the journal.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, for programs.")
@click.pass_context
def command(ctx: click.Context, events: int, keep: bool, as_json: bool) -> None:
    """Send events through outages and kill -9, and count them.

    Everything happens in a temporary folder and on this machine. Exit code 1 if an acknowledged event was
    lost or out of order.
    """
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    backend = Backend(folder)
    sidecar = Sidecar(folder, backend.url)
    try:
        journey = _run(backend, sidecar, events)
        journey.seconds = time.monotonic() - started
    finally:
        sidecar.stop()
        backend.stop()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        click.echo(json_text(journey))
    else:
        _print(journey, folder if keep else None)
    if journey.lost or journey.out_of_order:
        ctx.exit(1)


def _run(backend: Backend, sidecar: Sidecar, events: int) -> Journey:
    step = _Steps()
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
    if folder is None:
        click.echo("The folder was removed; `headwater demo --keep` leaves it for you to look at.")
    else:
        click.echo(f"configuration  {folder / 'headwater.yml'}   (try: headwater -c … status)")
        click.echo(f"log, rejects   {folder / 'data'}")
        click.echo(f"backend        {folder / 'received.ndjson'}   (what it received, in order)")
        click.echo(f"lines printed  {folder / 'sidecar.txt'}, {folder / 'backend.txt'}")
