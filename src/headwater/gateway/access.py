"""Access: who may send. Keys are compared in constant time and never kept, logged or echoed (G12)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from headwater.gateway.responses import Problem

__all__ = ["Access"]


class Access:
    """The API keys of the settings; with none of them everybody may send."""

    def __init__(self, keys: Iterable[str]) -> None:
        # Digests have one length, so that not even the length of a key can be measured.
        # A key with other than ASCII characters is sent as UTF-8 by some clients and as latin-1 by others.
        self._digests = tuple(_digest(raw) for key in keys for raw in _spellings(key))
        self.is_open = not self._digests
        self.refusal = Problem(
            401,
            "unauthorized",
            "The API key is missing or unknown.",
            hint="Send `Authorization: Bearer <key>` with one of `gateway.api_keys`.",
            headers={"WWW-Authenticate": "Bearer"},
        ).response()

    def allows(self, authorization: str | None) -> bool:
        """Whether the `Authorization` header shows a known key. All keys are compared, whichever fits."""
        if self.is_open:
            return True
        scheme, _, shown = (authorization or "").partition(" ")
        digest = _digest(shown.strip().encode("latin-1"))  # the bytes as they came
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == "bearer" and any(matches)


def _spellings(key: str) -> set[bytes]:
    try:
        return {key.encode("utf-8"), key.encode("latin-1")}
    except UnicodeEncodeError:
        return {key.encode("utf-8")}


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()
