"""What the bytes are for that storage sends: reads, writes, copies along chains, resyncs, the cluster manager,
metadata. Pure.

Every program counts what it hands to its connections, by cause: ``sent_..._bytes`` of whole frames, and
``payload_..._bytes`` of chunks' data in them. So what a lane carries is payload times hops, and headers: a write of
``s`` bytes to ``k`` replicas is ``s`` for the write and ``(k - 1) s`` for copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum

from traffic.storage.wire.messages import CallKind


class Cause(str, Enum):
    """Why bytes are sent."""

    READ = "read"
    WRITE = "write"
    """From a client to a head."""
    FORWARD = "forward"
    """From a target to its successor."""
    RESYNC = "resync"
    """To bring a target up to date that has come back."""
    PULL = "pull"
    """Answers that data is not to be had any more: the write, the copy or the resync that it was for has ended."""
    CONTROL = "control"
    """Heartbeats and chains."""
    METADATA = "metadata"
    """Names, lengths and places of files, and the store that keeps them and chains."""
    GREETING = "greeting"
    """The first message of a connection."""
    UNNAMED = "unnamed"


_CAUSES = {
    CallKind.HELLO: Cause.GREETING,
    CallKind.READ: Cause.READ,
    CallKind.APPLY: Cause.READ,
    CallKind.WRITE: Cause.WRITE,
    CallKind.UPDATE: Cause.FORWARD,
    CallKind.PULL: Cause.PULL,
    CallKind.RESYNC_START: Cause.RESYNC,
    CallKind.RESYNC_WRITE: Cause.RESYNC,
    CallKind.RESYNC_REMOVE: Cause.RESYNC,
    CallKind.RESYNC_DONE: Cause.RESYNC,
    CallKind.HEARTBEAT: Cause.CONTROL,
    CallKind.ROUTING: Cause.CONTROL,
    CallKind.KV: Cause.METADATA,
    CallKind.QUERY: Cause.METADATA,
    CallKind.METADATA: Cause.METADATA,
}
_SENT, _PAYLOAD, _BYTES = "sent_", "payload_", "_bytes"
BYTES = frozenset(f"{what}{cause.value}{_BYTES}" for cause in Cause for what in (_SENT, _PAYLOAD))
"""The names under which programs count bytes by cause."""


def cause_of(kind: CallKind) -> Cause:
    """Return what a call of a kind, and its answer, are for."""
    return _CAUSES.get(kind, Cause.UNNAMED)


_NAMES = {kind: tuple(f"{what}{cause_of(kind).value}{_BYTES}" for what in (_SENT, _PAYLOAD)) for kind in CallKind}


def count_sent(counts: Counter[str], kind: CallKind, header_bytes: int, payload_bytes: int = 0) -> None:
    """Count a frame that is handed to a connection. ``kind``: what it is for, of a PULL the call whose data it is."""
    sent, payload = _NAMES[kind]
    counts[sent] += header_bytes + payload_bytes
    if payload_bytes:
        counts[payload] += payload_bytes


def sent_bytes(counts: Mapping[str, int]) -> dict[Cause, int]:
    """Return the bytes of whole frames by cause, as a program, or several, have counted them."""
    return _by_cause(counts, _SENT)


def payload_bytes(counts: Mapping[str, int]) -> dict[Cause, int]:
    """Return those of chunks' data in them."""
    return _by_cause(counts, _PAYLOAD)


def _by_cause(counts: Mapping[str, int], prefix: str) -> dict[Cause, int]:
    found = {cause: counts.get(f"{prefix}{cause.value}{_BYTES}", 0) for cause in Cause}
    return {cause: size for cause, size in found.items() if size}
