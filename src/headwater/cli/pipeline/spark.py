"""Starts the pipeline's Spark session, and installs lineage of its jobs where that is wanted.

The lineage events go to this installation's own gateway, through a spool on disk, so that a gateway that
restarts, or stops before the pipeline does, loses none of them.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.settings import GatewaySettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SPOOL = "lineage-spool"
# Staging folders exist for one cycle; without them the staged files of all cycles are one dataset.
SCRATCH = r"(?P<remove>/cycle-[0-9a-f]{32}(/[0-9a-f]{32})?)(?=/)"

with_lineage = click.option(
    "--lineage/--no-lineage",
    "lineage",
    default=None,
    help="Send lineage of the tables, or not; default: `pipeline.lineage.enabled`.",
)


def start_spark(settings: Settings, lineage: bool | None = False, application: str = "") -> SparkSession:
    """Start Spark, with its log in the data folder; `lineage` as for `install_pipeline_lineage`."""
    from headwater.pipeline.spark.session import start

    log_file = Path(settings.data_dir) / "spark.log"
    click.echo(f"starting Spark on {settings.pipeline.master} ({log_file}) ...", err=True)
    spark = start(settings.pipeline, log_file=log_file)
    install_pipeline_lineage(settings, spark, lineage, application)
    return spark


def install_pipeline_lineage(
    settings: Settings, spark: SparkSession, wanted: bool | None, application: str
) -> bool:
    """Install lineage into the session if `wanted`, or, if that is None, if the settings ask for it."""
    own = settings.pipeline.lineage
    if wanted is None:
        wanted = own.enabled if own.enabled is not None else bool(settings.graph.enabled)
    url = own.url or gateway_url(settings.gateway)
    if not wanted:
        return False
    if importlib.util.find_spec("openlineage") is None:
        logger.warning("No lineage of the pipeline's tables: run `pip install 'headwater[pipeline]'`.")
        return False
    if not url:
        logger.warning(
            "No lineage of the pipeline's tables: `gateway.port` is 0 or `gateway.tls` is set, so the "
            "gateway's address is unknown. Set `pipeline.lineage.url`."
        )
        return False
    import headwater.lineage

    logging.getLogger("openlineage").setLevel(logging.WARNING)  # It logs each new client.
    key = own.api_key or ("" if own.url else next(iter(settings.gateway.api_keys), ""))
    transport = {
        "type": "headwater.spool.SpoolTransport",
        "path": str((Path(settings.data_dir) / SPOOL).absolute()),
        "url": url,
        **({"api_key": key} if key else {}),
    }
    headwater.lineage.install(
        spark,
        transport=transport,
        namespace=own.namespace,
        app_name=application,
        job_name_from_description=True,
        dataset_remove_path=SCRATCH,
    )
    return True


def gateway_url(gateway: GatewaySettings) -> str:
    """The gateway's address on this machine; empty if the settings do not determine it."""
    if not gateway.port or gateway.tls is not None:
        return ""
    host = gateway.host
    try:
        address = ipaddress.ip_address(host)
        if address.is_unspecified:  # It listens on every address, so on loopback too.
            host = "127.0.0.1" if address.version == 4 else "::1"
    except ValueError:
        pass
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{gateway.port}"
