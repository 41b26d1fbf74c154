"""Counts the bytes of each service level at interfaces, by a small BPF program on a packet socket: it reads the DSCP of
every frame that leaves, and lets none come to the socket. Layouts: linux/{bpf,if_packet}.h."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from fabric.errors import EmulationError
from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel, level_of_dscp
from fabric.model.network import Port
from fabric.world.kernel_api import bpf
from fabric.world.kernel_api.bpf import EXIT, ProgramKind, instruction
from fabric.world.kernel_api.netlink import ETH_P_ALL, ETH_P_IP
from fabric.world.programs.agents import Agent, AgentHandle, AgentPool

_ANSWER_TIMEOUT_S = 10.0
_TOS_OFFSET = 15
_DSCPS = 64
_BYTES = struct.Struct(f"={_DSCPS}Q")
"""The program's memory: the bytes of each DSCP so far."""
_WHAT = "what counts service levels"
_SO_ATTACH_BPF = 50  # asm-generic/socket.h
_LENGTH_OFFSET, _TYPE_OFFSET, _PROTOCOL_OFFSET = 0, 4, 16  # In struct __sk_buff.

Counts = dict[str, tuple[int, ...]]
"""The bytes of each DSCP that have left interfaces, by their names."""


class LevelCounter:
    """Counts the bytes of each service level that leave ports of switches.

    Queues count lanes; in one shared queue only the packets themselves say what they are. ``namespaces``: the network
    namespace that each port is in (None: the world's own). ``levels``: those that are told apart.
    """

    def __init__(
        self,
        pool: AgentPool,
        namespaces: Mapping[Port, Path | None],
        levels: Sequence[ServiceLevel] = SERVICE_LEVELS,
    ) -> None:
        self._levels = tuple(levels)
        self._ports = {port.interface: port for port in namespaces}
        self._agents: list[AgentHandle] = []
        self._before: Counts = dict.fromkeys(self._ports, (0,) * _DSCPS)
        for namespace in dict.fromkeys(namespaces.values()):
            interfaces = tuple(port.interface for port, place in namespaces.items() if place == namespace)
            self._agents.append(pool.start("level counter", "this world", count_levels, interfaces, namespace))
        for agent in self._agents:
            agent.receive(_ANSWER_TIMEOUT_S, "report that it is ready")

    def read(self) -> dict[Port, dict[ServiceLevel, int]]:
        """Return the bytes since the last reading, by port and service level."""
        for agent in self._agents:
            agent.send("read")
        now: Counts = {}
        for agent in self._agents:
            now |= agent.receive(_ANSWER_TIMEOUT_S, "counts")
        before, self._before = self._before, now
        return {port: self._by_level(before[name], now[name]) for name, port in self._ports.items()}

    def _by_level(self, before: tuple[int, ...], now: tuple[int, ...]) -> dict[ServiceLevel, int]:
        found = dict.fromkeys(self._levels, 0)
        for dscp, (earlier, later) in enumerate(zip(before, now, strict=True)):
            if later > earlier:
                found[level_of_dscp(dscp, self._levels)] += later - earlier
        return found


def count_levels(agent: Agent, interfaces: tuple[str, ...]) -> None:
    """Be the counting process, which waits for orders to read (a program of :mod:`fabric.world.programs.agents`)."""
    with ExitStack() as stack:
        counters = {interface: _Counter(interface, stack) for interface in interfaces}
        agent.report("ready")
        while True:
            agent.expect("read")
            agent.report({interface: counter.read() for interface, counter in counters.items()})


class _Counter:
    """Counts at an interface until the end of the block ``ends``. Raises EmulationError."""

    def __init__(self, interface: str, ends: ExitStack) -> None:
        self._memory = bpf.memory_of(_BYTES.size, _WHAT)
        ends.callback(os.close, self._memory)
        program = bpf.load(_program(self._memory), _WHAT, ProgramKind.SOCKET)
        sock = ends.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_BPF, program)
            sock.bind((interface, ETH_P_ALL))
        except OSError as error:
            raise EmulationError(f"{interface}: {_WHAT} cannot be put there: {error.strerror}") from error
        finally:
            os.close(program)

    def read(self) -> tuple[int, ...]:
        """Return the bytes of each DSCP so far."""
        return _BYTES.unpack(bpf.read(self._memory, _BYTES.size, _WHAT))


def _program(memory: int) -> bytes:
    """Return the program: r6 is the frame, r7 where the bytes of its DSCP are counted."""
    count = [
        instruction(0x30, immediate=_TOS_OFFSET),  # r0 = the byte there; a frame without it ends the program
        instruction(0x57, immediate=0xFC),  # r0 &= 0xFC: without ECN
        instruction(0x67, immediate=1),  # r0 <<= 1: eight bytes for each DSCP
        instruction(0x18, to=7, source=2, immediate=memory) + instruction(0),  # r7 = the map's value itself
        instruction(0x0F, to=7, source=0),  # r7 += r0
        instruction(0x61, to=1, source=6, offset=_LENGTH_OFFSET),
        instruction(0xDB, to=7, source=1),  # the bytes there += r1, atomically
    ]
    counting = len(b"".join(count)) // len(instruction(0))
    return b"".join(
        [
            instruction(0xBF, to=6, source=1),
            instruction(0x61, to=1, source=6, offset=_TYPE_OFFSET),
            instruction(0x55, to=1, offset=counting + 2, immediate=socket.PACKET_OUTGOING),  # if r1 is another: skip
            instruction(0x61, to=1, source=6, offset=_PROTOCOL_OFFSET),
            instruction(0x55, to=1, offset=counting, immediate=socket.htons(ETH_P_IP)),
            *count,
            instruction(0xB7),  # r0 = 0: nothing for the socket
            instruction(EXIT),
        ]
    )
