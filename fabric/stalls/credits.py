"""Whether all credits are back: input buffers that ports of a fabric at rest still occupy are lost forever."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fabric.emulation.namespaces import ports_by_namespace
from fabric.errors import EmulationError
from fabric.model.lanes import PortLane
from fabric.model.network import Port
from fabric.queueing import vl
from fabric.queueing.lossless import lane_names
from fabric.stalls.waits import LaneNames
from fabric.world.kernel_api.netlink import Netlink

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

_REST_TIMEOUT_S = 20.0
_NEWS_S = 0.01
"""Beside the time that news of room takes back: how long nothing must have moved."""


@dataclass(frozen=True)
class Held:
    """What a lane of a port has not got back of the other end's input buffer, in bytes: ``used`` as the port knows,
    ``buffered`` as is in it."""

    port: Port
    lane: str
    used_bytes: int
    buffered_bytes: int

    def __str__(self) -> str:
        return f"{PortLane(str(self.port), self.lane)}: {max(self.used_bytes, self.buffered_bytes)} B"


def held(ports: Mapping[Port, vl.PortStats], names: LaneNames) -> list[Held]:
    """Return what has not come back, at one moment. ``names`` are those of lanes."""
    return [
        Held(port, names.get(lane.lane, str(lane.lane)), lane.used_bytes, lane.buffered_bytes)
        for port, stats in ports.items()
        for lane in stats.lanes.values()
        if lane.used_bytes or lane.buffered_bytes
    ]


def held_at_rest(emulation: Emulation) -> list[Held]:
    """Return what has not come back when nothing has moved for longer than news of room takes.

    Raises EmulationError if something still moves after 20 s.
    """
    deadline = time.monotonic() + _REST_TIMEOUT_S
    before = read_ports(emulation)
    while True:
        time.sleep(_news_s(emulation) + _NEWS_S)
        now = read_ports(emulation)
        if _sent(now) == _sent(before) and not any(_is_busy(stats) for stats in now.values()):
            return held(now, lane_names(emulation.lane_plan))
        if time.monotonic() > deadline:
            busy = [str(port) for port, stats in now.items() if _is_busy(stats)]
            raise EmulationError(
                f"the fabric is not at rest after {_REST_TIMEOUT_S:g} s: frames wait at {len(busy)} ports "
                f"({', '.join(busy[:5])}), so lost credits cannot be identified"
            )
        before = now


def _news_s(emulation: Emulation) -> float:
    return_ns = emulation.lane_plan.return_ns
    slowest_ns = max(link.delay_ns for link in emulation.fabric.links)
    return (slowest_ns if return_ns is None else return_ns) / 1e9


def read_ports(emulation: Emulation) -> dict[Port, vl.PortStats]:
    """Return all lossless ports of a fabric as they are."""
    found: dict[Port, vl.PortStats] = {}
    for namespace, ports in ports_by_namespace(emulation):
        with Netlink(namespace) as link:
            by_index = vl.read(link.dump_qdiscs())
        found |= {port: by_index[index] for port in ports if (index := emulation.indices[port]) in by_index}
    return found


def _sent(ports: Mapping[Port, vl.PortStats]) -> dict[Port, int]:
    return {port: sum(lane.sent_packets for lane in stats.lanes.values()) for port, stats in ports.items()}


def _is_busy(stats: vl.PortStats) -> bool:
    return bool(stats.link_packets or any(lane.backlog_packets for lane in stats.lanes.values()))
