"""Guests of one run joined: the memory that they share on the host, the module that links them, and how they talk.

The host gives all of them a file as memory (UML's ``iomem``), in which are their clocks and rings of frames
(``peers.c.inc``, ``guest_link.c``). Guest 0 is the one in which the run itself is; each of the others has a link to it
that is not a link of the fabric, over which it is told what to do (:mod:`fabric.world.programs.guest_calls`).
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from fabric.world.kernel_api import modules, netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink, Request

MODULE = "guest_link"
REGION = "peers"
"""What the kernel calls the memory, and its name in the control directory."""
TOGETHER = "together"
"""The file in the control directory that says which guest this is; there is none if it is alone."""
MOST_GUESTS = 8
_PAGE_BYTES = 4096
_RING_BYTES = 2 * 128 + (16 << 20)  # peers.h.inc: TIME_TRAVEL_LINE, TIME_TRAVEL_RING_BYTES.
_ID, _GUEST, _DELAY_NS, _PEER_INDEX = 1, 2, 3, 4
_LEAST_DELAY_NS = 1_000
_JOIN_S, _JOINED_S = 13.0, 13.5
"""When guests join, and when all have: until then, none knows how far another is."""
_MTU_BYTES = 65_535
_FIRST_INDEX = 900
"""Of the interfaces over which guests are told what to do: below switches' ports, above hosts'."""
_ABSOLUTE = 1
_LOOKS, _LOOKS_ON_SHARED_CORE = 200, 20
"""How often a guest that waits for others looks at them before it sleeps: some tens of microseconds, where another one
cannot run meanwhile, a few."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Together:
    """Which guest of how many this is, and by how much one may be ahead of another."""

    number: int
    guests: int
    lookahead_ns: int
    shares_cores: bool = False
    """Whether there are more guests on this machine than cores."""

    @property
    def order_delay_ns(self) -> int:
        """How long what one guest is told by another takes: the delay of the links between them that are not links of
        the fabric."""
        return max(self.lookahead_ns, _LEAST_DELAY_NS)

    def encoded(self) -> bytes:
        """Return it as it is handed to the guest."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, control: Path) -> Together | None:
        """Return what a guest was handed in its control directory; None if it is alone."""
        path = control / TOGETHER
        return cls(**json.loads(path.read_text())) if path.exists() else None


def address_of(guest: int) -> str:
    """Return the address of a guest on the links over which it is told what to do."""
    return f"169.254.0.{1 + guest}"


def link_id(number: int) -> int:
    """Return the id of a link between guests; the first ones are those over which guests are told what to do."""
    return MOST_GUESTS + number


@contextmanager
def shared_memory(guests: int) -> Iterator[Path]:
    """Make the memory that guests share, for the time of a block, and yield where it can be opened. It takes memory as
    it is used, has no name in any directory, and ends with the processes that have it, however they end."""
    with os.fdopen(os.memfd_create("fabric-guests"), "wb") as memory:
        memory.truncate(_PAGE_BYTES + guests * guests * _rounded(_RING_BYTES))
        yield Path(f"/proc/{os.getpid()}/fd/{memory.fileno()}")


def _rounded(size: int) -> int:
    return -(-size // _PAGE_BYTES) * _PAGE_BYTES


@dataclass(frozen=True)
class Crossing:
    """A link between guests as one of them has it: its id, the guest and the interface index of the other end, and
    its delay."""

    id: int
    guest: int
    delay_ns: int
    peer_index: int


def guest_link(end: LinkEnd, mtu_bytes: int, crossing: Crossing) -> Request:
    """Make an interface whose other end is in another guest."""
    attributes = netlink.attribute(_ID, struct.pack("=I", crossing.id))
    attributes += netlink.attribute(_GUEST, struct.pack("=I", crossing.guest))
    attributes += netlink.attribute(_DELAY_NS, struct.pack("=Q", crossing.delay_ns))
    attributes += netlink.attribute(_PEER_INDEX, struct.pack("=I", crossing.peer_index))
    return netlink.new_link(end, mtu_bytes, MODULE, attributes)


def join(together: Together, module: Path) -> None:
    """Join the other guests, and make the links over which guests are told what to do. Raises EmulationError."""
    _sleep_until(_JOIN_S)
    modules.load(
        module,
        {
            "self": together.number,
            "guests": together.guests,
            "lookahead_ns": together.lookahead_ns,
            "looks": _LOOKS_ON_SHARED_CORE if together.shares_cores else _LOOKS,
        },
    )
    with Netlink() as link:
        for other in range(together.guests):
            if other != together.number and 0 in (other, together.number):
                link.send(_talking(together, other))
    _sleep_until(_JOINED_S)


def _talking(together: Together, other: int) -> list[Request]:
    interface, index = f"guest{other}", _FIRST_INDEX + other
    delay_ns, peer = together.order_delay_ns, _FIRST_INDEX + together.number
    crossing = Crossing(max(other, together.number), other, delay_ns, peer)
    return [
        guest_link(LinkEnd(interface, index, _mac(together.number)), _MTU_BYTES, crossing),
        netlink.address(index, interface, address_of(together.number), 32),
        netlink.link_state(index, interface, up=True),
        netlink.neighbour(index, address_of(other), _mac(other)),
        netlink.route(index, interface, address_of(other), address_of(together.number)),
    ]


def _mac(guest: int) -> str:
    return f"06:ff:00:00:00:{guest:02x}"


def _sleep_until(monotonic_s: float) -> None:
    moment = (ctypes.c_long * 2)(int(monotonic_s), round(monotonic_s % 1 * 1e9))
    _libc.clock_nanosleep(time.CLOCK_MONOTONIC, _ABSOLUTE, moment, None)
