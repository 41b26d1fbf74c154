"""Packets that switches forward per second of wall time: benchmark ``hops``, and by kind of queue ``queueings``."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from controllers.planning.paths import planned_path
from controllers.routing import Routing
from fabric.measure.census import lane_counters
from fabric.model.identity import NodeId
from fabric.model.lanes import FlowControl, QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric, Port
from fabric.queueing import lossless
from fabric.records.cells import Row, quantity
from fabric.records.summary_table import SummaryTable
from fabric.world import inside
from fabric.world.engines import current_engine
from fabric.world.isolation import netns
from runs.console import tell
from runs.live import LiveFabric, bring_up
from topologies.load import load_fabric
from traffic import metrics
from traffic.transport.tcp import fix_receive_window

_FAST = "10 Gbit/s"
_DELAY = "0.5 us"
_HOPS_WALL_S = 10
_ROUNDS, _ROUND_WALL_S = 5, 4
_LOOK_S = 0.005
_LEAST_S = 0.05
"""Of the fabric's time: hundreds of frames at 1 Gbit/s, long after a flow's slow start."""
_PORT = 5201
_PIECE_BYTES = 1 << 20
_WINDOW_BYTES = 3 << 20
"""As far as Linux 6.1 lets the window grow by itself. Debian's 6.12 hardly lets it grow for who reads in large pieces,
since it takes what is still unread off what has come: the reader, not the queues, would then be the limit."""


@dataclass(frozen=True)
class Passed:
    """What the fabric carried of one flow for a time: packets that switches passed on, those that the last of them did,
    and how long that took in wall time and on the fabric's clock."""

    hops: int
    arrived: int
    wall_s: float
    fabric_s: float

    @property
    def hops_per_wall_s(self) -> float:
        """Packets that a switch passes on, a second of wall time."""
        return self.hops / self.wall_s

    def goodput_bps(self, fabric: Fabric) -> float:
        """Return what the flow delivers, in bit/s of the fabric's time."""
        payload_bits = self.arrived * fabric.frame_bytes * 8 * metrics.payload_fraction(fabric.mtu_bytes)
        return payload_bits / self.fabric_s


@contextmanager
def bring_up_by_config(
    fabric: Fabric, queues: QueueConfig, queueing: Queueing, routing: Routing | None = None
) -> Iterator[LiveFabric]:
    """Bring a fabric up to be measured, for the time of a block; by default with static routes."""
    logs = inside.RUN_DIR / "logs"
    logs.mkdir(exist_ok=True)
    with bring_up(fabric, plan_lanes(queues, queueing), logs, tell, routing) as live:
        yield live


def wall_s() -> float:
    """Return the time of a clock that goes on while this engine works; a guest sees whole seconds of it."""
    return current_engine().wall_s()


def _wait_until_wall(moment_s: float) -> float:
    """Let the fabric go on until a moment of wall time, and for some time of its own, and return the wall's time then.

    A guest that others keep from computing may not have moved a frame in a second.
    """
    fabric_moment_s = time.monotonic() + _LEAST_S
    while (now := wall_s()) < moment_s or time.monotonic() < fabric_moment_s:
        time.sleep(_LOOK_S)
    return now


def bench_hops() -> SummaryTable:
    """Return how many packets switches forward per second of wall time, while a TCP flow crosses three of them."""
    rates = [f"{name}={_FAST}" for name in ("nic_rate", "uplink_rate", "inter_zone.rate")]
    fabric = load_fabric("fire_flyer_2_small", rates)
    with bring_up_by_config(fabric, QueueConfig(), Queueing.LANES) as live:
        ports = _switch_ports(live)
        found = _passed(live, _HOPS_WALL_S)
    title = f"one TCP flow at {_FAST}, MTU {fabric.mtu_bytes}, through {len(ports)} switches"
    goodput_bps, pace = found.goodput_bps(fabric), found.fabric_s / found.wall_s
    rows: list[Row] = [
        ["seconds of the fabric's time per second of wall time", quantity(pace, ".3f")],
        ["packets forwarded by a switch, per second of wall time", quantity(found.hops_per_wall_s, ",.0f in 1/s")],
        ["Gbit/s of goodput, in the fabric's time", quantity(goodput_bps, ".3f in Gbit/s")],
        ["Gbit/s of goodput, in wall time", quantity(goodput_bps * pace, ".3f in Gbit/s")],
    ]
    return SummaryTable(title, ["", ""], rows)


QUEUES: Mapping[str, tuple[Queueing, FlowControl]] = {
    "HTB and netem, drop-tail": (Queueing.SHARED, FlowControl.CREDIT),
    "vl, credits": (Queueing.LOSSLESS, FlowControl.CREDIT),
    "vl, PFC": (Queueing.LOSSLESS, FlowControl.PFC),
}
"""The kinds of queue that are compared, by name; without losses or with, each port has one lane."""


def bench_queueings() -> SummaryTable:
    """Return what each kind of queue costs: packets forwarded per second of wall time, of the same flow in one run."""
    lossless.require(current_engine(), Queueing.LOSSLESS)
    fabric = load_fabric("head_of_line", [f"nic_rate={_FAST}", f"uplink_rate={_FAST}", f"link_delay={_DELAY}"])
    found = measure_queueings(fabric, _ROUNDS, _ROUND_WALL_S)
    hops = {name: statistics.median(one.hops_per_wall_s for one in rounds) for name, rounds in found.items()}
    base = next(iter(hops))
    title = f"one TCP flow at {_FAST} through 3 switches, links of {_DELAY}; medians of {_ROUNDS} rounds, taking turns"
    columns = ("queues of every port", "packets forwarded, per second of wall time", "least to most", f"of {base}")
    rows: list[Row] = []
    for name, rounds in found.items():
        each = [one.hops_per_wall_s for one in rounds]
        goodput_bps = statistics.median(one.goodput_bps(fabric) for one in rounds)
        median, least, most = (quantity(one, ",.0f in 1/s") for one in (hops[name], min(each), max(each)))
        share = quantity(hops[name] / hops[base], ".2f")
        rows.append([name, median, (least, " - ", most), share, quantity(goodput_bps, ".3f in Gbit/s")])
    return SummaryTable(title, [*columns, "goodput, Gbit/s of the fabric's time"], rows)


def measure_queueings(fabric: Fabric, rounds: int, round_wall_s: float) -> dict[str, list[Passed]]:
    """Return what the fabric carried of a flow with each of ``QUEUES``, round by round; kinds take turns."""
    plans = {
        name: plan_lanes(QueueConfig(flow_control=flow_control), queueing)
        for name, (queueing, flow_control) in QUEUES.items()
    }
    found: dict[str, list[Passed]] = {name: [] for name in plans}
    with bring_up_by_config(fabric, QueueConfig(), Queueing.SHARED) as live:
        for number in range(1, rounds + 1):
            for name, plan in plans.items():
                tell(f"{name}, {number} of {rounds}")
                live.emulation.set_lanes(plan)
                found[name].append(_passed(live, round_wall_s))
    return found


def _ends(live: LiveFabric) -> tuple[NodeId, NodeId]:
    source, destination = live.fabric.computes[:2]
    return source, destination


def _switch_ports(live: LiveFabric) -> Sequence[Port]:
    """Return the ports of switches that the flow leaves by, in order."""
    source, destination = (live.fabric.nics_of[host][0] for host in _ends(live))
    return planned_path(live.plan, live.fabric, source, destination)[1:]


def _passed(live: LiveFabric, duration_s: float) -> Passed:
    """Return what the fabric carries of one TCP flow in so many seconds of wall time."""
    last = _switch_ports(live)[-1]
    with _stream(live, *_ends(live)):
        began = _wait_until_wall(wall_s() + 1)  # Past the start of the flow, and at a tick of a coarse clock.
        before, started = lane_counters(live.emulation), time.monotonic()
        took_s = _wait_until_wall(began + duration_s) - began
        after, fabric_s = lane_counters(live.emulation), time.monotonic() - started
    sent = {key: after[key] - before[key] for key in after}
    hops = sum(count for (port, _), count in sent.items() if port.node.is_switch)
    arrived = sum(count for (port, _), count in sent.items() if port == last)
    return Passed(hops, arrived, took_s, fabric_s)


@contextmanager
def _stream(live: LiveFabric, source: NodeId, destination: NodeId) -> Iterator[None]:
    """Send zeros over one TCP connection for the time of a block; unlike iperf3, read them in large pieces."""
    to, sent_by = (live.emulation.namespace_of(host) for host in (destination, source))
    assert to is not None and sent_by is not None, "hosts have namespaces"
    with netns.inside(to):
        listener = socket.create_server((live.fabric.nics_of[destination][0].ip, _PORT))
    fix_receive_window(listener, _WINDOW_BYTES)
    children = [_forked(lambda: _swallow(listener.accept()[0]))]
    with netns.inside(sent_by):
        connection = socket.create_connection(listener.getsockname())
    children.append(_forked(lambda: _pour(connection)))
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        connection.close()
        listener.close()


def _forked(work: Callable[[], None]) -> int:
    """Do something that does not end by itself in another process, and return its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return child


def _swallow(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _PIECE_BYTES // 4)
    buffer = bytearray(_PIECE_BYTES)
    while connection.recv_into(buffer):
        pass


def _pour(connection: socket.socket) -> None:
    piece = bytes(_PIECE_BYTES)
    while True:
        connection.sendall(piece)
