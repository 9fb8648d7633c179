"""Replay: gateway rejects that somebody wants to be tried again, after the fix (G6)."""

from __future__ import annotations

import logging

import orjson

from headwater.errors import HeadwaterError
from headwater.gateway.app import reason_of
from headwater.gateway.failed import STAGE
from headwater.gateway.openlineage import Validator
from headwater.log.rejects import Reject, Rejects
from headwater.log.store import Log

__all__ = ["replay"]

log = logging.getLogger(__name__)


def replay(rejects: Rejects, validator: Validator, queue: Log) -> int:
    """Validate all requested rejects once more and append those that pass now; returns how many passed.

    Blocks, so it is called by a thread that may wait. A crash between the append and the removal of the
    reject appends it twice, never not at all. When the disk refuses, the request stays for the next time.
    """
    passed = 0
    try:
        while requested := rejects.requested(STAGE):
            for reject in requested:
                passed += _again(reject, rejects, validator, queue)
    except HeadwaterError as error:
        log.warning("The replay of rejects waits: %s", error)
    return passed


def _again(reject: Reject, rejects: Rejects, validator: Validator, queue: Log) -> bool:
    try:
        verdict = validator.check(orjson.loads(reject.body))
    except orjson.JSONDecodeError as error:
        rejects.failed_again(reject.id, f"The body is not JSON. {error}")
        return False
    if not verdict.ok:
        rejects.failed_again(reject.id, reason_of(verdict))
        return False
    queue.append_wait([reject.body])
    rejects.replayed(reject.id)
    return True
