"""The API of outlets, which send events to a receiver; the contract is `headwater.delivery.outlets.base`."""

from headwater.delivery.keys import Key
from headwater.delivery.outlets.base import (
    DELIVERED,
    Batch,
    Delivered,
    NotConnected,
    Outlet,
    Refused,
    Result,
    Results,
    Retry,
)
from headwater.errors import EventRefused, OutletUnavailable
from headwater.events import Event
from headwater.settings import OutletSettings

__all__ = [
    "DELIVERED",
    "Batch",
    "Delivered",
    "Event",
    "EventRefused",
    "Key",
    "NotConnected",
    "Outlet",
    "OutletSettings",
    "OutletUnavailable",
    "Refused",
    "Result",
    "Results",
    "Retry",
]
