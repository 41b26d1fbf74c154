"""How a port marks frames, measured in a guest: ``measured("marking", "curve", ...)``."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from fabric.config import checked
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.marking import Marking
from fabric.queueing import vl
from fabric.queueing.counters import QueueReader
from fabric.queueing.htb import ShapedPort, replace_requests
from tests.vl.lab import FRAME_BYTES, MTU_BYTES, PAYLOAD_BYTES, Lab, two_hosts

_ECT, _CE, _ECN = 2, 3, 3
_RATE_BPS = 10**10
_SNDBUFFORCE, _RCVBUFFORCE, _RECVTOS = 32, 33, 13


def _marking_port(min_bytes: int, max_bytes: int, probability: float) -> vl.VlConfig:
    lane = vl.LaneBuffer(
        limit_bytes=1 << 30,
        mark_min_bytes=min_bytes,
        mark_max_bytes=max_bytes,
        mark_probability=round(probability * (2**32 - 1)),
    )
    return vl.VlConfig(_RATE_BPS, {0: lane}, vl.FlowControlMode.LOSSY)


def _sent_at_once(sender: socket.socket, address: tuple[str, int], frames: int) -> None:
    """All of them wait in the port before the first has left: nothing in a guest takes time but the link."""
    for number in range(frames):
        sender.sendto(struct.pack("=I", number) + bytes(PAYLOAD_BYTES - 4), address)


def _received_marks(receiver: socket.socket, frames: int) -> Iterator[tuple[int, bool]]:
    for _ in range(frames):
        data, ancillary, _, _ = receiver.recvmsg(PAYLOAD_BYTES, socket.CMSG_SPACE(4))
        (tos,) = (value[0] for level, kind, value in ancillary if (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS))
        (number,) = struct.unpack_from("=I", data)
        yield number, tos & _ECN == _CE


def curve(min_bytes: int, max_bytes: int, probability: float, frames: int, rounds: int, ect: bool) -> dict[str, object]:
    """Return by how many frames a frame left behind: how often that was, and how often the frame was marked."""
    lab = two_hosts(_marking_port(min_bytes, max_bytes, probability))
    seen, marked = _counted(lab, frames, rounds, ect)
    lane = lab.stats()["a-b"].lanes[0]
    return {"seen": seen[::-1], "marked": marked[::-1], "counted": [lane.marked_packets, lane.marked_bytes]}


def held_in_htb(marking: dict[str, float], waiting: list[int], frames: int) -> dict[str, Any]:
    """Hold a queue of HTB at about each of these lengths, in frames, while so many pass; return what part is marked.

    ``lengths``: what was in the queue when a frame came, on average; ``counted``: the marks that the queue's counters
    tell of, ``came``: those that came.
    """
    lab = two_hosts(_marking_port(0, 0, 0.0))
    end = lab.interfaces["a-b"]
    port = ShapedPort(end.name, end.index, _RATE_BPS, MTU_BYTES)
    plan = plan_lanes(QueueConfig(marking=checked(Marking, marking, "test")), Queueing.SHARED)
    lab.socket_of("a").send(replace_requests(port, plan))
    sender, receiver = _sockets(lab, True)
    shares, lengths, came = [], [], 0
    for length in waiting:
        lengths.append(_sent_one_by_one(lab, sender, length, frames))
        marks = [is_marked for _, is_marked in _received_marks(receiver, length + frames)]
        shares.append(sum(marks[length:]) / frames)
        came += sum(marks)
    counted = {name: _counter(lab, name) for name in ("marked_packets", "drops_packets")}
    return {"shares": shares, "lengths": lengths, "came": came, **counted}


def _counter(lab: Lab, name: str) -> int:
    _, counters = QueueReader().read(lab.socket_of("a").dump_qdiscs())
    return int(counters[name][0])


def _sent_one_by_one(lab: Lab, sender: socket.socket, length: int, frames: int) -> float:
    """Fill a queue, and then send a frame whenever one has left it; return how many waited there, on average."""
    began_s, frame_s = time.monotonic(), FRAME_BYTES * 8 / _RATE_BPS
    address, lengths = (lab.ip("b"), 5000), []
    _sent_at_once(sender, address, length)
    for number in range(frames):
        time.sleep(max(0.0, began_s + (number + 1) * frame_s - time.monotonic()))
        if number % 50 == 0:
            lengths.append(_counter(lab, "backlog_packets"))
        sender.sendto(struct.pack("=I", number) + bytes(PAYLOAD_BYTES - 4), address)
    return sum(lengths) / len(lengths)


def _sockets(lab: Lab, ect: bool) -> tuple[socket.socket, socket.socket]:
    sender, receiver = lab.udp("a", tos=_ECT if ect else 0), lab.udp("b")
    sender.setsockopt(socket.SOL_SOCKET, _SNDBUFFORCE, 1 << 26)
    receiver.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 1 << 26)
    receiver.setsockopt(socket.IPPROTO_IP, _RECVTOS, 1)
    receiver.settimeout(5)
    return sender, receiver


def _counted(lab: Lab, frames: int, rounds: int, ect: bool) -> tuple[list[int], list[int]]:
    """Return how often a frame of each number in a row came, and how often it came marked."""
    sender, receiver = _sockets(lab, ect)
    seen, marked = [0] * frames, [0] * frames
    for _ in range(rounds):
        _sent_at_once(sender, (lab.ip("b"), 5000), frames)
        for number, is_marked in _received_marks(receiver, frames):
            seen[number] += 1
            marked[number] += is_marked
    return seen, marked
