"""Delivery: events are sent, in order, until the receiver has them.

`Client` is the library; `headwater.delivery.outlet_worker.OutletWorker` runs the same scheduler on the log.
"""

from headwater.delivery.client import Client, Statistics

__all__ = ["Client", "Statistics"]
