"""What stands still in theory if a port does, as its NIC pauses it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controllers.planning.paths import planned_path
from controllers.planning.plan import RoutePlan
from fabric.model.network import Fabric, Nic, Port

Way = tuple[Sequence[Port], Sequence[Port]]
"""The ports of a stream's data, and of its acknowledgements."""


def taken(ways: Sequence[Way], root: Port, spreads: bool = True) -> list[bool]:
    """Return which streams stand still in the end, if the port ``root`` does: those of which anything crosses a port
    that stands still. That is each port before one on a stream's way, whose data fills the buffer in between,
    unless a watchdog drops it (``spreads``)."""
    still, before = {root}, set[Port]()
    while spreads and still != before:
        before = set(still)
        for data, _ in ways:
            reached = [place for place, port in enumerate(data) if port in still]
            still.update(data[: max(reached, default=-1) + 1])
    return [any(port in still for path in way for port in path) for way in ways]


def ways(plan: RoutePlan, fabric: Fabric, pairs: Iterable[tuple[Nic, Nic]]) -> list[Way]:
    """Return the ways of streams from one NIC to another, by static routes."""
    return [(planned_path(plan, fabric, *pair), planned_path(plan, fabric, *pair[::-1])) for pair in pairs]
