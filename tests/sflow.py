"""sFlow version 5 (sflow.org/sflow_version_5.txt), decoded as far as Open vSwitch writes it."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from fabric.emulation.sflow import agents_of
from topologies.load import load_fabric

_FLOW_SAMPLE, _COUNTERS_SAMPLE = 1, 2
_RAW_HEADER, _IF_COUNTERS, _PORT_NAME = 1, 1, 1005
_ETHERNET = 1


COUNTED = "iperf3 -c z0h001 -n 4M >/dev/null && sleep 2 && ip -s -j link show z0h000-eth0"
"""4 MB from z0h000 to z0h001, and then what its NIC has sent."""


@dataclass(frozen=True)
class FlowSample:
    """A sampled packet: its first bytes and its whole length, the interfaces by their numbers, one in how many is
    sampled, and of how many that arrived so far."""

    input: int
    output: int
    rate: int
    pool: int
    frame_bytes: int
    header: bytes


@dataclass(frozen=True)
class Counters:
    """Of an interface, by its number and its name: its rate, and what it has received and sent."""

    index: int
    name: str
    speed_bps: int
    in_bytes: int
    in_packets: int
    out_bytes: int
    out_packets: int


@dataclass(frozen=True)
class Datagram:
    """What an agent has sent at once."""

    agent: str
    sub_agent: int
    number: int
    uptime_ms: int
    flows: list[FlowSample] = field(default_factory=list)
    counters: list[Counters] = field(default_factory=list)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._place

    def words(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f">{count}I", self.taken(4 * count))

    def word(self) -> int:
        return self.words(1)[0]

    def long(self) -> int:
        high, low = self.words(2)
        return high << 32 | low

    def taken(self, size: int) -> bytes:
        assert size <= self.left, f"{size} bytes are said to follow, and {self.left} do"
        self._place += size
        return self._data[self._place - size : self._place]

    def opaque(self) -> bytes:
        size = self.word()
        content = self.taken(size)
        self.taken(-size % 4)
        return content


def decoded(data: bytes) -> Datagram:
    """Return a datagram. Fails if it is none, or not whole."""
    reader = _Reader(data)
    version, kind = reader.words(2)
    assert (version, kind) == (5, 1), "sFlow version 5, of an agent with an IPv4 address"
    agent = str(IPv4Address(reader.taken(4)))
    sub_agent, number, uptime_ms, samples = reader.words(4)
    datagram = Datagram(agent, sub_agent, number, uptime_ms)
    for _ in range(samples):
        form, content = reader.word(), _Reader(reader.opaque())
        if form == _FLOW_SAMPLE:
            datagram.flows.append(_flow(content))
        elif form == _COUNTERS_SAMPLE and (counters := _counters(content)):
            datagram.counters.append(counters)
    assert reader.left == 0
    return datagram


def _flow(reader: _Reader) -> FlowSample:
    _, _, rate, pool, _, came, went, records = reader.words(8)
    found = {}
    for _ in range(records):
        form, content = reader.word(), reader.opaque()
        found[form] = content
    raw = _Reader(found[_RAW_HEADER])
    protocol, frame_bytes, _ = raw.words(3)
    assert protocol == _ETHERNET
    return FlowSample(came, went, rate, pool, frame_bytes, raw.opaque())


def _counters(reader: _Reader) -> Counters | None:
    _, _, records = reader.words(3)
    found = {}
    for _ in range(records):
        form, content = reader.word(), reader.opaque()
        found[form] = content
    if _IF_COUNTERS not in found:
        return None
    one = _Reader(found[_IF_COUNTERS])
    index, _ = one.words(2)
    speed_bps = one.long()
    one.words(2)
    in_bytes, in_packets = one.long(), one.word()
    one.words(5)
    out_bytes, out_packets = one.long(), one.word()
    name = _Reader(found[_PORT_NAME]).opaque().decode() if _PORT_NAME in found else ""
    return Counters(index, name, speed_bps, in_bytes, in_packets, out_bytes, out_packets)


class Collector(threading.Thread):
    """Listens on a port of its own of the loopback address, for the time of a block, and keeps what comes."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self._received: list[bytes] = []
        self._ended = threading.Event()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self._socket.close()

    @property
    def address(self) -> str:
        return "{}:{}".format(*self._socket.getsockname())

    def run(self) -> None:
        while not self._ended.is_set():
            with suppress(TimeoutError):
                self._received.append(self._socket.recv(1 << 16))

    def received(self) -> list[Datagram]:
        """Return all that has come, once the socket is empty and nothing has come for a moment."""
        count = -1
        while count != len(self._received) or select.select([self._socket], [], [], 0)[0]:
            count = len(self._received)
            time.sleep(0.3)
        return [decoded(one) for one in self._received]


def require_export(datagrams: Sequence[Datagram], topology: str, rate: int, way: tuple[str, ...]) -> None:
    """Assert that switches on the way of TCP packets from 10.0.0.1 to 10.0.0.2 have sampled them at a rate, and that
    all switches of a fabric have told of all their ports by name."""
    fabric = load_fabric(topology)
    name_of = {agent: switch.name for switch, agent in agents_of(fabric.switches).items()}
    ports = {one.index: one.name for datagram in datagrams for one in datagram.counters}
    wanted = {port.interface for switch in fabric.switches for port in fabric.ports_of[switch]}
    assert wanted | {switch.name for switch in fabric.switches} == set(ports.values())
    sampled: dict[str, int] = {}
    for datagram in datagrams:
        switch = name_of[datagram.agent]
        assert all(one.name.partition("-")[0] == switch for one in datagram.counters)
        for one in datagram.flows:
            assert one.rate == rate
            packet = Ether(one.header)
            if TCP not in packet or packet[IP].dst != "10.0.0.2" or one.frame_bytes < 1000:
                continue
            assert packet[IP].src == "10.0.0.1"
            assert ports[one.input].partition("-")[0] == switch
            assert ports[one.output].partition("-")[0] == switch
            sampled[switch] = sampled.get(switch, 0) + 1
    print(sampled)
    assert set(way) <= set(sampled)
    assert len(sampled) == 3, "leaf, spine, leaf"
    packets = 4e6 / 4096
    assert all(count * rate == pytest.approx(packets, rel=0.5) for count in sampled.values())
