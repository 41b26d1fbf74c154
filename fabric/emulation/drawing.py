"""Ports of switches draw a number for each frame that arrives, and put its digits on the frame as its mark.

Open vSwitch has no action that draws a number per packet, but its kernel datapath matches a frame's mark. So a small
BPF program on the way into each port draws before the switch looks, and rules choose by digits
(:mod:`fabric.model.drawing`). The ports of a switch have one program and one memory. What is drawn follows from the
run's seed. A sender's entropy is in the last two bytes of the source MAC, which nobody reads: it crosses guests.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from fabric.model.drawing import DIGITS, Digit, Draw
from fabric.world.kernel_api import bpf
from fabric.world.kernel_api.bpf import EXIT, Way, instruction
from fabric.world.kernel_api.netlink import Netlink

_WHAT = "what draws ways"
_TC_ACT_UNSPEC = -1
_MARK_OFFSET = 8  # In struct __sk_buff.
_ENTROPY_AT, _SOURCE_AT, _DESTINATION_AT = 10, 26, 30  # In a frame; source and destination are followed by ports.
_WORDS = 3
"""Source, destination, and both ports."""
_LOOK_UP, _UPDATE, _STORE_BYTES, _LOAD_BYTES = 1, 2, 9, 26
_MULTIPLIER, _INCREMENT = 6364136223846793005, 1442695040888963407
"""Knuth's MMIX: of its 64 bits the upper 32 are the number."""
_SPREAD = 0x9E3779B1
"""The golden ratio as 32 bits, Fibonacci hashing's factor."""
_STATE = struct.Struct("=Q")
_WORD_BYTES, _ALL_ONES = 4, 0xFFFFFFFF
_LONG = 0x18


@dataclass(frozen=True)
class Drawing:
    """How ports of a run draw: ``seed`` decides what, ``entropies`` is how many numbers senders draw from."""

    draw: Draw
    seed: int
    entropies: int

    def state_of(self, dpid: int) -> int:
        """Return what the generator of a switch begins with."""
        return int.from_bytes(blake2b(f"{self.seed} {dpid}".encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True)
class SwitchPorts:
    """The ports of a switch that draw, each by its index and its interface, those to hosts and those to switches."""

    dpid: int
    to_hosts: Mapping[int, str]
    to_switches: Mapping[int, str]

    @property
    def digits(self) -> tuple[Digit, ...]:
        """The digits that the switch may need to choose among its ports to switches."""
        return tuple(digit for digit in DIGITS if digit.base * digit.divisor <= len(self.to_switches))


def install(link: Netlink, drawing: Drawing, switches: Sequence[SwitchPorts], destinations: int) -> None:
    """Let ports draw from now on. ``destinations``: how many addresses there are. Raises EmulationError, with the
    kernel's reason."""
    for one in switches:
        with _Memory(drawing, one.dpid, destinations) as memory:
            for ports, is_sender in ((one.to_hosts, True), (one.to_switches, False)):
                _install(link, program(drawing, one, memory.descriptor, is_sender), ports)


def _install(link: Netlink, instructions: bytes, ports: Mapping[int, str]) -> None:
    descriptor = bpf.load(instructions, _WHAT)
    try:
        link.send(
            [
                request
                for index, interface in ports.items()
                for request in bpf.install_requests(descriptor, index, interface, Way.IN, _WHAT, bpf.SECOND)
            ]
        )
    finally:
        os.close(descriptor)


def remove(link: Netlink, switches: Sequence[SwitchPorts]) -> None:
    """Let ports draw no more."""
    link.send(
        [
            bpf.remove_request(index, interface, Way.IN, _WHAT, bpf.SECOND)
            for one in switches
            for index, interface in {**one.to_hosts, **one.to_switches}.items()
        ]
    )


class _Memory:
    """The memory of a switch's programs, which hold it once they are loaded."""

    def __init__(self, drawing: Drawing, dpid: int, destinations: int) -> None:
        if drawing.draw is Draw.IN_TURN:
            self.descriptor = bpf.table_of(_WORD_BYTES, _WORD_BYTES, destinations, _WHAT)
            return
        self.descriptor = bpf.memory_of(_STATE.size, _WHAT)
        bpf.write(self.descriptor, _STATE.pack(drawing.state_of(dpid)), _WHAT)

    def __enter__(self) -> _Memory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


# The program: r6 is the frame, r8 the drawn number, r9 the mark -------------------------------------------------------


def program(drawing: Drawing, switch: SwitchPorts, memory: int, is_sender: bool) -> bytes:
    """Return the program of a switch's ports, to hosts (``is_sender``) or to switches, over its memory."""
    sending = _mark_frame(memory, drawing.entropies) if is_sender else []
    number = {
        Draw.RANDOM: _random(memory),
        Draw.IN_TURN: _in_turn(memory),
        Draw.ENTROPY: [*sending, *_hash(drawing.state_of(switch.dpid))],
    }
    return b"".join(
        [
            instruction(0xBF, to=6, source=1),
            *number[drawing.draw],
            instruction(0xB7, to=9),  # r9 = 0
            *(part for digit in switch.digits for part in _digit(digit)),
            instruction(0x63, to=6, source=9, offset=_MARK_OFFSET),  # the frame's mark = r9
            instruction(0xB7, immediate=_TC_ACT_UNSPEC),
            instruction(EXIT),
        ]
    )


def _random(memory: int) -> list[bytes]:
    """Return what leaves the next random number in r8."""
    return [
        instruction(_LONG, to=7, source=2, immediate=memory) + instruction(0),  # r7 = the map's value itself
        instruction(0x79, to=8, source=7),  # r8 = state
        _long(1, _MULTIPLIER),
        instruction(0x2F, to=8, source=1),  # r8 *= r1
        _long(1, _INCREMENT),
        instruction(0x0F, to=8, source=1),  # r8 += r1
        instruction(0x7B, to=7, source=8),  # state = r8
        instruction(0x77, to=8, immediate=32),  # r8 >>= 32
    ]


def _in_turn(memory: int) -> list[bytes]:
    """Return what leaves in r8 how many frames to the same address have come to the switch before."""
    look_up = [
        instruction(_LONG, to=1, source=1, immediate=memory) + instruction(0),  # r1 = the map
        *_at_stack(2, -4),
        instruction(0x85, immediate=_LOOK_UP),  # r0 = the address's counter
    ]
    add = [
        instruction(0x62, to=10, offset=-8),  # a counter of 0
        instruction(_LONG, to=1, source=1, immediate=memory) + instruction(0),
        *_at_stack(2, -4),
        *_at_stack(3, -8),
        instruction(0xB7, to=4),
        instruction(0x85, immediate=_UPDATE),
        *look_up,
        instruction(0x15, offset=4),  # if r0 == 0: the table is full, number 0
    ]
    return [
        *_load(_DESTINATION_AT, -4, _WORD_BYTES),
        *look_up,
        instruction(0xB7, to=8),  # r8 = 0
        instruction(0x55, offset=_length(add)),  # if r0 != 0: on
        *add,
        instruction(0x61, to=8),  # r8 = counter
        instruction(0xBF, to=1, source=8),
        instruction(0x07, to=1, immediate=1),
        instruction(0x63, to=0, source=1),  # counter = r8 + 1
    ]


def _mark_frame(memory: int, entropies: int) -> list[bytes]:
    """Return what puts a sender's entropy on a frame."""
    return [
        *_random(memory),
        instruction(0x97, to=8, immediate=entropies),  # r8 %= entropies
        instruction(0x6B, to=10, source=8, offset=-2),
        instruction(0xBF, to=1, source=6),
        instruction(0xB7, to=2, immediate=_ENTROPY_AT),
        *_at_stack(3, -2),
        instruction(0xB7, to=4, immediate=2),
        instruction(0xB7, to=5),
        instruction(0x85, immediate=_STORE_BYTES),
    ]


def _hash(state: int) -> list[bytes]:
    """Return what leaves in r8 the hash of a frame's entropy, addresses and ports, another one at each switch."""
    return [
        instruction(0x62, to=10, offset=-16),
        *_load(_ENTROPY_AT, -16, 2),
        *_load(_SOURCE_AT, -12, _WORDS * _WORD_BYTES),
        instruction(0xB4, to=8, immediate=_signed(state & _ALL_ONES)),  # w8 = basis
        *(
            part
            for word in range(1 + _WORDS)
            for part in (
                instruction(0x61, to=1, source=10, offset=-16 + word * _WORD_BYTES),
                instruction(0xAC, to=8, source=1),  # w8 ^= w1
                instruction(0x24, to=8, immediate=_signed(_SPREAD)),  # w8 *= factor
                instruction(0xBC, to=1, source=8),
                instruction(0x74, to=1, immediate=15),
                instruction(0xAC, to=8, source=1),  # w8 ^= w8 >> 15
            )
        ),
    ]


def _digit(digit: Digit) -> list[bytes]:
    """Return what adds a digit of r8 to r9."""
    return [
        instruction(0xBF, to=1, source=8),
        *([instruction(0x37, to=1, immediate=digit.divisor)] if digit.divisor > 1 else ()),  # r1 /= divisor
        instruction(0x97, to=1, immediate=digit.base),  # r1 %= base
        instruction(0x67, to=1, immediate=digit.first),  # r1 <<= first
        instruction(0x4F, to=9, source=1),  # r9 |= r1
    ]


def _load(at: int, stack: int, size_bytes: int) -> list[bytes]:
    """Return what copies a part of the frame, wherever it lies, to the stack."""
    return [
        instruction(0xBF, to=1, source=6),
        instruction(0xB7, to=2, immediate=at),
        *_at_stack(3, stack),
        instruction(0xB7, to=4, immediate=size_bytes),
        instruction(0x85, immediate=_LOAD_BYTES),
    ]


def _at_stack(register: int, offset: int) -> list[bytes]:
    return [instruction(0xBF, to=register, source=10), instruction(0x07, to=register, immediate=offset)]


def _long(register: int, value: int) -> bytes:
    """Return what loads 64 bits."""
    low, high = _signed(value & _ALL_ONES), _signed(value >> 32)
    return instruction(_LONG, to=register, immediate=low) + instruction(0, immediate=high)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def _length(parts: Sequence[bytes]) -> int:
    return sum(map(len, parts)) // 8
