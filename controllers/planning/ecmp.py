"""Equal-cost multipath as Open vSwitch's ``multipath`` action does it, and the same hash in Python.

A rule hashes the 5-tuple into a register and goes to the ways table, which has a rule for each way. Of what Open
vSwitch offers, that is what fits: a ``select`` group recirculates every packet through the datapath a second time, and
its hash is the kernel's own and cannot be predicted; ``bundle`` leaves dead ports by itself, which only a repair
policy may. The price is a datapath flow for each connection instead of one for each destination. The hash is symmetric:
both directions of a connection hash alike. Adding or removing a way moves most flows, as in a plain ECMP switch.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from zlib import crc32

from controllers.planning.plan import Hashing

TCP, UDP = socket.IPPROTO_TCP, socket.IPPROTO_UDP
_WORD = 0xFFFFFFFF


@dataclass(frozen=True)
class FiveTuple:
    """What ECMP tells flows apart by."""

    source: str
    destination: str
    protocol: int
    source_port: int
    destination_port: int


def hashing_of(dpid: int, ports: tuple[int, ...], seed: int, leaves_zone: bool = False) -> Hashing:
    """Return how a switch chooses among ``ports``; switches hash differently, or all would choose alike.

    The choice of what leaves a zone is one of its own, since another way is searched for differently.
    """
    return Hashing(
        crc32(repr((ports, leaves_zone)).encode()), crc32(struct.pack(">QI", dpid, seed)) & 0xFFFF, len(ports)
    )


def way_of(hashing: Hashing, flow: FiveTuple) -> int:
    """Return which way a flow takes: lib/flow.c's ``flow_hash_symmetric_l3l4`` and lib/multipath.c's ``modulo_n``."""
    state = _added(hashing.basis, _address(flow.source) ^ _address(flow.destination))
    state = _added(state, flow.protocol)
    if flow.protocol in (TCP, UDP):
        state = _added(state, socket.htons(flow.source_port) ^ socket.htons(flow.destination_port))
    return _finished(state, hashing.basis) % hashing.ways


def _address(text: str) -> int:
    word: int = struct.unpack("=I", socket.inet_aton(text))[0]  # As it lies in memory: Open vSwitch does not swap it.
    return word


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD


def _added(state: int, data: int) -> int:
    """lib/hash.h's ``mhash_add``: MurmurHash3's step, which builds without CRC32 instructions use."""
    data = _rotated(data * 0xCC9E2D51 & _WORD, 15) * 0x1B873593 & _WORD
    return (_rotated(state ^ data, 13) * 5 + 0xE6546B64) & _WORD


def _finished(state: int, final: int) -> int:
    """lib/hash.h's ``mhash_finish``."""
    state ^= final
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    return state ^ state >> 16
