"""Packets of a port: capture to a pcap file, and bytes by service level as they leave its queues."""

from __future__ import annotations

import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fabric.emulation.build import Emulation
from fabric.errors import EmulationError, UsageError
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric, Port
from fabric.world.agents import Agent, AgentHandle, AgentPool

_START_TIMEOUT_S = 10.0
_ANSWER_TIMEOUT_S = 10.0
_PCAP_HEADER_BYTES = 24
_LAST_PACKETS_S = 0.2
_ETH_P_ALL, _ETH_P_IP = 0x0003, 0x0800
_PACKET_OUTGOING = 4
_TOS_OFFSET = 15
_HEADERS_BYTES = 64
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h
_TAP_BUFFER_BYTES = 32 * 1024 * 1024


def parse_port(fabric: Fabric, text: str) -> Port:
    """Return the port that ``z0l03:7`` (or ``z0l03-eth7``) means. Raises UsageError if the fabric has none such."""
    wanted = text.replace("-eth", ":")
    for port in fabric.link_at:
        if str(port) == wanted:
            return port
    node = wanted.partition(":")[0]
    numbers = [str(port.number) for port in fabric.link_at if port.node.name == node]
    hint = f"{fabric.name} has no node {node!r}"
    if numbers:
        hint = f"{node} has ports {', '.join(sorted(numbers, key=int))}"
    raise UsageError(f"{text!r} is no port; write it like z0l03:7; {hint}")


class Capture:
    """A tcpdump on one port, both directions, from :meth:`start` to :meth:`stop`."""

    def __init__(self, emulation: Emulation, port: Port, path: Path) -> None:
        self.path = path
        self._interface = port.interface
        self._prefix = emulation.net.get(port.node.name).prefix()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start; returns once packets are being captured. Raises EmulationError."""
        program = shutil.which("tcpdump")
        if program is None:
            raise EmulationError("tcpdump is not installed, and captures need it; apt-get install tcpdump")
        command = [*self._prefix, program, "-i", self._interface, "-w", str(self.path), "-U", "-n", "-Z", "root"]
        command.append("--immediate-mode")  # Or packets of the last second may never reach the file.
        self._process = (
            subprocess.Popen(  # In a session of its own: Ctrl-C at Mininet's prompt is for the command there.
                command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.path.exists() or self.path.stat().st_size < _PCAP_HEADER_BYTES:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise EmulationError(f"tcpdump on {self._interface}: did not start within {_START_TIMEOUT_S:g} s")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the capture; the file is whole."""
        if self._process is not None:
            time.sleep(_LAST_PACKETS_S)
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_START_TIMEOUT_S)
            self._process = None


class LevelCounter:
    """Counts the bytes of each service level that leave ports of switches, by looking at every frame's DSCP.

    Queues count lanes; in one shared queue only the packets themselves say what they are. For a few ports: every frame
    costs some microseconds.
    """

    def __init__(self, pool: AgentPool, ports: Sequence[Port]) -> None:
        self._ports = {port.interface: port for port in ports}
        self._agent: AgentHandle = pool.start("level counter", "this world", count_levels, tuple(self._ports), None)
        self._agent.receive(_ANSWER_TIMEOUT_S, "report that it is ready")

    def read(self) -> dict[Port, dict[ServiceLevel, int]]:
        """Return the bytes since the last reading, by port and service level."""
        self._agent.send("read")
        counts: dict[tuple[str, int], int] = self._agent.receive(_ANSWER_TIMEOUT_S, "counts")
        found = {port: dict.fromkeys(ServiceLevel, 0) for port in self._ports.values()}
        for (interface, dscp), size in counts.items():
            found[self._ports[interface]][ServiceLevel.of_dscp(dscp)] += size
        return found


def count_levels(agent: Agent, interfaces: tuple[str, ...]) -> None:
    """Be the counting process: a socket a port, read as frames come, an answer to each order."""
    selector = selectors.DefaultSelector()
    for interface in interfaces:
        selector.register(_tap(interface), selectors.EVENT_READ, interface)
    selector.register(agent.pipe, selectors.EVENT_READ, None)
    counts: Counter[tuple[str, int]] = Counter()
    agent.report("ready")
    while True:
        for key, _ in selector.select():
            if key.data is None:
                agent.receive(_ANSWER_TIMEOUT_S)
                agent.report(dict(counts))
                counts.clear()
            else:
                _count(key.fileobj, key.data, counts)  # type: ignore[arg-type]


def _tap(interface: str) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _TAP_BUFFER_BYTES)
    sock.bind((interface, _ETH_P_ALL))
    sock.setblocking(False)
    return sock


def _count(sock: socket.socket, interface: str, counts: Counter[tuple[str, int]]) -> None:
    headers = bytearray(_HEADERS_BYTES)
    while True:
        try:
            size, (_, protocol, direction, *_) = sock.recvfrom_into(headers, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        if direction == _PACKET_OUTGOING and protocol == _ETH_P_IP:
            counts[interface, headers[_TOS_OFFSET] >> 2] += size
