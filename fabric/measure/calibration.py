"""Before a run: is each kind of link as fast as promised, and does each lane get its share?

Frames are put straight into a port's queues, so that only the queue tree is measured: the rate of one lane
that has the link to itself, then the share of each lane when all are full. The frames are addressed to nobody; the node
at the other end drops and counts them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.errors import EmulationError
from fabric.measure.feeding import Feeder, window_for
from fabric.model.lanes import Lane, LanePlan, ServiceLevel
from fabric.model.network import ETHERNET_HEADER_BYTES, Fabric, Port
from fabric.queueing.counters import QueueReader
from fabric.records.calibration import LinkCalibration
from fabric.world.engine import Engine
from fabric.world.engines import current_engine
from fabric.world.isolation import netns
from fabric.world.kernel_api.netlink import ETH_P_IP, Netlink
from fabric.world.programs import guest_calls

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

_NOBODY = "192.0.2.1"  # RFC 5737: an address for documentation; no rule forwards it.
_EXPERIMENTAL_PROTOCOL = 253  # RFC 3692
_WINDOW_FRAMES = 12
"""Frames that a sender keeps queued: enough that a lane never runs dry, few enough that none is dropped."""
_FILL_FRACTION = 0.15
"""What part of a window queues are given to fill before it."""
_WINDOW_S = 1.0
_FEWEST_FRAMES = 200
"""Of a window: a frame more or less is then a quarter of the rate error that a verdict allows."""
_EMPTY_TIMEOUT_S, _LOOK_S = 20.0, 0.005
_ENOUGH_FRAMES = 5000


def kinds_of_links(fabric: Fabric) -> dict[str, Port]:
    """Return one sending port for each kind of link: tier, rate, and what sends on it."""
    kinds: dict[str, Port] = {}
    for port, link in fabric.directed_ports():
        receiver = link.other(port).node.role.name.lower()
        kinds.setdefault(f"{port.node.role.name.lower()} to {receiver} at {link.rate_bps} bit/s", port)
    return kinds


def window_s(fabric: Fabric, engine: Engine) -> float:
    """Return how long to measure: 1 s, or 200 frames of the slowest link if they take longer; where time is exact, 5000
    frames if that is less, as a second of every kind of link at 200 Gbit/s is a hundred million frames."""
    window = max(_WINDOW_S, _FEWEST_FRAMES * fabric.frame_time_s)
    return min(window, engine.duration_s(window, _ENOUGH_FRAMES, fabric.frame_time_s))


def calibrate(emulation: Emulation) -> list[LinkCalibration]:
    """Return a calibration of each kind of link under the queues that are in place.

    All kinds are measured at once, in two windows.
    """
    window = window_s(emulation.fabric, current_engine())
    kinds = kinds_of_links(emulation.fabric)
    plan = emulation.lane_plan
    first = next(lane for lane in plan.with_share if not lane.is_control)
    alone = _measured_where_they_are(emulation, list(kinds.values()), [first], window)
    together = _measured_where_they_are(emulation, list(kinds.values()), list(plan.with_share), window)
    return [_calibration(kind, port, emulation, alone[port], together[port]) for kind, port in kinds.items()]


def _calibration(
    kind: str, port: Port, emulation: Emulation, alone: dict[str, float], together: dict[str, float]
) -> LinkCalibration:
    rate_bps = emulation.fabric.link_at[port].rate_bps
    return LinkCalibration(
        kind=kind,
        port=str(port),
        rate_bps=rate_bps,
        lane_alone_bps=sum(alone.values()),
        all_lanes_bps=sum(together.values()),
        shares={name: bps / rate_bps for name, bps in together.items()},
        promised_shares=emulation.lane_plan.promised_shares(emulation.fabric.frame_bytes),
    )


@dataclass(frozen=True)
class _Ports:
    """What a guest needs to know of ports of its own to measure them."""

    fabric: Fabric
    lane_plan: LanePlan
    indices: Mapping[Port, int]
    namespaces: Mapping[Port, Path | None]


def _measured_where_they_are(
    emulation: Emulation, ports: Sequence[Port], lanes: Sequence[Lane], window_s: float
) -> dict[Port, dict[str, float]]:
    """The rates of :func:`_measure` for ports of any guest: each guest measures its own, all at the same time."""
    by_guest: dict[int, list[Port]] = {0: []}
    for port in ports:
        by_guest.setdefault(netns.guest_of(emulation.namespace_of_port(port)), []).append(port)
    others = {other.number: other for other in guest_calls.others()}
    pending = []
    for guest, of_guest in by_guest.items():
        namespaces = {port: netns.as_seen_there(emulation.namespace_of_port(port)) for port in of_guest}
        indices = {port: emulation.indices[port] for port in of_guest}
        theirs = _Ports(emulation.fabric, emulation.lane_plan, indices, namespaces)
        if guest:
            pending.append(others[guest].begin(_measure, theirs, lanes, window_s))
        else:
            own = theirs
    found = _measure(own, lanes, window_s)
    for one in pending:
        found |= one.result()
    return found


def _measure(where: _Ports, lanes: Sequence[Lane], window_s: float) -> dict[Port, dict[str, float]]:
    """Return what each lane of each port carries, in bit/s, while all of ``lanes`` are full."""
    # Entering a namespace waits for other processors, far longer than a short window: all are entered before it.
    with ExitStack() as stack:
        readers = {port: stack.enter_context(Netlink(there)) for port, there in where.namespaces.items()}
        _wait_until_empty(where, readers)
        feeder = Feeder(where.lane_plan.queueing)
        stack.callback(feeder.close)
        shares = _fed_shares(where, lanes)
        for port, namespace in where.namespaces.items():
            for lane in lanes:
                frame = nobodys_frame(lane.levels[0], where.fabric.mtu_bytes)
                link = where.fabric.link_at[port]
                window = window_for(link, len(frame), _WINDOW_FRAMES)
                feeder.add(namespace, port, link, frame, window, shares[lane])
        feeder.feed(_FILL_FRACTION * window_s)
        before = {port: _sent(where, port, reader) for port, reader in readers.items()}
        feeder.feed(window_s)
        after = {port: _sent(where, port, reader) for port, reader in readers.items()}
    return {port: _rates(before[port], after[port], lanes, where.lane_plan) for port in readers}


def _fed_shares(where: _Ports, lanes: Sequence[Lane]) -> dict[Lane, float]:
    """Return what part of a link each lane is fed for: its share while all are full; all of the link in real time,
    where who feeds may be late."""
    if len(lanes) == 1 or not current_engine().is_exact:
        return dict.fromkeys(lanes, 1.0)
    promised = where.lane_plan.promised_shares(where.fabric.frame_bytes)
    return {lane: promised[lane.name] for lane in lanes}


def _rates(
    before: tuple[float, dict[int, int]], after: tuple[float, dict[int, int]], lanes: Sequence[Lane], plan: LanePlan
) -> dict[str, float]:
    elapsed = after[0] - before[0]
    fed = {lane.number for lane in lanes}
    return {
        lane.name: (after[1][lane.number] - before[1][lane.number]) * 8 / elapsed
        for lane in plan.lanes
        if lane.number in fed
    }


def _wait_until_empty(where: _Ports, readers: Mapping[Port, Netlink]) -> None:
    """Wait until nothing is left in the ports' queues of what was measured before, or it would count as a lane's loss:
    full lanes leave frames behind, and those of the smallest share are long in going. Raises EmulationError."""
    deadline = time.monotonic() + _EMPTY_TIMEOUT_S
    while busy := [
        str(port)
        for port, reader in readers.items()
        if any(_lanes(where, port, reader.dump_qdiscs(), "backlog_packets").values())
    ]:
        if time.monotonic() > deadline:
            raise EmulationError(
                f"{', '.join(busy)}: frames are still queued after {_EMPTY_TIMEOUT_S:g} s without new ones; "
                "stop the programs that send, calibration needs idle links"
            )
        time.sleep(_LOOK_S)


def _sent(where: _Ports, port: Port, reader: Netlink) -> tuple[float, dict[int, int]]:
    dump = reader.dump_qdiscs()
    now = time.monotonic()  # Before the dump is decoded, which takes long the first time.
    return now, _lanes(where, port, dump, "sent_bytes")


def _lanes(where: _Ports, port: Port, dump: bytes, counter: str) -> dict[int, int]:
    """Return one of fabric.queueing.counters.COUNTERS of each lane of a port."""
    keys, counters = QueueReader().read(dump)
    wanted = where.indices[port]
    return {
        lane: value for (index, lane), value in zip(keys, counters[counter].tolist(), strict=True) if index == wanted
    }


def nobodys_frame(level: ServiceLevel, mtu_bytes: int) -> bytes:
    """Return a full frame of a service level that no host takes."""
    header = struct.pack(
        ">BBHHHBBH4s4s",
        0x45,
        level.tos,
        mtu_bytes,
        0,
        0,
        64,
        _EXPERIMENTAL_PROTOCOL,
        0,
        socket.inet_aton(_NOBODY),
        socket.inet_aton(_NOBODY),
    )
    ethernet = bytes.fromhex("02ffffffffff02fffffffffe") + struct.pack(">H", ETH_P_IP)
    frame = ethernet + header
    return frame + b"\0" * (mtu_bytes + ETHERNET_HEADER_BYTES - len(frame))
