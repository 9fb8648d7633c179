"""Limits open connections, in all and per address, and admits a few surplus ones for probes (G8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

from headwater.http import response as responses
from headwater.http.response import Response
from headwater.settings import GatewaySettings
from headwater.system.network import ClientAddresses, address_block

# A probe sends its request at once and is answered within a turn of the loop, so it is rarely the oldest.
MAX_SURPLUS = 64


class Peer(Protocol):
    """A connection, or the handshake before it."""

    deadline: float
    is_blocked: bool  # the client does not read its responses

    def is_slow(self, now: float, *, arriving_only: bool) -> bool: ...

    def expire(self) -> None: ...

    def stop(self) -> None: ...

    def abort(self) -> None: ...


class Admission:
    """The open connections, handshakes included.

    A connection beyond a limit is surplus: it may send one small request within a few seconds, which is
    served if it is a probe and refused otherwise. So a server whose places are taken still says that it is
    alive. Beyond `MAX_SURPLUS` the oldest surplus connection is cut.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        places = settings.max_connections
        self._places = places
        # One address never takes all places, also by default; one balancer loses no more than a tenth.
        self._places_per_address = settings.max_connections_per_address or places - places // 10
        self._proxies = ClientAddresses(settings.trusted_proxies)
        self._blocks: dict[Peer, str] = {}  # empty for a proxy, which connects for many clients
        self._counts: Counter[str] = Counter()
        self._surplus: dict[Peer, Response] = {}  # in order of arrival

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._blocks))

    @property
    def is_full(self) -> bool:
        """Whether all places are taken."""
        return len(self._blocks) - len(self._surplus) >= self._places

    def add(self, peer: Peer, address: str) -> Response | None:
        """Count a connection; return the answer to all but probes if it is surplus."""
        block = "" if not address or self._proxies.trusts(address) else address_block(address)
        refusal = None
        if self.is_full:
            refusal = responses.TOO_MANY_CONNECTIONS
        elif block and self._counts[block] >= self._places_per_address:
            refusal = responses.TOO_MANY_OF_ADDRESS
        self._blocks[peer] = block
        if refusal is not None:
            self._surplus[peer] = refusal
            if len(self._surplus) > MAX_SURPLUS:
                oldest = next(iter(self._surplus))
                self.remove(oldest)
                oldest.abort()
        elif block:
            self._counts[block] += 1
        return refusal

    def replace(self, handshake: Peer, connection: Peer) -> Response | None:
        """Give the place of a handshake to its connection; return as `add` does."""
        self._blocks[connection] = self._blocks.pop(handshake)
        if handshake not in self._surplus:
            return None
        refusal = self._surplus.pop(handshake)
        self._surplus[connection] = refusal
        return refusal

    def remove(self, peer: Peer) -> None:
        """Forget a connection that has ended."""
        block = self._blocks.pop(peer, "")
        if peer in self._surplus:
            del self._surplus[peer]
        elif block:
            self._counts[block] -= 1
            if not self._counts[block]:
                del self._counts[block]


def peer_address(transport: asyncio.BaseTransport) -> str:
    """Return the address at the other end; empty if there is none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else ""
