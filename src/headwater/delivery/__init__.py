"""Stage 3a: events are sent on, in order, until the receiver has them.

`Client` is the library; `headwater.delivery.outlet_worker.OutletWorker` is the same engine behind the log.
"""

from headwater.delivery.client import Client, Statistics

__all__ = ["Client", "Statistics"]
