"""The lane of a frame, as a classic BPF program: some fifteen instructions, in place of twenty u32 filters in turn.

Where acknowledgements have a lane of their own, TCP segments without data and ICMP go there first; then the DSCP
decides. Other frames go to the qdisc's default class. Layouts: linux/filter.h; ``tcpdump -dd`` prints such programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabric.model.network import ETHERNET_HEADER_BYTES
from fabric.world.kernel_api.netlink import BPF_INSTRUCTION

_LOAD_BYTE, _LOAD_HALF, _TO_X, _RETURN = 0x30, 0x28, 0x07, 0x06
_AND, _SHIFT_LEFT, _SHIFT_RIGHT, _ADD = 0x54, 0x64, 0x74, 0x04
_IF_EQUAL, _IF_EQUAL_X, _IF_BITS = 0x15, 0x1D, 0x45
_IP = ETHERNET_HEADER_BYTES
_IP_HEADER_BYTES = 20
_PLAIN_HEADER = 0x45
"""Version 4 and a header of 20 bytes, so that it is known where TCP's begins."""
_TOS, _LENGTH, _PROTOCOL = _IP + 1, _IP + 2, _IP + 9
_TCP_OFFSET, _TCP_FLAGS = _IP + _IP_HEADER_BYTES + 12, _IP + _IP_HEADER_BYTES + 13
_TCP, _ICMP, _FIN = 6, 1, 0x01
_DSCP_MASK = 0xFC
_NOT_CLASSIFIED = 0
_CONTROL, _BY_DSCP = "control", "by dscp"


@dataclass(frozen=True)
class _Step:
    """An instruction; ``then`` and ``otherwise`` name the label that a comparison goes on at (None: the next step)."""

    code: int
    value: int = 0
    then: str | None = None
    otherwise: str | None = None
    label: str | None = None


def classifier(control: int | None, class_of_tos: Mapping[int, int]) -> bytes:
    """Return the program that gives a frame of IPv4 the class ``control`` or that of its TOS byte without the ECN bits.

    Classes are numbers as a qdisc knows them (major << 16 | minor).
    """
    steps = [] if control is None else _control_steps(control)
    steps += [_Step(_LOAD_BYTE, _TOS, label=_BY_DSCP), _Step(_AND, _DSCP_MASK)]
    steps += [_Step(_IF_EQUAL, tos, then=f"class of {tos}") for tos in class_of_tos]
    steps.append(_Step(_RETURN, _NOT_CLASSIFIED))
    steps += [_Step(_RETURN, found, label=f"class of {tos}") for tos, found in class_of_tos.items()]
    return _assembled(steps)


def _control_steps(control: int) -> list[_Step]:
    """Return what finds ICMP, and segments with nothing behind their header that do not end a connection.

    A segment with data, however short, and a FIN must not overtake the data before them: TCP would take that for loss.
    """
    return [
        _Step(_LOAD_BYTE, _PROTOCOL),
        _Step(_IF_EQUAL, _ICMP, then=_CONTROL),
        _Step(_IF_EQUAL, _TCP, otherwise=_BY_DSCP),
        _Step(_LOAD_BYTE, _IP),
        _Step(_IF_EQUAL, _PLAIN_HEADER, otherwise=_BY_DSCP),
        _Step(_LOAD_BYTE, _TCP_FLAGS),
        _Step(_IF_BITS, _FIN, then=_BY_DSCP),
        _Step(_LOAD_BYTE, _TCP_OFFSET),  # In 32-bit words, in the upper half of the byte.
        _Step(_SHIFT_RIGHT, 4),
        _Step(_SHIFT_LEFT, 2),
        _Step(_ADD, _IP_HEADER_BYTES),
        _Step(_TO_X),
        _Step(_LOAD_HALF, _LENGTH),
        _Step(_IF_EQUAL_X, otherwise=_BY_DSCP),
        _Step(_RETURN, control, label=_CONTROL),
    ]


def _assembled(steps: Sequence[_Step]) -> bytes:
    places = {step.label: place for place, step in enumerate(steps) if step.label is not None}

    def distance(place: int, label: str | None) -> int:
        return 0 if label is None else places[label] - place - 1

    return b"".join(
        BPF_INSTRUCTION.pack(step.code, distance(place, step.then), distance(place, step.otherwise), step.value)
        for place, step in enumerate(steps)
    )
