"""Replays the rejects of the gateway that `headwater rejects replay` has marked; it is called once a second.

Rejects of outlets are replayed by `delivery.outlet_worker`, those of destinations by the next cycle of the
pipeline. `log.rejects.rejects` requests a replay of all of them.
"""

from __future__ import annotations

import logging

from headwater.errors import HeadwaterError
from headwater.gateway.failed_events import CUT, NAMESPACE, STAGE
from headwater.gateway.json_limits import JsonLimits
from headwater.gateway.openlineage_validator import Budget, Validator
from headwater.gateway.senders.key_namespaces import Namespaces
from headwater.http.response import Problem
from headwater.log.queue.log import Log
from headwater.log.rejects.store import Reject, RejectStore

logger = logging.getLogger(__name__)


def replay(rejects: RejectStore, limits: JsonLimits, validator: Validator, log: Log) -> int:
    """Validate all rejects requested for replay, append those that pass, and return how many passed.

    Blocks. A crash between the append and the removal of the reject appends it twice. If the log fails, the
    request stays for the next call.
    """
    passed = 0
    try:
        while requested := rejects.requested(STAGE):
            for reject in requested:
                passed += _replay_one(reject, rejects, limits, validator, log)
    except HeadwaterError as error:
        logger.warning("The replay of rejects is postponed: %s", error)
    return passed


def _replay_one(
    reject: Reject, rejects: RejectStore, limits: JsonLimits, validator: Validator, log: Log
) -> bool:
    try:
        bodies = _events(reject, limits, validator)
    except Problem as problem:
        rejects.failed_again(reject.id, problem.text)
        return False
    log.append_wait(bodies)
    rejects.replayed(reject.id)
    return True


def _events(reject: Reject, limits: JsonLimits, validator: Validator) -> list[bytes]:
    """Return the events of a reject, which is one event or a whole batch; Problem if one is not accepted."""
    if cut := [each["reason"] for each in reject.details if each.get("rule") == CUT]:
        raise _refusal(f"The event cannot be replayed: {cut[0]}. Send it again from its producer.")
    is_batch = reject.body.lstrip()[:1] == b"["
    parts = [bytes(part) for part in limits.split_batch(reject.body)] if is_batch else [reject.body]
    if not parts:
        raise _refusal("The batch has no events.")
    budget = Budget()
    bound = [each.get("pattern", "") for each in reject.details if each.get("rule") == NAMESPACE]
    namespaces = Namespaces(bound) if bound else None
    for index, body in enumerate(parts):
        place = f"Event {index} of the batch: " if is_batch else ""
        event = limits.parse_event(body)
        validation = validator.check(event, budget)
        if not validation.ok:
            raise _refusal(place + validation.summary)
        if namespaces is not None and (foreign := namespaces.foreign(event)) is not None:
            raise _refusal(f"{place}The API key that sent it is not for the namespace {foreign!r}.")
    return parts


def _refusal(text: str) -> Problem:
    return Problem(400, "not_replayed", text, hint="See docs/http.md, Failed events.")
