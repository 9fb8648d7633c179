"""What an HTTP answer means for the events of the request; shared by the outlets that speak HTTP."""

from __future__ import annotations

from typing import Literal

from headwater.clock import Clock, SystemClock
from headwater.delivery.outlets.http_connection import HttpAnswer
from headwater.delivery.retry import retry_after_seconds
from headwater.errors import EventRefused, OutletUnavailable

__all__ = ["RETRYABLE_STATUSES", "excerpt", "judge", "refuse_or_retry"]

RETRYABLE_STATUSES = frozenset({401, 402, 403, 404, 405, 407, 408, 425, 429})
"""4xx that say nothing against the event: the key, the address or the pace is wrong; an operator mends it."""

_EXCERPT_CHARACTERS = 200


def judge(status: int, retryable: frozenset[int] = RETRYABLE_STATUSES) -> Literal["ok", "retry", "refused"]:
    """2xx: taken. Other 4xx: this event is bad. Everything else, redirects too: try again."""
    if 200 <= status < 300:
        return "ok"
    if 400 <= status < 500 and status not in retryable:
        return "refused"
    return "retry"


def excerpt(answer: HttpAnswer) -> str:
    """The start of the answer's body on one line, for a reason that a person reads."""
    return " ".join(answer.text.split())[:_EXCERPT_CHARACTERS]


def refuse_or_retry(
    answer: HttpAnswer,
    where: str,
    *,
    retryable: frozenset[int] = RETRYABLE_STATUSES,
    clock: Clock | None = None,
) -> EventRefused | OutletUnavailable:
    """The error that an answer other than success stands for."""
    status = answer.status_code
    text = f"{where} answered {status}"
    if body := excerpt(answer):
        text += f": {body}"
    if judge(status, retryable) == "refused":
        return EventRefused(text)
    hint = ""
    if status in (401, 403, 407):
        hint = "Check the outlet's api_key."
    elif status in (404, 405):
        hint = "Check the outlet's url."
    elif 300 <= status < 400:
        hint = f"Redirects are not followed; it points to {answer.headers.get('location', 'nowhere')}."
    wish = retry_after_seconds(answer.headers.get("retry-after"), (clock or SystemClock()).now())
    return OutletUnavailable(text, hint=hint, retry_after_seconds=wish)
