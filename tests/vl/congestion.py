"""Congestion controls of the project's own, measured in a guest: ``measured("congestion", "fan_in", ...)``."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fabric.queueing import vl
from fabric.world.kernel_api import modules
from fabric.world.virtual import kernel
from tests.vl.lab import FRAME_BYTES, SEGMENT_BYTES, Lab, flood
from traffic.transport.tcp import agreed_on_ecn, bytes_acked, fix_receive_window

_PORT = 5001
_WINDOW_BYTES = 4 << 20
_CREDIT_BYTES = 4 << 20
"""So much that it is the marks which hold a queue, and not the links' flow control."""


@dataclass(frozen=True)
class Link:
    """What all links of a lab are; the port towards the receiver also marks."""

    rate_bps: int
    delay_ns: int
    marking: tuple[int, int, float] | None = None
    credit_bytes: int = _CREDIT_BYTES

    def port(self, marks: bool = False) -> vl.VlConfig:
        """Return an end of such a link."""
        lane = vl.LaneBuffer(credit_bytes=self.credit_bytes)
        if marks and self.marking is not None:
            low, high, probability = self.marking
            lane = vl.LaneBuffer(
                credit_bytes=self.credit_bytes,
                mark_min_bytes=low,
                mark_max_bytes=high,
                mark_probability=round(probability * (2**32 - 1)),
            )
        return vl.VlConfig(self.rate_bps, {0: lane}, delay_ns=self.delay_ns, return_ns=self.delay_ns)


def star(senders: int, link: Link) -> Lab:
    """Return hosts h0, h1 ... and a receiver r at a switch s, whose port to r marks."""
    lab = Lab()
    hosts = [*(f"h{number}" for number in range(senders)), "r"]
    for host in hosts:
        lab.add_host(host)
        lab.link(host, "s", link.port(), link.port(marks=host == "r"))
    lab.switch({"s": [f"priority=1,ip,nw_dst={lab.ip(host)},actions=output:{{s-{host}}}" for host in hosts]})
    lab.give_addresses()
    return lab


def two_switches(remote: int, link: Link) -> Lab:
    """Return hosts h0, h1 ... at a switch p, one more and a receiver r at a switch s, and a link between the two."""
    lab = Lab()
    switch_of = {**{f"h{number}": "p" for number in range(remote)}, f"h{remote}": "s", "r": "s"}
    for host, switch in switch_of.items():
        lab.add_host(host)
        lab.link(host, switch, link.port(), link.port(marks=True))
    lab.link("p", "s", link.port(marks=True), link.port(marks=True))
    lab.give_addresses()
    rules: dict[str, list[str]] = {"p": [], "s": []}
    for host, switch in switch_of.items():
        for here, other in (("p", "s"), ("s", "p")):
            way = f"{here}-{host}" if here == switch else f"{here}-{other}"
            rules[here].append(f"priority=1,ip,nw_dst={lab.ip(host)},actions=output:{{{way}}}")
    lab.switch(rules)
    return lab


def load_controls(parameters: Mapping[str, int]) -> None:
    """Load ``line``, and ``dcqcn`` with its parameters."""
    modules.load(kernel.running().module("tcp_line"))
    modules.load(kernel.running().module("tcp_dcqcn"), parameters)


@dataclass
class Flow:
    """Both ends of a connection."""

    sender: socket.socket
    receiver: socket.socket

    def start(self, at_s: float, until_s: float) -> None:
        """Fork a program that sends between two times, and one that reads."""
        _fork(lambda: self._send(at_s, until_s))
        _fork(self._read)

    def _send(self, at_s: float, until_s: float) -> None:
        self.receiver.close()
        time.sleep(max(0.0, at_s - time.monotonic()))
        data = bytes(1 << 18)
        while time.monotonic() < until_s:
            self.sender.send(data)
        os._exit(0)  # What waits to be sent goes on being sent; nobody measures it.

    def _read(self) -> None:
        buffer = bytearray(1 << 20)
        while self.receiver.recv_into(buffer):
            pass


def _fork(play: Callable[[], None]) -> None:
    if os.fork() == 0:
        play()
        os._exit(0)


def connected(
    lab: Lab, source: str, target: str, control: str, window_bytes: int, port: int, listening: str | None = None
) -> Flow:
    """Return a connection between two hosts; ``listening``: the control of the socket that listens, if another one."""
    with lab.inside(target):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, (listening or control).encode())
    fix_receive_window(listener, window_bytes)
    listener.bind((lab.ip(target), port))
    listener.listen()
    with lab.inside(source):
        sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    fix_receive_window(sender, window_bytes)
    sender.connect((lab.ip(target), port))
    receiver, _ = listener.accept()
    listener.close()
    return Flow(sender, receiver)


def pacing_rate_bps(sock: socket.socket) -> float:
    """Return the rate of frames at which TCP paces, by TCP_INFO's, which is of payload."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 112)
    return 8 * int.from_bytes(raw[104:112], "little") * FRAME_BYTES / SEGMENT_BYTES


def _number(name: str) -> int:
    with open(f"/sys/module/tcp_dcqcn/parameters/{name}") as file:  # noqa: PTH123
        return int(file.read())


def fan_in(
    flows: int, control: str, parameters: dict[str, int], link: list[Any], duration_s: float, period_s: float
) -> dict[str, Any]:
    """Let as many hosts at one switch send to the same receiver, and return what :func:`_sent_to_one` does."""
    load_controls(parameters)
    return _sent_to_one(star(flows, Link(*link)), flows, control, duration_s, period_s)


def parking_lot(control: str, parameters: dict[str, int], link: list[Any], duration_s: float) -> dict[str, Any]:
    """Let three hosts behind an uplink and a fourth one beside the receiver send to it, as in the paper's figure 3."""
    load_controls(parameters)
    return _sent_to_one(two_switches(3, Link(*link)), 4, control, duration_s, duration_s / 100)


def _sent_to_one(lab: Lab, flows: int, control: str, duration_s: float, period_s: float) -> dict[str, Any]:
    """Return samples from the second half of the time, and counts."""
    made = [connected(lab, f"h{one}", "r", control, _WINDOW_BYTES, _PORT + one) for one in range(flows)]
    ecn = [agreed_on_ecn(end) for flow in made for end in (flow.sender, flow.receiver)]
    began_s = time.monotonic()
    for flow in made:
        flow.start(began_s, began_s + duration_s)
    time.sleep(duration_s / 2)
    before, from_s, backlogs = [bytes_acked(flow.sender) for flow in made], time.monotonic(), []
    while time.monotonic() < began_s + duration_s:
        backlogs.append(lab.stats()["s-r"].lanes[0].backlog_bytes)
        time.sleep(period_s)
    took_s = time.monotonic() - from_s
    acked = [bytes_acked(flow.sender) - start for flow, start in zip(made, before, strict=True)]
    stats = lab.stats()
    return {
        "rates_bps": [8 * size / took_s * FRAME_BYTES / SEGMENT_BYTES for size in acked],
        "backlogs": backlogs,
        "ecn": ecn,
        "marked": stats["s-r"].lanes[0].marked_packets,
        "dropped": sum(one.dropped_bytes() for one in stats.values()),
        "counted": {name: _number(name) for name in ("flows", "flows_without_ecn", "cnps")},
    }


def recovery(
    parameters: dict[str, int], link: list[Any], frames: int, duration_s: float, period_s: float
) -> dict[str, Any]:
    """Disturb a flow that has a link to itself by so many frames at once; return its rate over time, in bit/s."""
    load_controls(parameters)
    lab = star(2, Link(*link))
    flow = connected(lab, "h0", "r", "dcqcn", _WINDOW_BYTES, _PORT)
    began_s = time.monotonic()
    flow.start(began_s, began_s + duration_s)
    time.sleep(duration_s / 20)
    undisturbed = pacing_rate_bps(flow.sender)
    flood(lab, "h1", "r", frames)
    times, rates = [], []
    while time.monotonic() < began_s + duration_s:
        times.append(time.monotonic() - began_s)
        rates.append(pacing_rate_bps(flow.sender))
        time.sleep(period_s)
    return {"undisturbed_bps": undisturbed, "at_s": times, "rates_bps": rates, "cnps": _number("cnps")}


def ecn_by_ends(parameters: dict[str, int]) -> dict[str, list[Any]]:
    """Return by the control of the listening socket what became of connections from one with ``dcqcn``: whether the
    two agreed on ECN, and how many ends without it the module has counted by then."""
    load_controls(parameters)
    lab = star(1, Link(10**10, 1000))
    found: dict[str, list[Any]] = {}
    for place, control in enumerate(("dcqcn", "cubic")):
        flow = connected(lab, "h0", "r", "dcqcn", _WINDOW_BYTES, _PORT + place, listening=control)
        found[control] = [agreed_on_ecn(flow.sender), _number("flows_without_ecn")]
    return found
