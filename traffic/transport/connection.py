"""Where programs listen, and what their connections carry, whatever carries them."""

from __future__ import annotations

from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel

DEFAULT_CONGESTION_CONTROL = "cubic"
Endpoint = tuple[str, int]
"""Where a program listens: an address and a port."""


class UnreachableError(TrafficError):
    """Nobody answered, or nobody came, within a time: a dead route or program somewhere."""


@dataclass(frozen=True)
class SocketOptions:
    """What every socket of one kind of traffic carries."""

    level: ServiceLevel
    congestion_control: str = DEFAULT_CONGESTION_CONTROL
    receive_window_bytes: int | None = None
    """What a peer may send ahead of what the program has read; None leaves it to the kernel to find out."""
    user_timeout_s: float | None = None
    """How long what was sent may stay unacknowledged before TCP ends the connection (TCP_USER_TIMEOUT); None: the
    kernel's 15 minutes or so."""
