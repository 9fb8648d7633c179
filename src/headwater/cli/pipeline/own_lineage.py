"""The loop is closed: the pipeline's own lineage goes to this installation's own gateway.

What Spark does for the pipeline is watched by `headwater.lineage` like anybody's job. Its events wait in a
spool on disk, so that a gateway that restarts, or stops before the pipeline does, costs none of them.
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

__all__ = ["gateway_url", "tell_own_lineage", "with_lineage"]

logger = logging.getLogger(__name__)

SPOOL = "lineage-spool"
# Folders of the staging that live for a cycle: what is written there is one dataset, not one each time.
SCRATCH = r"(?P<remove>/cycle-[0-9a-f]{32}(/[0-9a-f]{32})?)(?=/)"

with_lineage = click.option(
    "--lineage/--no-lineage",
    "lineage",
    default=None,
    help="Tell where the tables come from, or not; else as `pipeline.lineage.enabled` says.",
)


def tell_own_lineage(settings: Settings, spark: SparkSession, wanted: bool | None, application: str) -> bool:
    """Watch this session's jobs; `wanted` is the command line's word, None leaves it to the settings."""
    own = settings.pipeline.lineage
    if wanted is None:
        wanted = own.enabled if own.enabled is not None else bool(settings.graph.enabled)
    url = own.url or gateway_url(settings.gateway)
    if not wanted:
        return False
    if importlib.util.find_spec("openlineage") is None:
        logger.warning("No lineage of the pipeline's tables: type `pip install 'headwater[lineage]'`.")
        return False
    if not url:
        logger.warning(
            "No lineage of the pipeline's tables: `gateway.port` is 0, or its certificate is for a "
            "name that is not known here. Set `pipeline.lineage.url`."
        )
        return False
    import headwater.lineage

    logging.getLogger("openlineage").setLevel(logging.WARNING)  # it tells of each client that is made
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
    """Where this machine reaches the gateway; empty where that cannot be known from its settings."""
    if not gateway.port or gateway.tls is not None:
        return ""
    host = gateway.host
    try:
        address = ipaddress.ip_address(host)
        if address.is_unspecified:  # it listens everywhere, hence on loopback too
            host = "127.0.0.1" if address.version == 4 else "::1"
    except ValueError:
        pass
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{gateway.port}"
