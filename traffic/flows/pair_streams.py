"""TCP streams between NICs for a time, as many at once as requested, and the bytes of each in a window of it.

A program in every host listens on each of its NICs. For every round it opens the connections that it is told to, sends
zeros until the window is over, and counts what arrives in it; then all connections are reset, so that nothing of a
round is left in the next. Between these steps, whoever orders them may measure.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.patterns import NicPair
from fabric.world.engines import current_engine
from fabric.world.programs.agents import Agent
from fabric.world.programs.guest_calls import orders_arrived_at
from traffic.job import Stage
from traffic.program_group import ProgramGroup
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import accept, connect, listen

PRELOAD = ("traffic.flows.pair_streams",)
"""For :class:`fabric.world.programs.agents.AgentPool`: what the programs import."""
CONNECT_TIMEOUT_S = 5.0
"""Long enough for three SYNs to be lost and sent again (after 1 s, then 2 s)."""
_START_TIMEOUT_S = 60.0
_PATIENCE_S = 60.0
_PIECE_BYTES = 1 << 16
_LOW_WATER_BYTES = 1 << 13
"""What must have arrived before a receiver wakes: to wake for every frame costs a guest most of its time."""
_LEAVE_APART_S = 0.01
"""Between one host's leaving and the next one's, in real time: if all reset their connections in one moment, programs
wait for each other."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, for 0 s.

_Way = tuple[str, str]
"""A flow by its addresses."""


@dataclass(frozen=True)
class _Arguments:
    addresses: tuple[str, ...]
    options: SocketOptions


@dataclass(frozen=True)
class _Connect:
    """The order to open connections: ways, each with the port that listens."""

    ways: tuple[tuple[_Way, int], ...]


@dataclass(frozen=True)
class _Stream:
    """The order to send from ``begin_s`` to ``leave_s`` (``time.monotonic()``), and to count what arrives from
    ``from_s`` until ``until_s``."""

    begin_s: float
    from_s: float
    until_s: float
    leave_s: float


class Streams:
    """The run's end: programs in all hosts of a stage, which stream as :meth:`run` says, or :meth:`connect`,
    :meth:`begin` and :meth:`received_bps` in turn."""

    def __init__(self, stage: Stage, level: ServiceLevel) -> None:
        self._stage = stage
        self._options = stage.socket_options(level)
        self._is_exact = current_engine().is_exact
        self._programs: ProgramGroup[NodeId] = ProgramGroup(stage, "streams", survives=False)
        self._ports: dict[str, int] = {}
        self._ways: dict[_Way, NicPair] = {}
        self._window_s = self._until_s = 0.0

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[NodeId]]:
        """Its programs, for failures."""
        return (self._programs,)

    def start(self) -> None:
        """Fork the programs. Raises TrafficError."""
        fabric = self._stage.fabric
        addresses = {host: tuple(nic.ip for nic in fabric.nics_of[host]) for host in fabric.hosts}
        starts = {host: ("streams", host, _Arguments(found, self._options)) for host, found in addresses.items()}
        self._programs.start_all(run_streams, starts)
        for ports in self._programs.collect("ports that it listens on", _START_TIMEOUT_S).values():
            self._ports |= ports

    def run(self, flows: Sequence[NicPair], ramp_s: float, window_s: float) -> dict[NicPair, float]:
        """Let flows send at once, and return what each delivered in bit/s in the window after ``ramp_s``.

        A flow that does not get a connection in 5 s delivers 0. Raises TrafficError if a program fails.
        """
        self.connect(flows)
        self.begin(ramp_s, window_s)
        return self.received_bps()

    def connect(self, flows: Sequence[NicPair]) -> dict[NicPair, tuple[int, int]]:
        """Open a connection for each flow, and return its ports, the source's first; a flow that does not get one in
        5 s is missing. Raises TrafficError if a program fails."""
        self._ways = {(source.ip, destination.ip): (source, destination) for source, destination in flows}
        by_host: dict[NodeId, list[tuple[_Way, int]]] = {}
        for source, destination in flows:
            way = (source.ip, destination.ip), self._ports[destination.ip]
            by_host.setdefault(source.node, []).append(way)
        self._programs.order_each({host: _Connect(tuple(ways)) for host, ways in by_host.items()})
        patience_s = CONNECT_TIMEOUT_S * max(map(len, by_host.values()), default=0) + _PATIENCE_S
        ports: dict[NicPair, tuple[int, int]] = {}
        for found in self._programs.collect("connections", patience_s, by_host).values():
            ports |= {self._ways[way]: (port, self._ports[way[1]]) for way, port in found.items()}
        return ports

    def begin(self, ramp_s: float, window_s: float) -> float:
        """Let all flows that were connected send; what arrives counts from ``ramp_s`` on, for ``window_s``. Return from
        when it does (``time.monotonic()``).

        In real time hosts begin one after the other, in the first half of the ramp.
        """
        now, hosts = orders_arrived_at(0.0), self._hosts
        from_s = now + ramp_s
        self._window_s, self._until_s = window_s, from_s + window_s
        orders = {}
        for number, host in enumerate(hosts):
            # In real time, hosts that all begin in one moment would make each other's programs wait.
            place = 0 if self._is_exact else number
            begin_s, leave_s = now + ramp_s / 2 * place / len(hosts), self._until_s + place * _LEAVE_APART_S
            orders[host] = _Stream(begin_s, from_s, self._until_s, leave_s)
        self._programs.order_each(orders)
        return from_s

    def received_bps(self) -> dict[NicPair, float]:
        """Wait for the window's end, and return what each flow delivered in it, in bit/s. Raises TrafficError."""
        received: dict[_Way, int] = {}
        patience_s = max(0.0, self._until_s - time.monotonic()) + _PATIENCE_S
        for found in self._programs.collect("count of what it received", patience_s, self._hosts).values():
            received |= found
        return {flow: received.get(way, 0) * 8 / self._window_s for way, flow in self._ways.items()}

    @property
    def _hosts(self) -> tuple[NodeId, ...]:
        """Those that send or receive."""
        return tuple(dict.fromkeys(nic.node for flow in self._ways.values() for nic in flow))

    def close(self) -> None:
        """End the programs."""
        self._programs.close()


def run_streams(agent: Agent, arguments: _Arguments) -> None:
    """Be the program in a host (see :mod:`fabric.world.programs.agents`)."""
    listeners = [listen(address, 0, arguments.options) for address in arguments.addresses]
    agent.report({listener.getsockname()[0]: listener.getsockname()[1] for listener in listeners})
    sending: list[socket.socket] = []
    while True:
        order = agent.receive()
        if isinstance(order, _Connect):
            connected = _connected(order, arguments.options)
            sending = list(connected.values())
            agent.report({way: sock.getsockname()[1] for way, sock in connected.items()})
        elif isinstance(order, _Stream):
            agent.report(_Host(listeners, sending, arguments.options).stream(order))
            sending = []


def _connected(order: _Connect, options: SocketOptions) -> dict[_Way, socket.socket]:
    """Return the connections that came about; a way that does not carry a SYN has none."""
    found = {}
    for way, port in order.ways:
        source, destination = way
        with contextlib.suppress(TrafficError):
            found[way] = connect(destination, port, options, CONNECT_TIMEOUT_S, source)
    return found


class _Host:
    """One host in one round."""

    def __init__(
        self, listeners: Sequence[socket.socket], sending: Sequence[socket.socket], options: SocketOptions
    ) -> None:
        self._options = options
        self._selector = selectors.DefaultSelector()
        self._piece, self._buffer = bytes(_PIECE_BYTES), bytearray(_PIECE_BYTES)
        self._received: dict[_Way, int] = {}
        self._open: list[socket.socket] = []
        self._receiving: list[tuple[socket.socket, _Way]] = []
        for listener in listeners:
            self._selector.register(listener, selectors.EVENT_READ, self._accept)
        for sock in sending:
            self._take(sock, selectors.EVENT_WRITE)

    def _take(self, sock: socket.socket, event: int, way: _Way | None = None) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._selector.register(sock, event, way)
        self._open.append(sock)

    def stream(self, order: _Stream) -> dict[_Way, int]:
        """Send and receive until it is time to leave; return the bytes received in the window, by way."""
        time.sleep(max(0.0, order.begin_s - time.monotonic()))
        self._carry(order.until_s, order.from_s)
        for sock, way in self._receiving:
            self._receive(sock, way)  # What has arrived since it was last looked at.
        self._carry(order.leave_s, math.inf)
        for sock in self._open:
            sock.close()
        self._selector.close()
        return self._received

    def _carry(self, until_s: float, counts_from_s: float) -> None:
        """Send and receive until ``until_s``; what arrives counts from ``counts_from_s`` on."""
        while (now := time.monotonic()) < until_s:
            ready = self._selector.select(until_s - now)
            counts = time.monotonic() >= counts_from_s
            for key, _ in ready:
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if key.data == self._accept:
                    self._accept(sock)
                elif key.data is None:
                    self._send(sock)
                elif not self._receive(sock, key.data, counts):
                    self._selector.unregister(sock)

    def _accept(self, listener: socket.socket) -> None:
        sock, source = accept(listener, self._options, _START_TIMEOUT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _LOW_WATER_BYTES)
        way = (source, listener.getsockname()[0])
        self._take(sock, selectors.EVENT_READ, way)
        self._receiving.append((sock, way))

    def _send(self, sock: socket.socket) -> None:
        try:
            sock.send(self._piece)
        except BlockingIOError:
            return
        except ConnectionError:
            self._selector.unregister(sock)  # Its receiver was done a moment earlier.

    def _receive(self, sock: socket.socket, way: _Way, counts: bool = True) -> bool:
        """Take what has arrived; return whether there may be more to come."""
        try:
            size = sock.recv_into(self._buffer)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if counts:
            self._received[way] = self._received.get(way, 0) + size
        return size > 0
