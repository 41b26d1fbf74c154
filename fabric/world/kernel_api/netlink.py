"""Links, addresses, routes, neighbours and queues as batches of rtnetlink messages.

A fabric needs tens of thousands of them. Encoding them here by ``struct`` and sending them in bursts takes microseconds
each, where a process or a general netlink library takes hundreds; a socket opened in a host's network namespace stays
connected to that namespace. Layouts: linux/{rtnetlink,if_link,neighbour,pkt_sched,pkt_cls}.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fabric.errors import EmulationError
from fabric.world.isolation import netns
from fabric.world.kernel_api.timeval import timeval
from fabric.world.programs.relayed import RelayedSocket, relayed_socket

BPF_INSTRUCTION = struct.Struct("=HBBI")
"""Of classic BPF (linux/filter.h): code, where to go on if true and if not, and a value."""

NLMSG_NOOP, NLMSG_ERROR, NLMSG_DONE = 1, 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 0x1, 0x4, 0x300
NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE = 0x100, 0x200, 0x400
RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH, RTM_NEWRULE = 16, 18, 20, 24, 28, 32
RTM_DELLINK, RTM_DELRULE, RTM_NEWLINKPROP = 17, 33, 108
_NESTED, _IFLA_PROP_LIST, _IFLA_ALT_IFNAME = 0x8000, 52, 53  # linux/netlink.h, linux/if_link.h
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC, RTM_NEWTCLASS, RTM_NEWTFILTER, RTM_DELTFILTER = 36, 37, 38, 40, 44, 45
RTM_GETTCLASS = 42
TC_H_ROOT = 0xFFFFFFFF
ETH_P_ALL, ETH_P_IP = 0x0003, 0x0800
DELAY_HANDLE = 2 << 16
_INSTANT_RATE = 1 << 62  # Bytes per second, by which no frame takes a ns.
_DELAYED_PACKETS = 1_000_000  # netem's own limit, far above what is under way on a link.
IFF_UP = 1

MAIN_ROUTES = 254
_LOCAL_ROUTES = 255
_INVERTED = 2  # linux/fib_rules.h: FIB_RULE_INVERT
_IFF_NOARP = 0x80
_SCOPE_UNIVERSE, _SCOPE_LINK, _ONLINK = 0, 253, 4  # linux/rtnetlink.h; RTNH_F_ONLINK
_UNREACHABLE = 7  # linux/rtnetlink.h: RTN_UNREACHABLE
_TO_TABLE = 1  # linux/fib_rules.h: FR_ACT_TO_TBL
SOURCE_RULES = 1000
"""The priority of the rules that go by source, plus the number of the table."""
"""Preferences of rules for source addresses: before the main table's, 32766."""

HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_IFINFO = struct.Struct("=BxHiII")
_TCMSG = struct.Struct("=BxxxiIII")
_RATESPEC = struct.Struct("=BBHhHI")
_BURST_BYTES = 24 * 1024  # Small enough for the default size of a socket's send buffer.
_BURST_REQUESTS = 128
"""The kernel answers a burst at once, and what the receive buffer has no room for is lost (ENOBUFS). An answer takes
less than 1 KB of it, however short the request; the default, 208 KiB, holds some 270."""
_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
RECEIVED_BYTES = 1 << 18
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_ACK_TIMEOUT_S = 10.0
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_REASON_START = 4 + HEADER.size  # After the error and the header of the request; its body is left out (CAP_ACK).
_MAX_U32 = 0xFFFFFFFF
_TICK_NS = 64  # What HTB counts burst sizes in (PSCHED_SHIFT 6).
_IF_OPER_UP = b"\6"
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET: HTB computes from the rate and needs no rate table.


@dataclass(frozen=True)
class Request:
    """A message without its sequence number: type, flags beside REQUEST and ACK, body; and what it is for, in words."""

    kind: int
    flags: int
    body: bytes
    what: str


def attribute(kind: int, payload: bytes) -> bytes:
    """Return a netlink attribute, padded to four bytes."""
    length = 4 + len(payload)
    return struct.pack("=HH", length, kind) + payload + b"\0" * (-length % 4)


def _text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


@dataclass(frozen=True)
class LinkEnd:
    """One end of a veth pair to be made. ``namespace``: an open descriptor of where it goes; None: the socket's."""

    interface: str
    index: int
    mac: str
    namespace: int | None = None


def veth_pair(a: LinkEnd, b: LinkEnd, mtu_bytes: int) -> Request:
    """Make a veth pair with both ends named, numbered, addressed and in place at once.

    Segments are never larger than the MTU (``gso_max_segs`` 1), or queues would see 64 KB super-packets.
    """
    peer = _IFINFO.pack(0, 0, b.index, 0, 0) + _end_attributes(b, mtu_bytes)
    info = _text(1, "veth") + attribute(2, attribute(1, peer))
    body = _IFINFO.pack(0, 0, a.index, 0, 0) + _end_attributes(a, mtu_bytes) + attribute(18, info)
    return Request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body, f"making link {a.interface}--{b.interface}")


def new_link(end: LinkEnd, mtu_bytes: int, kind: str, attributes: bytes) -> Request:
    """Make an interface of a kind that has attributes of its own, with segments as of :func:`veth_pair`."""
    info = _text(1, kind) + attribute(2, attributes)
    body = _IFINFO.pack(0, 0, end.index, 0, 0) + _end_attributes(end, mtu_bytes) + attribute(18, info)
    return Request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body, f"making the interface {end.interface}")


def _end_attributes(end: LinkEnd, mtu_bytes: int) -> bytes:
    place = b"" if end.namespace is None else _u32(28, end.namespace)
    return _text(3, end.interface) + _u32(4, mtu_bytes) + attribute(1, _mac(end.mac)) + _u32(40, 1) + place


def delete_link(index: int, interface: str) -> Request:
    """Take an interface away, with what waits at it."""
    return Request(RTM_DELLINK, 0, _IFINFO.pack(0, 0, index, 0, 0), f"taking away the interface {interface}")


def link_state(index: int, interface: str, up: bool) -> Request:
    """Set an interface up or down."""
    body = _IFINFO.pack(0, 0, index, IFF_UP if up else 0, IFF_UP)
    return Request(RTM_NEWLINK, 0, body, f"setting {interface} {'up' if up else 'down'}")


def alternative_name(index: int, name: str) -> Request:
    """Give an interface a second name, by which the kernel finds it, too (``ip link property add altname``)."""
    body = _IFINFO.pack(0, 0, index, 0, 0) + attribute(_NESTED | _IFLA_PROP_LIST, _text(_IFLA_ALT_IFNAME, name))
    return Request(RTM_NEWLINKPROP, NLM_F_CREATE | NLM_F_EXCL, body, f"naming interface {index} {name}, too")


def without_arp(index: int, interface: str) -> Request:
    """Let an interface resolve no addresses: all that it sends goes to its own MAC address."""
    body = _IFINFO.pack(0, 0, index, _IFF_NOARP, _IFF_NOARP)
    return Request(RTM_NEWLINK, 0, body, f"switching off ARP at {interface}")


def address(index: int, interface: str, ip: str, prefix_bits: int) -> Request:
    """Give an interface an IPv4 address."""
    packed = socket.inet_aton(ip)
    body = struct.pack("=BBBBI", socket.AF_INET, prefix_bits, 0, 0, index) + attribute(2, packed) + attribute(1, packed)
    return Request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, body, f"giving {interface} the address {ip}/{prefix_bits}")


def route(
    index: int,
    interface: str,
    network: str,
    source: str,
    table: int = MAIN_ROUTES,
    gateway: str | None = None,
) -> Request:
    """Route a network such as ``10.0.0.0/8``, or an address, out of an interface, from ``source``: straight, or by a
    gateway, which is there without a route of its own."""
    address, prefix_bits = _parts_of(network)
    scope, flags = (_SCOPE_LINK, 0) if gateway is None else (_SCOPE_UNIVERSE, _ONLINK)
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix_bits, 0, 0, table, 4, scope, 1, flags)
    attributes = attribute(1, socket.inet_aton(address)) + _u32(4, index) + attribute(7, socket.inet_aton(source))
    if gateway is not None:
        attributes += attribute(5, socket.inet_aton(gateway))
    what = f"routing {address}/{prefix_bits} over {interface}"
    return Request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, header + attributes, what)


def unreachable(network: str) -> Request:
    """Tell programs that send to a network that there is no way ("No route to host")."""
    address, prefix_bits = _parts_of(network)
    header = struct.pack(
        "=BBBBBBBBI", socket.AF_INET, prefix_bits, 0, 0, MAIN_ROUTES, 4, _SCOPE_UNIVERSE, _UNREACHABLE, 0
    )
    what = f"closing the way to {address}/{prefix_bits}"
    return Request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, header + attribute(1, socket.inet_aton(address)), what)


def _parts_of(network: str) -> tuple[str, int]:
    address, _, bits = network.partition("/")
    return address, int(bits or 32)


def rule_from(source: str, table: int) -> Request:
    """Route what an address sends by a table of its own."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 32, 0, table, 0, 0, _TO_TABLE, 0)
    body = header + attribute(2, socket.inet_aton(source)) + _u32(6, SOURCE_RULES + table)
    return Request(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, body, f"routing what {source} sends by table {table}")


def rule_for_arrivals() -> Request:
    """Look up in the table of local addresses what came in by an interface, before all else."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _LOCAL_ROUTES, 0, 0, _TO_TABLE, _INVERTED)
    body = header + _text(3, "lo") + _u32(6, 1)
    return Request(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, body, "looking up local addresses for what arrives")


def rule_to_local(network: str, prefix_bits: int, priority: int) -> Request:
    """Look up in the table of local addresses what goes to a network."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, prefix_bits, 0, 0, _LOCAL_ROUTES, 0, 0, _TO_TABLE, 0)
    body = header + attribute(1, socket.inet_aton(network)) + _u32(6, priority)
    what = f"looking up local addresses for {network}/{prefix_bits}"
    return Request(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, body, what)


def delete_rule_for_local() -> Request:
    """Take away the rule that delivers whatever goes to an address of this namespace without sending it."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, _LOCAL_ROUTES, 0, 0, _TO_TABLE, 0)
    return Request(RTM_DELRULE, 0, header + _u32(6, 0), "taking away the rule for local addresses")


def neighbour(index: int, ip: str, mac: str) -> Request:
    """Set a permanent ARP entry."""
    body = struct.pack("=BxHiHBB", socket.AF_INET, 0, index, 0x80, 0, 0)
    body += attribute(1, socket.inet_aton(ip)) + attribute(2, _mac(mac))
    return Request(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body, f"setting the neighbour {ip}")


def traffic_control(index: int, handle: int, parent: int, info: int, kind: str, options: bytes | None = None) -> bytes:
    """Return the body of a message about a qdisc, class or filter: a tcmsg with its kind and options."""
    body = _TCMSG.pack(0, index, handle, parent, info) + _text(1, kind)
    return body if options is None else body + attribute(2, options)


def delay_root(index: int, interface: str, delay_ns: int, jitter_ns: int = 0) -> Request:
    """Make netem the root qdisc 2: of an interface: what goes through 2:1 below it is late by ``delay_ns``.

    With ``jitter_ns``, by up to so much more, evenly distributed; frames keep their order, which netem sees to where
    it has a rate, here one that no frame takes a nanosecond at.
    The delay is TCA_NETEM_LATENCY64, in ns: the older field that ``tc`` also writes is in steps of 64 ns.
    """
    half_ns = jitter_ns // 2
    options = struct.pack("=IIIIII", 0, _DELAYED_PACKETS, 0, 0, 0, 0)
    options += attribute(10, struct.pack("=q", delay_ns + half_ns))
    if half_ns:
        options += attribute(11, struct.pack("=q", half_ns)) + attribute(8, struct.pack("=Q", _INSTANT_RATE))
    body = traffic_control(index, DELAY_HANDLE, TC_H_ROOT, 0, "netem", options)
    what = f"delaying {interface} by netem, which this kernel must have (that of the virtual engine does)"
    return Request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, body, what)


def htb_root(index: int, interface: str, default_class: int, parent: int = TC_H_ROOT) -> Request:
    """Make HTB the qdisc 1: of an interface; unclassified packets go to ``default_class`` (a minor number)."""
    options = attribute(2, struct.pack("=IIIII", 3, 10, default_class, 0, 0))
    body = traffic_control(index, 1 << 16, parent, 0, "htb", options)
    return Request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, body, f"putting HTB on {interface}")


@dataclass(frozen=True)
class HtbRates:
    """An HTB class's rates in bytes/s, its burst in bytes, its quantum in bytes and its priority (0 first)."""

    rate: float
    ceiling: float
    burst_bytes: float
    quantum_bytes: int
    priority: int


def htb_class(index: int, interface: str, minor: int, parent_minor: int, rates: HtbRates) -> Request:
    """Make or change class 1:``minor`` below 1:``parent_minor`` (0: the root)."""
    rate, ceiling = round(rates.rate), round(rates.ceiling)
    parameters = _ratespec(rate) + _ratespec(ceiling)
    parameters += struct.pack(
        "=IIIII",
        _burst_ticks(rates.burst_bytes, rate),
        _burst_ticks(rates.burst_bytes, ceiling),
        rates.quantum_bytes,
        0,
        rates.priority,
    )
    options = attribute(1, parameters)
    options += attribute(6, struct.pack("=Q", rate)) + attribute(7, struct.pack("=Q", ceiling))
    parent = 1 << 16 | parent_minor
    body = traffic_control(index, 1 << 16 | minor, parent, 0, "htb", options)
    return Request(RTM_NEWTCLASS, NLM_F_CREATE, body, f"making class 1:{minor:x} on {interface}")


def _ratespec(rate: int) -> bytes:
    return _RATESPEC.pack(0, _ETHERNET, 0, 0, 0, min(rate, _MAX_U32))


def _burst_ticks(burst_bytes: float, rate: int) -> int:
    return max(1, min(_MAX_U32, round(burst_bytes * 1e9 / rate / _TICK_NS)))


def byte_fifo(index: int, interface: str, major: int, parent_minor: int, limit_bytes: int) -> Request:
    """Make the drop-tail queue ``major``: of class 1:``parent_minor``, holding up to ``limit_bytes``."""
    body = traffic_control(index, major << 16, 1 << 16 | parent_minor, 0, "bfifo", struct.pack("=I", limit_bytes))
    return Request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_REPLACE, body, f"making queue {major:x}: on {interface}")


def bpf_filter(index: int, interface: str, program: bytes) -> Request:
    """Let a classic BPF program (:mod:`fabric.queueing.classifier`) say which class of qdisc 1: an IPv4 packet goes
    to."""
    count = struct.pack("=H", len(program) // BPF_INSTRUCTION.size)
    body = traffic_control(
        index, 0, 1 << 16, 1 << 16 | socket.htons(ETH_P_IP), "bpf", attribute(4, count) + attribute(5, program)
    )
    what = f"classifying on {interface}, which needs a kernel with CONFIG_NET_CLS_BPF"
    return Request(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body, what)


def delete_root_qdisc(index: int, interface: str) -> Request:
    """Take the root qdisc of an interface away, with all that hangs below and waits in it."""
    body = _TCMSG.pack(0, index, 0, TC_H_ROOT, 0)
    return Request(RTM_DELQDISC, 0, body, f"taking the queues off {interface}")


def open_socket(namespace: Path | None) -> socket.socket:
    """Return an rtnetlink socket in a network namespace of this guest or machine (None: the caller's own)."""
    if namespace is None:
        return _opened()
    with netns.inside(namespace):
        return _opened()


def _opened() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)  # As far as the sysctl allows.
    with suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
    for option in (_CAP_ACK, _EXT_ACK):
        sock.setsockopt(_SOL_NETLINK, option, 1)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, timeval(_ACK_TIMEOUT_S))
    sock.bind((0, 0))
    return sock


class Netlink:
    """An rtnetlink socket in one network namespace (the caller's own unless ``namespace`` is given)."""

    def __init__(self, namespace: Path | None = None) -> None:
        self._socket: socket.socket | RelayedSocket
        if netns.guest_of(namespace):
            assert namespace is not None
            self._socket = relayed_socket(namespace, _ACK_TIMEOUT_S)
        else:
            self._socket = open_socket(namespace)
        self._sequence = 0
        self._may_dump = False

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, requests: Sequence[Request]) -> None:
        """Carry out requests in order. Raises EmulationError naming the first that failed; later ones may be done."""
        burst: list[Request] = []
        size = 0
        for request in requests:
            burst.append(request)
            size += HEADER.size + len(request.body)
            if size >= _BURST_BYTES or len(burst) == _BURST_REQUESTS:
                self._send_burst(burst)
                burst, size = [], 0
        if burst:
            self._send_burst(burst)

    def _send_burst(self, burst: Sequence[Request]) -> None:
        first = self._sequence + 1
        parts = []
        for request in burst:
            self._sequence += 1
            flags = NLM_F_REQUEST | NLM_F_ACK | request.flags
            length = HEADER.size + len(request.body)
            parts.append(HEADER.pack(length, request.kind, flags, self._sequence, 0) + request.body)
            parts.append(b"\0" * (-length % 4))
        self._transmit(b"".join(parts), burst[0].what)
        answered = 0
        while answered < len(burst):
            for kind, sequence, body in messages(self._receive(burst[answered].what)):
                if kind == NLMSG_ERROR:
                    answered += 1
                    self._verify(body, burst[sequence - first].what)

    def _transmit(self, data: bytes, what: str) -> None:
        try:
            self._socket.send(data)
        except OSError as error:
            raise EmulationError(
                f"{what}: the kernel took no request: {error.strerror}{_memory_words(error)}"
            ) from error

    def _receive(self, what: str) -> bytes:
        try:
            return self._socket.recv(RECEIVED_BYTES)
        except BlockingIOError as error:
            raise EmulationError(f"{what}: the kernel did not answer within {_ACK_TIMEOUT_S:g} s") from error
        except OSError as error:
            raise EmulationError(
                f"{what}: the kernel's answer was lost: {error.strerror}{_memory_words(error)}"
            ) from error

    @staticmethod
    def _verify(answer: bytes, what: str) -> None:
        (code,) = struct.unpack_from("=i", answer)
        if code:
            name = errno.errorcode.get(-code, str(-code))
            words = dict(attributes_of(answer, _REASON_START)).get(1, b"").rstrip(b"\0").decode(errors="replace")
            reason = f"{os.strerror(-code)} ({name})" + (f": {words}" if words else "")
            raise EmulationError(f"{what}: the kernel refused: {reason}")

    def dump(self, kind: int, body: bytes) -> bytes:
        """Return the answer to a dump request as it came: messages back to back, the closing one left out."""
        if not self._may_dump:
            # The kernel takes a socket that has not received anything yet for one that reads 4 KB at a time, and leaves
            # out of a dump, without a word, what does not fit into that.
            self._send_burst([Request(NLMSG_NOOP, 0, b"", "opening a socket for dumps")])
            self._may_dump = True
        self._sequence += 1
        header = HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, self._sequence, 0)
        self._transmit(header + body, f"dump of message type {kind}")
        parts = []
        while True:
            data = self._receive(f"dump of message type {kind}")
            end = _end_of_dump(data)
            if end is None:
                parts.append(data)
                continue
            parts.append(data[:end])
            return b"".join(parts)

    def dump_qdiscs(self) -> bytes:
        """Return every qdisc of the namespace with its counters, to be read by :mod:`fabric.queueing.htb`."""
        return self.dump(RTM_GETQDISC, _TCMSG.pack(0, 0, 0, 0, 0))

    def htb_rate(self, index: int) -> int | None:
        """Return the rate of an interface's whole HTB tree, that of class 1:1, in bytes/s; None if it has none."""
        dump = self.dump(RTM_GETTCLASS, _TCMSG.pack(0, index, 0, 0, 0))
        return next((rate for _, _, body in messages(dump) if (rate := _htb_rate(body)) is not None), None)

    def link(self, index: int) -> LinkCounters:
        """Return the counters of one interface. Raises EmulationError if it does not exist."""
        self._sequence += 1
        body = _IFINFO.pack(0, 0, index, 0, 0)
        header = HEADER.pack(HEADER.size + len(body), RTM_GETLINK, NLM_F_REQUEST, self._sequence, 0)
        self._transmit(header + body, f"reading interface {index}")
        ((kind, _, answer),) = messages(self._receive(f"reading interface {index}"))
        if kind == NLMSG_ERROR:
            self._verify(struct.unpack_from("=i", answer)[0], f"reading interface {index}")
        return _link_counters(answer)[1]

    def link_counters(self) -> dict[str, LinkCounters]:
        """Return the counters of every interface of the namespace, by its alternative name or, without one, its
        name."""
        answer = self.dump(RTM_GETLINK, _IFINFO.pack(0, 0, 0, 0, 0))
        return dict(_link_counters(body) for _, _, body in messages(answer))


def _memory_words(error: OSError) -> str:
    """Return what may help, after a semicolon, if the kernel lacked memory."""
    if error.errno not in (errno.ENOBUFS, errno.ENOMEM):
        return ""
    return "; it lacks memory: use a smaller fabric, or in virtual time a larger guest (--memory)"


@dataclass(frozen=True)
class LinkCounters:
    """An interface's counters (struct rtnl_link_stats64), in packets and bytes; and its state.

    ``carrier``: both ends of its link are up. ``running``: the kernel has noticed, and lets its queue send; a moment
    earlier, all frames that are sent into it vanish without a count.
    """

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int
    carrier: bool
    running: bool


def _link_counters(body: bytes) -> tuple[str, LinkCounters]:
    attributes = dict(attributes_of(body, _IFINFO.size))
    name = dict(attributes_of(attributes.get(_IFLA_PROP_LIST, b""), 0)).get(_IFLA_ALT_IFNAME, attributes[3])
    values = struct.unpack_from("=8Q", attributes[23])
    rx_packets, tx_packets, rx_bytes, tx_bytes, _, _, rx_dropped, tx_dropped = values
    carrier, running = attributes.get(33, b"\1") == b"\1", attributes[16] == _IF_OPER_UP
    counters = LinkCounters(rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, carrier, running)
    return name.rstrip(b"\0").decode(), counters


def _htb_rate(body: bytes) -> int | None:
    """Return the rate in bytes/s of a class's message if it is HTB's 1:1."""
    attributes = dict(attributes_of(body, _TCMSG.size))
    if _TCMSG.unpack_from(body)[2] != 1 << 16 | 1 or attributes.get(1, b"").rstrip(b"\0") != b"htb":
        return None
    options = dict(attributes_of(attributes[2], 0))
    if 6 in options:  # TCA_HTB_RATE64: only of 4 GB/s and more.
        return int(struct.unpack_from("=Q", options[6])[0])
    return int(struct.unpack_from("=I", options[1], 8)[0])  # struct tc_ratespec


def attributes_of(body: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes of a message body from ``start``: kind and payload."""
    offset = start
    while offset + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, offset)
        yield kind & 0x3FFF, body[offset + 4 : offset + length]
        offset += (length + 3) & ~3


def attribute_at(dump: bytes, start: int, end: int, wanted: int) -> int:
    """Return where the payload of an attribute begins, of those from ``start`` to ``end``. Raises EmulationError."""
    offset = start
    while offset + 4 <= end:
        length, kind = struct.unpack_from("=HH", dump, offset)
        if kind & 0x3FFF == wanted:
            return offset + 4
        offset += (length + 3) & ~3
    raise EmulationError(f"a message of the kernel's without attribute {wanted}; its layout has changed")


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the messages of an answer: type, sequence number and body."""
    offset = 0
    while offset + HEADER.size <= len(data):
        length, kind, _, sequence, _ = HEADER.unpack_from(data, offset)
        yield kind, sequence, data[offset + HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _end_of_dump(data: bytes) -> int | None:
    """Return where the closing message of a dump begins in ``data``; None if it is not in it."""
    offset = 0
    while offset + HEADER.size <= len(data):
        length, kind, *_ = HEADER.unpack_from(data, offset)
        if kind == NLMSG_ERROR:
            Netlink._verify(data[offset + HEADER.size : offset + length], "dump")
        if kind in (NLMSG_DONE, NLMSG_ERROR):
            return offset
        offset += (length + 3) & ~3
    return None
