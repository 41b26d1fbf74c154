"""Congestion controls as BPF programs and ports that mark, in a world: ``congestion.py NAME REPORT``."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fabric.model.lanes import LanePlan, QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.marking import Marking
from fabric.model.network import Port
from fabric.queueing import htb
from fabric.queueing.counters import QueueReader
from fabric.world import inside
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Netlink
from runs.live import LiveFabric, bring_up
from tests.links import wait_until_running
from topologies.load import load_fabric
from traffic import congestion_control
from traffic.dcqcn import DcqcnConfig
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import accept, agreed_on_ecn, connect, listen

TARGET, SENDERS = "z0h003", ("z0h000", "z0h001")
MARKING = Marking(kmin=20_000, kmax=80_000, pmax=0.2)
QUEUES = QueueConfig(marking=MARKING)
DCQCN = DcqcnConfig(
    additive_step=100_000, cnp_interval=0.05, alpha_period=0.05, increase_period=0.05, increase_bytes=0, gain=1 / 64
)
"""Quick, for a link of 20 Mbit/s: it is near its fixed point after some seconds."""
_CONNECT_S = 60.0
_RISE_S, _MEASURE_S, _PERIOD_S, _LOOK_S = 8.0, 6.0, 0.05, 0.005
"""Between two looks at the sockets a link of 20 Mbit/s carries 12 KB, a part of what a socket holds."""


def two_flows() -> dict[str, Any]:
    """Two flows to one host: of ``dcqcn`` with marks, then of ``cubic`` without."""
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    fabric = load_fabric("fire_flyer_2_tiny")
    parameters = DCQCN.parameters(fabric)
    congestion_control.provide(["dcqcn"], parameters, fabric.nic_rate_bps)
    with bring_up(fabric, plan_lanes(QUEUES, Queueing.SHARED), logs, print) as live:
        congestion_control.admit(live.emulation.host_namespaces, parameters, fabric.nic_rate_bps)
        found = {"dcqcn": _shared(live, "dcqcn"), "counted": congestion_control.counted()}
        live.emulation.set_lanes(plan_lanes(QueueConfig(), Queueing.SHARED))
        return {**found, "cubic": _shared(live, "cubic")}


def _shared(live: LiveFabric, control: str) -> dict[str, Any]:
    fabric = live.fabric
    target, *senders = (fabric.nics_of[fabric.host_named(name)][0] for name in (TARGET, *SENDERS))
    options = SocketOptions(ServiceLevel.OTHER, control)
    with ExitStack() as stack:
        made = []
        for number, sender in enumerate(senders):
            with netns.inside(netns.netns_path(TARGET)):
                listener = stack.enter_context(closing(listen(target.ip, 5000 + number, options)))
            with netns.inside(netns.netns_path(sender.port.node.host.name)):
                out = stack.enter_context(closing(connect(target.ip, 5000 + number, options, _CONNECT_S)))
            into, _ = accept(listener, options, _CONNECT_S)
            made.append((out, stack.enter_context(closing(into))))
        ecn = [agreed_on_ecn(end) for pair in made for end in pair]
        return {"ecn": ecn, **_measured(fabric.peer(target.port), live, made)}


def _measured(port: Port, live: LiveFabric, made: list[tuple[socket.socket, socket.socket]]) -> dict[str, Any]:
    """Let all send for a while; return what arrived of each in the second part, and what waited at the port then."""
    index, reader = live.emulation.indices[port], QueueReader()
    for out, into in made:
        out.setblocking(False)
        into.setblocking(False)
    data, got = bytes(1 << 16), [0 for _ in made]
    backlogs, marks = [], 0
    start = due = time.monotonic()
    before = list(got)
    with Netlink() as link:
        while (now := time.monotonic()) < start + _RISE_S + _MEASURE_S:
            for number, (out, into) in enumerate(made):
                got[number] += _moved(out, into, data)
            if now >= due:
                due += _PERIOD_S
                keys, rows = reader.read(link.dump_qdiscs())
                row = rows[next(place for place, (found, _) in enumerate(keys) if found == index)]
                marks = int(row["marked_packets"])
                if now < start + _RISE_S:
                    before = list(got)
                else:
                    backlogs.append(int(row["backlog_bytes"]))
            time.sleep(_LOOK_S)
    return {
        "got": [after - first for after, first in zip(got, before, strict=True)],
        "backlogs": backlogs,
        "marks": marks,
    }


def _moved(out: socket.socket, into: socket.socket, data: bytes) -> int:
    """Send what the socket takes, read what has come, and return how much that was."""
    with suppress(BlockingIOError):
        out.send(data)
    try:
        return len(into.recv(1 << 20))
    except BlockingIOError:
        return 0


# What marks, frame by frame.

_FRAME_BYTES = 1000
_SLOW_BPS = 8000
"""A frame takes a second: what a burst leaves in the queue is there."""
CURVE_FRAMES = (10, 70)
"""Between so many waiting frames chance decides: enough of them that it decides both ways."""
_CURVE = Marking(kmin=CURVE_FRAMES[0] * _FRAME_BYTES, kmax=CURVE_FRAMES[1] * _FRAME_BYTES, pmax=0.5)
_BURST_FRAMES = 110
_SO_SNDBUFFORCE = 32


def curve() -> dict[str, Any]:
    """Bursts of frames into a slow port's queues: marked ones by how many waited in front, by lane and by ECN bits."""
    inside.set_up()
    plan = plan_lanes(QueueConfig(marking=_CURVE), Queueing.LANES)
    htb.provide(plan)
    found: dict[str, Any] = {}
    for number, (name, tos, ecn) in enumerate(_bursts(plan)):
        found[name] = _burst(plan, number, tos | ecn)
    return found


def _bursts(plan: LanePlan) -> Iterator[tuple[str, int, int]]:
    yield "ect", ServiceLevel.STORAGE.tos, 2
    yield "not ect", ServiceLevel.STORAGE.tos, 0
    yield "other lane", ServiceLevel.HFREDUCE.tos, 1


def _burst(plan: LanePlan, number: int, tos: int) -> dict[str, Any]:
    """Send a burst of frames through a new port; return in which lane they wait, and after each how many have been
    marked and how many wait."""
    index, name = 100 + 2 * number, f"p{number}"
    os.system(f"ip link add {name} index {index} type veth peer name q{number}; ip link set {name} up")
    os.system(f"ip link set q{number} up")
    with Netlink() as link:
        wait_until_running(link, [index])
    port = htb.ShapedPort(name, index, _SLOW_BPS, 1500)
    reader = QueueReader()
    names = {lane.number: lane.name for lane in plan.lanes}
    marks, waiting = [], []
    with Netlink() as link, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        link.send(htb.install_requests(port, plan))
        sock.bind((name, netlink.ETH_P_IP))
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1 << 20)  # Or it waits until the port has sent some.
        header = struct.pack("!BBHIBBH8x", 0x45, tos, _FRAME_BYTES - 14, 0, 64, 17, 0)
        for _ in range(_BURST_FRAMES):
            sock.send(bytes(12) + struct.pack("!H", netlink.ETH_P_IP) + header.ljust(_FRAME_BYTES - 14, b"\0"))
            keys, rows = reader.read(link.dump_qdiscs())
            here = [(lane, row) for (found, lane), row in zip(keys, rows, strict=True) if found == index]
            marks.append(sum(int(row["marked_packets"]) for _, row in here))
            waiting.append(sum(int(row["backlog_packets"]) for _, row in here))
    lanes = [names[lane] for lane, row in here if row["backlog_packets"]]
    return {"marks": np.diff([0, *marks]).tolist(), "waiting": waiting, "lanes": lanes}


SCENARIOS = {"two_flows": two_flows, "curve": curve}

if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(SCENARIOS[sys.argv[1]]()))
