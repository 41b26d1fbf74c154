"""Classic BPF on packet sockets: which frames they see, and how much of each. Layout: linux/filter.h."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Sequence

from fabric.emulation.uncharging import MARK
from fabric.world.kernel_api.netlink import BPF_INSTRUCTION

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_LOAD_WORD, _LOAD_HALF, _LOAD_BYTE, _IF_EQUAL, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x06
_ETHERTYPE_AT = 12
_DIRECTION_AT = 0xFFFFF004  # SKF_AD_OFF + SKF_AD_PKTTYPE
_MARK_AT = 0xFFFFF014  # SKF_AD_OFF + SKF_AD_MARK


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def see_arriving(sock: socket.socket, ethertype: int, seen_bytes: int) -> None:
    """Let a packet socket see the first ``seen_bytes`` of frames of an EtherType that arrive at an interface; a frame
    that :mod:`fabric.emulation.uncharging` puts a clone in place of arrives once. What has come already stays."""
    program = (
        (_LOAD_WORD, 0, 0, _MARK_AT),
        (_IF_EQUAL, 5, 0, MARK),
        (_LOAD_HALF, 0, 0, _ETHERTYPE_AT),
        (_IF_EQUAL, 0, 3, ethertype),
        (_LOAD_BYTE, 0, 0, _DIRECTION_AT),
        (_IF_EQUAL, 1, 0, socket.PACKET_OUTGOING),
        (_RETURN, 0, 0, seen_bytes),
        (_RETURN, 0, 0, 0),
    )
    _attach(sock, program)


def _attach(sock: socket.socket, program: Sequence[tuple[int, int, int, int]]) -> None:
    instructions = ctypes.create_string_buffer(b"".join(BPF_INSTRUCTION.pack(*one) for one in program))
    described = _Program(len(program), ctypes.addressof(instructions))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(described))
