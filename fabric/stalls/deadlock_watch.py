"""A watch for deadlocks of a lossless fabric, at little cost: it looks only when lanes have been stalled for long."""

from __future__ import annotations

from collections.abc import Mapping

from fabric.model.network import Fabric, Port
from fabric.queueing import vl
from fabric.queueing.vl_samples import VlSample
from fabric.stalls.waits import LaneNames, ObservedPort, PortView, deadlocks, describe

LONGEST_STALL_FRAMES = 1000
"""How long, in full frames of the slowest link, two lanes must have stood still before it is worth to look."""


def switch_ports(fabric: Fabric, indices: Mapping[Port, int]) -> dict[int, ObservedPort]:
    """Return all ports that can be part of a deadlock, by interface index: hosts pass nothing on."""
    return {indices[port]: ObservedPort.of(port, link) for port, link in fabric.directed_ports() if port.node.is_switch}


class Watchdog:
    """Looks at the samples of all switches' ports, and reports a deadlock once."""

    def __init__(self, ports: Mapping[int, ObservedPort], longest_stall_s: float, names: LaneNames) -> None:
        self._ports = ports
        self._names = names
        self._longest_stall_ns = round(longest_stall_s * 1e9)
        self._has_told = False

    def look(self, sample: VlSample, dump: bytes) -> str | None:
        """Return a deadlock in words; None: there is none, or it has been told. ``sample`` was read from ``dump``."""
        since = sample.lanes["stalled_since_ns"].astype("i8")
        if self._has_told or ((since > 0) & (since <= sample.now_ns - self._longest_stall_ns)).sum() < 2:
            return None
        found = deadlocks(self._views(dump))
        self._has_told = bool(found)
        return describe(found[0]) if found else None

    def _views(self, dump: bytes) -> dict[str, PortView]:
        ports = ((self._ports[index], stats) for index, stats in vl.read(dump).items() if index in self._ports)
        return {one.port: PortView(one.node, one.peer, stats, self._names) for one, stats in ports}
