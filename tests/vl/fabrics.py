"""Measurements of small fabrics of switches, in a guest."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from fabric.queueing import vl
from tests.vl.lab import Lab, flood

VICTIM_DSCP = 8
LEAF_OF = {"v": "l1", "s1": "l1", "s2": "l2", "s3": "l2", "d": "l3", "n": "l3"}
"""Three senders, s1 to s3, on two leaves, to d; the victim v to d's neighbour n."""


@dataclass(frozen=True)
class Flow:
    """A TCP connection that sends as much as it can."""

    source: str
    target: str
    port: int
    tos: int = 0


def port_of(queueing: str, rate_bps: int) -> vl.VlConfig:
    """Return the port of ``lossy``, ``one lane`` or ``own lane``, the last with the victim's in a lane of its own."""
    lane = vl.LaneBuffer(limit_bytes=200_000, credit_bytes=64 * 1024)
    common = vl.VlConfig(rate_bps, {0: lane, 1: lane, 15: lane}, control_lane=vl.MANAGEMENT_LANE)
    if queueing == "lossy":
        return replace(common, flow_control=vl.FlowControlMode.LOSSY)
    if queueing == "one lane":
        return common
    return replace(common, low=(vl.ArbitrationEntry(0, 66), vl.ArbitrationEntry(1, 66)), lane_of_dscp={VICTIM_DSCP: 1})


def three_leaves(queueing: str, host_bps: int, uplink_bps: int) -> Lab:
    """Return three leaves below one spine, with the hosts of LEAF_OF."""
    lab = Lab()
    for host, leaf in LEAF_OF.items():
        lab.add_host(host)
        lab.link(host, leaf, port_of(queueing, host_bps))
    for leaf in ("l1", "l2", "l3"):
        lab.link(leaf, "sp", port_of(queueing, uplink_bps))
    lab.give_addresses()
    rules = {leaf: [f"priority=1,actions=output:{{{leaf}-sp}}"] for leaf in ("l1", "l2", "l3")}
    rules["sp"] = []
    for host, leaf in LEAF_OF.items():
        match = f"priority=2,ip,nw_dst={lab.ip(host)}"
        rules[leaf].append(f"{match},actions=output:{{{leaf}-{host}}}")
        rules["sp"].append(f"{match},actions=output:{{sp-{leaf}}}")
    lab.switch(rules)
    return lab


def send(lab: Lab, flow: Flow, until_s: float) -> None:
    """Fork a sender."""
    if os.fork() == 0:
        with lab.inside(flow.source):
            sender = socket.socket()
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, flow.tos)
        sender.connect((lab.ip(flow.target), flow.port))
        data = bytes(1 << 18)
        with suppress(ConnectionError):  # The receiver ends first.
            while time.monotonic() < until_s:
                sender.send(data)
        os._exit(0)


def receive(lab: Lab, flow: Flow, from_s: float, until_s: float) -> int:
    """Fork a receiver; return a descriptor that yields the bit/s of goodput between two moments."""
    with lab.inside(flow.target):
        listener = socket.create_server((lab.ip(flow.target), flow.port))
    reading, writing = os.pipe()
    if os.fork() == 0:
        connection, _ = listener.accept()
        buffer = bytearray(1 << 20)
        connection.settimeout(until_s - time.monotonic())
        got = 0
        with suppress(TimeoutError):
            while time.monotonic() < until_s:
                part = connection.recv_into(buffer)
                got += part if from_s <= time.monotonic() < until_s else 0
        os.write(writing, f"{got * 8 / (until_s - from_s)}".encode())
        os._exit(0)
    listener.close()
    os.close(writing)
    return reading


def goodputs(lab: Lab, flows: Sequence[Flow], warm_up_s: float, duration_s: float) -> list[float]:
    """Return the bit/s of each flow."""
    begin_s = time.monotonic() + 0.001
    until_s = begin_s + warm_up_s + duration_s
    results = [receive(lab, flow, begin_s + warm_up_s, until_s) for flow in flows]
    for flow in flows:
        send(lab, flow, until_s + duration_s)
    return [float(os.read(result, 100)) for result in results]


def head_of_line(queueing: str, host_bps: int, uplink_bps: int) -> dict[str, object]:
    """Return what the victim and the three senders get, and what was lost."""
    lab = three_leaves(queueing, host_bps, uplink_bps)
    flows = [Flow("v", "n", 5001, tos=4 * VICTIM_DSCP)]
    flows += [Flow(source, "d", 5002 + i) for i, source in enumerate(("s1", "s2", "s3"))]
    duration_s = (0.5 if queueing == "lossy" else 0.1) * 10**9 / host_bps
    found = goodputs(lab, flows, duration_s, duration_s)
    stats = lab.stats()
    lanes = [lane for port in stats.values() for lane in port.lanes.values() if lane.lane != vl.MANAGEMENT_LANE]
    return {
        "goodput_bps": found,
        "dropped_bytes": sum(port.dropped_bytes() for port in stats.values()),
        "retransmissions": sum(lab.count(host, "Tcp", "RetransSegs") for host in LEAF_OF),
        "most_buffered_bytes": max(lane.most_buffered_bytes for lane in lanes),
        "stalled": sorted(name for name, port in stats.items() if any(lane.stalls for lane in port.lanes.values())),
    }


def pfc(headroom_bytes: int) -> dict[str, object]:
    """Let two hosts flood a third through a switch that stops them by PFC; return what got through and what did not."""
    rate_bps, delay_ns = 10_000_000_000, 2000
    buffer = vl.LaneBuffer(xoff_bytes=64 * 1024, xon_bytes=32 * 1024, headroom_bytes=headroom_bytes)
    port = vl.VlConfig(rate_bps, {0: buffer}, vl.FlowControlMode.PFC, delay_ns=delay_ns, return_ns=delay_ns)
    lab = Lab()
    for host in "abc":
        lab.add_host(host)
        lab.link(host, "s", port)
    lab.give_addresses()
    lab.switch({"s": [f"ip,nw_dst={lab.ip(host)},actions=output:{{s-{host}}}" for host in "abc"]})
    sink = lab.udp("c")
    for host in "ab":
        flood(lab, host, "c", 10**9)
    time.sleep(0.001)
    before = lab.stats()["s-c"]
    time.sleep(0.002)
    stats = lab.stats()
    sink.close()
    sent_bytes = stats["s-c"].lanes[0].sent_bytes - before.lanes[0].sent_bytes
    return {
        "rate": sent_bytes * 8e9 / (stats["s-c"].now_ns - before.now_ns),
        "stops": stats["a-s"].lanes[0].stalls,
        "headroom_drops": sum(each.dropped_bytes(vl.DropCause.HEADROOM) for each in stats.values()),
        "other_drops": sum(
            each.dropped_bytes(*(set(vl.DropCause) - {vl.DropCause.HEADROOM})) for each in stats.values()
        ),
        "most_buffered_bytes": stats["a-s"].lanes[0].most_buffered_bytes,
    }
