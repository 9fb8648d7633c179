"""Replays rejects of the gateway: a request in the store is carried out here, once a second.

Rejects of outlets are replayed by `delivery.outlet_worker`, those of destinations by the next cycle of the
pipeline. `log.rejects.rejects` requests a replay of all of them.
"""

from __future__ import annotations

import logging

import orjson

from headwater.errors import HeadwaterError
from headwater.gateway.failed_events import STAGE
from headwater.gateway.openlineage_validator import Validator
from headwater.log.queue.log import Log
from headwater.log.rejects.store import Reject, RejectStore

logger = logging.getLogger(__name__)


def replay(rejects: RejectStore, validator: Validator, queue: Log) -> int:
    """Validate all rejects requested for replay, append those that pass, and return how many passed.

    Blocks. A crash between the append and the removal of the reject appends it twice. If the log fails, the
    request stays for the next call.
    """
    passed = 0
    try:
        while requested := rejects.requested(STAGE):
            for reject in requested:
                passed += _replay_one(reject, rejects, validator, queue)
    except HeadwaterError as error:
        logger.warning("The replay of rejects is postponed: %s", error)
    return passed


def _replay_one(reject: Reject, rejects: RejectStore, validator: Validator, queue: Log) -> bool:
    try:
        validation = validator.check(orjson.loads(reject.body))
    except orjson.JSONDecodeError as error:
        rejects.failed_again(reject.id, f"The body is not JSON. {error}")
        return False
    if not validation.ok:
        rejects.failed_again(reject.id, validation.summary)
        return False
    queue.append_wait([reject.body])
    rejects.replayed(reject.id)
    return True
