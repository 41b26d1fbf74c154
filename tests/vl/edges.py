"""What a port does at its edges, in a guest: ends that merge frames, cuts that nobody sees, many waits, jitter."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import time
from pathlib import Path

from fabric.errors import EmulationError
from fabric.queueing import vl
from fabric.world.kernel_api import netlink
from tests.vl import lab as labs
from tests.vl.lab import Lab
from tests.vl.leaks import port, redirect, redirected

_SIOCETHTOOL = 0x8946
_SET_TX_CHECKSUM, _SET_SG, _SET_TSO, _SET_GRO = 0x17, 0x19, 0x1F, 0x2C
RATE_BPS = 10_000_000_000


def _switch_offload(lab: Lab, name: str, command: int, value: int) -> None:
    """Switch an offload of a host's interface on or off, as ``ethtool -K`` does."""
    buffer = ctypes.create_string_buffer(struct.pack("=II", command, value), 8)
    with lab.inside(lab.interfaces[name].node):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP", name.encode(), ctypes.addressof(buffer)))


def merging_refused() -> str:
    """Return how a port is refused whose other end merges frames."""
    lab = labs.two_hosts(port())
    _switch_offload(lab, "b-a", _SET_GRO, 1)
    end = lab.interfaces["a-b"]
    lab.socket_of("a").send([netlink.delete_root_qdisc(end.index, end.name)])  # Else its options would be changed.
    try:
        lab.install("a-b", port())
    except EmulationError as error:
        return str(error)
    return ""


def _hold_frames_to_merge(lab: Lab, name: str, flush_ns: int) -> None:
    """Let a host's interface keep frames for so long at most, for others to come that they are merged with.

    Else it passes on what has come at once, which in virtual time is one frame.
    """
    place = Path("/tmp/sysfs-of-a-host")
    place.mkdir()
    with lab.inside(lab.interfaces[name].node):
        assert ctypes.CDLL(None).mount(b"sysfs", bytes(place), b"sysfs", 0, None) == 0
    (place / "class/net" / name / "gro_flush_timeout").write_text(str(flush_ns))


def merging_later() -> dict[str, object]:
    """Let the other end merge frames from now on; return what is taken of its buffer when all have come."""
    lab = labs.two_hosts(port())
    for offload in (_SET_TSO, _SET_SG, _SET_TX_CHECKSUM):  # As all links of a fabric have it.
        _switch_offload(lab, "a-b", offload, 0)
    before_bps = labs.goodput_bps(lab, "a", "b", 20_000_000)
    _switch_offload(lab, "b-a", _SET_GRO, 1)
    _hold_frames_to_merge(lab, "b-a", 20_000)
    sent, came = lab.stats()["a-b"].lanes[0].sent_packets, _segments_in(lab, "b")
    merged_bps = labs.goodput_bps(lab, "a", "b", 20_000_000)
    time.sleep(0.01)
    lane = lab.stats()["a-b"].lanes[0]
    return {
        "before": before_bps,
        "merged": merged_bps,
        "sent": lane.sent_packets - sent,
        "came": _segments_in(lab, "b") - came,
        "used": lane.used_bytes,
    }


def _segments_in(lab: Lab, host: str) -> int:
    """Return how many segments TCP has taken in on a host, merged ones counted once."""
    with lab.inside(host):
        names, values = (
            line.split() for line in Path("/proc/thread-self/net/snmp").read_text().splitlines() if "Tcp:" in line
        )
    return int(values[names.index("InSegs")])


def short_cut() -> dict[str, object]:
    """Cut a link for no time at all while frames wait for credits that do not come; return what became of them."""
    lab = redirected(port())
    lab.change("s-b", labs.one_lane(1000, credit_bytes=32 * 1024))
    child = labs.flood(lab, "a", "b", 1000)
    time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    waiting = lab.stats()["a-s"].lanes[0].backlog_packets
    lab.set_up("s-a", False)
    lab.set_up("s-a", True)
    lane = lab.stats()["a-s"].lanes[0]
    return {
        "waiting": waiting,
        "left": lane.backlog_packets,
        "cut": lane.dropped_packets[vl.DropCause.LINK_DOWN],
        "others": sum(lane.dropped_packets) - lane.dropped_packets[vl.DropCause.LINK_DOWN],
    }


def many_waits(hosts: int, lanes: int) -> int:
    """Have frames of so many hosts, in so many lanes each, wait in one port; return how many waits it tells of."""
    options = vl.VlConfig(
        RATE_BPS,
        {lane: vl.LaneBuffer(credit_bytes=32 * 1024) for lane in range(lanes)},
        low=[vl.ArbitrationEntry(lane, 1) for lane in range(lanes)],
        lane_of_dscp={lane: lane for lane in range(lanes)},
    )
    lab = Lab()
    names = [f"h{number}" for number in range(hosts)]
    for host in (*names, "b"):
        lab.add_host(host)
        lab.link(host, "s", options)
    lab.give_addresses()
    for host in names:
        redirect(lab, f"s-{host}", "s-b")
    lab.change("s-b", vl.VlConfig(1000, options.buffers, low=options.low, lane_of_dscp=options.lane_of_dscp))
    for host in names:
        with lab.inside(host):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sock:
            for lane in range(lanes):
                sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 4 * lane)
                sock.sendto(b"?", (lab.ip("b"), 5000))
    time.sleep(0.001)
    return len(lab.stats()["s-b"].waits)


def jittered(jitter_ns: int, frames: int) -> dict[str, object]:
    """Send lone datagrams, then a burst of numbered ones, then a stream, all with jitter; return what came how."""
    lab = labs.two_hosts(labs.one_lane(RATE_BPS, credit_bytes=1 << 20))
    lab.change("a-b", vl.VlConfig(RATE_BPS, {0: vl.LaneBuffer(credit_bytes=1 << 20)}, jitter_ns=jitter_ns))
    source, sink = lab.udp("a"), lab.udp("b")
    took_ns = []
    for _ in range(frames):
        time.sleep(0.0001)
        sent_ns = time.monotonic_ns()
        source.sendto(bytes(958), (lab.ip("b"), 5000))
        sink.recv(65536)
        took_ns.append(time.monotonic_ns() - sent_ns)
    for number in range(frames):
        source.sendto(struct.pack("=I", number), (lab.ip("b"), 5000))
    order = [struct.unpack("=I", sink.recv(65536))[0] for _ in range(frames)]
    return {"took_ns": took_ns, "order": order, "rate": labs.goodput_bps(lab, "a", "b", 50_000_000)}
