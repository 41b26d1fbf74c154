"""Chakra files as tests write them, message by message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from traffic.work.formats import wire


def attribute(name: str, value: Any, field: int | None = None) -> bytes:
    """Return an attribute: a text, a bool, or an integer as one of 64 bits, or what ``field`` says."""
    if isinstance(value, str):
        return wire.of_bytes(1, name.encode()) + wire.of_bytes(29, value.encode())
    return wire.of_bytes(1, name.encode()) + wire.of_number(field or (27 if isinstance(value, bool) else 9), int(value))


def node(
    id: int, kind: int, *, after: Sequence[int] = (), us: int = 0, calls: Sequence[int] = (), **attributes: Any
) -> bytes:
    """Return a node: its type, data_deps, duration, ctrl_deps, attributes."""
    found = wire.of_number(1, id) + wire.of_bytes(2, f"n{id}".encode()) + wire.of_number(3, kind)
    found += wire.of_numbers(4, calls) + wire.of_numbers(5, after) + wire.of_number(7, us)
    return found + b"".join(wire.of_bytes(10, attribute(*one)) for one in attributes.items())


def et(*nodes: bytes, **metadata: str) -> bytes:
    """Return a file of nodes."""
    head = wire.of_bytes(1, b"0.0.4") + b"".join(wire.of_bytes(2, attribute(*one)) for one in metadata.items())
    return b"".join(wire.packed_varint(len(one)) + one for one in (head, *nodes))


def as_jsonizer(*nodes: Mapping[str, Any]) -> str:
    """Return what Chakra's jsonizer writes: one object after the other, the first of which is the metadata."""
    return "".join(json.dumps(one, indent=2) for one in ({"version": "0.0.4"}, *nodes))
