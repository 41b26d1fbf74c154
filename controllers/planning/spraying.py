"""Packets of one flow on all paths: each takes the way that a number names, which ports draw as frames arrive.

The number is in the frame's mark, which the kernel's datapath of Open vSwitch matches; a register holds those of its
digits that tell the ways apart. Unlike a ``select`` group this sends no packet through the datapath twice, and any
number of ways gets equal shares. Processes that switch see no marks.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from controllers.planning.plan import Spraying
from fabric.errors import ControllerError
from fabric.model.drawing import MOST_WAYS, digits_of
from fabric.model.network import Fabric


def spraying_of(dpid: int, ports: tuple[int, ...], seed: int, leaves_zone: bool = False) -> Spraying:
    """Return how a switch chooses among ``ports`` for each packet. Raises ControllerError for too many."""
    try:
        digits_of(len(ports))
    except ValueError as error:
        raise ControllerError(f"switch {dpid:#x}: {error}; use routing.policy: ecmp") from error
    return Spraying(crc32(repr((ports, leaves_zone)).encode()), len(ports))


def too_many_ways(fabric: Fabric) -> Iterator[str]:
    """Yield which switch has more links up than packets can be sprayed over."""
    for switch in fabric.switches:
        if len(fabric.uplinks_of(switch)) > MOST_WAYS:
            yield f"{switch} has {len(fabric.uplinks_of(switch))} links up, and sprays over {MOST_WAYS} at most"
            return
