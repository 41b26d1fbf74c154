"""What stands still in theory if a port does, as its NIC pauses it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from controllers.planning.paths import planned_path
from controllers.planning.plan import RoutePlan
from experiments.pfc_storm.config import PfcStormConfig
from fabric.model.network import Fabric, Port

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


def ways(plan: RoutePlan, fabric: Fabric, config: PfcStormConfig) -> list[Way]:
    """Return the ways of the streams that a config plays."""
    ends = [(fabric.nics_of[one.source][0], fabric.nics_of[one.sink][0]) for one in config.played(fabric)]
    return [(planned_path(plan, fabric, *pair), planned_path(plan, fabric, *pair[::-1])) for pair in ends]


def root(fabric: Fabric) -> Port:
    """Return the port that the first host's NIC pauses."""
    return fabric.peer(fabric.nics_of[fabric.computes[0]][0].port)
