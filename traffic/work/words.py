"""What messages call an operation."""

from __future__ import annotations

from traffic.work.operations import (
    ANY,
    CollectiveCall,
    Compute,
    FileRead,
    FileWrite,
    Operation,
    Receive,
    Send,
)

_KINDS = {Compute: "compute", Send: "send", Receive: "receive", FileRead: "read", FileWrite: "write"}


def kind_of(operation: Operation) -> str:
    """Return a word for what an operation is: of a collective, its name."""
    return operation.collective if isinstance(operation, CollectiveCall) else _KINDS[type(operation)]


def size_of(operation: Operation) -> int:
    """Return the size of an operation in bytes; 0 of computing."""
    return 0 if isinstance(operation, Compute) else getattr(operation, "size_bytes", 0)


def described(rank: int, place: int, operation: Operation) -> str:
    """Return the words for an operation: its rank, its place, its name and what it is."""
    name = f" {operation.name}" if operation.name else ""
    return f"rank {rank}, operation {place}{name} ({_what(operation)})"


def _what(operation: Operation) -> str:
    match operation:
        case Send():
            return f"send of {operation.size_bytes} B to rank {operation.peer}, tag {operation.tag}"
        case Receive():
            whom = "any rank" if operation.peer == ANY else f"rank {operation.peer}"
            tag = "any tag" if operation.tag == ANY else f"tag {operation.tag}"
            return f"receive of {operation.size_bytes} B from {whom}, {tag}"
        case CollectiveCall():
            return f"{operation.collective} of {operation.size_bytes} B in group {operation.group}"
        case FileRead() | FileWrite():
            return f"{kind_of(operation)} of {operation.path}"
    return kind_of(operation)
