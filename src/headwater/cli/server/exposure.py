"""What a configuration opens to other machines."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.settings import Settings
from headwater.system.network import is_loopback


def exposures(settings: Settings) -> Iterator[str]:
    """Yield a warning for what other machines may do without a key, and for what needs a key to be set."""
    gateway = settings.gateway
    if is_loopback(gateway.host):
        return
    place = f"`gateway.host` is {gateway.host}, which other machines can reach, and"
    if not gateway.api_keys:
        yield (
            f"{place} `gateway.api_keys` is empty: anyone who reaches the port can post lineage events. "
            "Set `gateway.api_keys`, or `gateway.host: 127.0.0.1`."
        )
    if not gateway.admin_token.strip():
        yield (
            f"{place} `gateway.admin_token` is empty: graph and page are refused to everyone, this machine "
            "included. Set `gateway.admin_token` to read them."
        )
