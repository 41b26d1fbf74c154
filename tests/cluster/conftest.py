"""Services in memory, which no test leaves to the next."""

from tests.traffic.storage.true_timers import listeners

__all__ = ["listeners"]
