"""The API of handlers of failed events; the contract is `headwater.gateway.failed_events`."""

from headwater.gateway.failed_events import FailedEvent, FailedEventHandler
from headwater.gateway.openlineage_validator import Violation
from headwater.log.rejects.store import NewReject, RejectStore

__all__ = ["FailedEvent", "FailedEventHandler", "NewReject", "RejectStore", "Violation"]
