"""What the cluster manager, services and clients say to each other: heartbeats, and chains of the routing.

Nodes go by their number among the storage nodes, which all know from the start.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.storage.chain_states import LocalState
from traffic.storage.chains import Chain, ChunkId, TableChange, Target
from traffic.storage.managers.manager import TargetReport
from traffic.storage.service.replica import Applied
from traffic.storage.service.resync import ChunkState
from traffic.storage.wire.calls import CallTimeout, ConnectionLost
from traffic.storage.wire.links import Links
from traffic.storage.wire.messages import CallKind, Frame, ReplyStatus

_BEAT = struct.Struct("<IQ")
_REPORT = struct.Struct("<IBI")
_CLOCK = struct.Struct("<d")
_PLACE = struct.Struct("<i")
_VERSION = struct.Struct("<Q")
_ROUTING = struct.Struct("<QI")
_CHAIN = struct.Struct("<IIBBBB")
_TARGET = struct.Struct("<IB")
_STATE = struct.Struct("<QIIIIII")
_CHAIN_VERSION = struct.Struct("<II")
_COMMITTED_IN = struct.Struct("<I")
_APPLIED = struct.Struct("<IIQI")


@dataclass(frozen=True)
class Nodes:
    """The storage nodes by number. ``has_clocks``: heartbeats say what time it is by their sender's clock."""

    nodes: tuple[NodeId, ...]
    has_clocks: bool = False

    def number(self, node: NodeId) -> int:
        """Return a node's number. Raises ValueError if it is none of them."""
        return self.nodes.index(node)

    def pack_heartbeat(self, node: NodeId, number: int, reports: Sequence[TargetReport], clock_s: float = 0.0) -> bytes:
        """Return a heartbeat, sent at a time of its sender's clock."""
        said = b"".join(_REPORT.pack(one.chain, one.local, one.chain_version) for one in reports)
        return _BEAT.pack(self.number(node), number) + (_CLOCK.pack(clock_s) if self.has_clocks else b"") + said

    def parse_clock(self, meta: bytes) -> float | None:
        """Return what time a heartbeat says it is; None if none of them say it. Raises TrafficError."""
        if not self.has_clocks:
            return None
        try:
            return float(_CLOCK.unpack_from(meta, _BEAT.size)[0])
        except struct.error as error:
            raise TrafficError(f"storage: no heartbeat: {error}; the stream is damaged") from error

    def parse_heartbeat(self, meta: bytes) -> tuple[NodeId, int, list[TargetReport]]:
        """Return whose heartbeat it is, its number, and what it says. Raises TrafficError."""
        try:
            place, number = _BEAT.unpack_from(meta)
            said = _REPORT.iter_unpack(meta[_BEAT.size + self.has_clocks * _CLOCK.size :])
            reports = [TargetReport(chain, LocalState(local), version) for chain, local, version in said]
            return self.nodes[place], number, reports
        except (struct.error, ValueError, IndexError) as error:
            raise TrafficError(f"storage: no heartbeat: {error}; the stream is damaged") from error

    def pack_routing(self, change: TableChange) -> bytes:
        """Return chains of the routing."""
        return _ROUTING.pack(change.version, len(change.chains)) + b"".join(map(self._pack_chain, change.chains))

    def _pack_chain(self, chain: Chain) -> bytes:
        syncing = () if chain.syncing is None else (chain.syncing,)
        counts = len(chain.targets), len(syncing), len(chain.waiting)
        targets = (*chain.targets, *syncing, *chain.waiting)
        packed = b"".join(_TARGET.pack(self.number(target.node), target.disk) for target in targets)
        return _CHAIN.pack(chain.number, chain.version, *counts, chain.is_awaited) + packed

    def parse_routing(self, meta: bytes) -> TableChange:
        """Return them. Raises TrafficError."""
        try:
            version, count = _ROUTING.unpack_from(meta)
            place, chains = _ROUTING.size, []
            for _ in range(count):
                number, chain_version, serving, syncing, waiting, is_awaited = _CHAIN.unpack_from(meta, place)
                place += _CHAIN.size
                end = place + (serving + syncing + waiting) * _TARGET.size
                targets = [Target(self.nodes[node], disk) for node, disk in _TARGET.iter_unpack(meta[place:end])]
                served, rest = tuple(targets[:serving]), tuple(targets[serving + syncing :])
                first = targets[serving] if syncing else None
                chains.append(Chain(number, served, chain_version, first, rest, bool(is_awaited)))
                place = end
            return TableChange(version, tuple(chains))
        except (struct.error, IndexError) as error:
            raise TrafficError(f"storage: no routing: {error}; the stream is damaged") from error


def pack_place(place: int | None) -> bytes:
    """Return a place in the list of managers; None: none that is known."""
    return _PLACE.pack(-1 if place is None else place)


def parse_place(meta: bytes) -> int | None:
    """Return it. Raises TrafficError."""
    try:
        (place,) = _PLACE.unpack(meta)
        return place if place >= 0 else None
    except struct.error as error:
        raise TrafficError(f"storage: no place of a manager: {error}; the stream is damaged") from error


def pack_version(version: int) -> bytes:
    """Return a version of the routing."""
    return _VERSION.pack(version)


def parse_version(meta: bytes) -> int:
    """Return it. Raises TrafficError."""
    try:
        return int(_VERSION.unpack(meta)[0])
    except struct.error as error:
        raise TrafficError(f"storage: no version: {error}; the stream is damaged") from error


def pack_chain_version(chain: Chain) -> bytes:
    """Return a chain's number and version."""
    return _CHAIN_VERSION.pack(chain.number, chain.version)


def parse_chain_version(meta: bytes) -> tuple[int, int]:
    """Return them. Raises TrafficError."""
    try:
        number, version = _CHAIN_VERSION.unpack(meta)
        return number, version
    except struct.error as error:
        raise TrafficError(f"storage: no chain's version: {error}; the stream is damaged") from error


def pack_states(states: Mapping[ChunkId, ChunkState]) -> bytes:
    """Return what a target has of a chain."""
    return b"".join(_STATE.pack(chunk.file, chunk.index, *state) for chunk, state in states.items())


def parse_states(data: bytes | bytearray) -> dict[ChunkId, ChunkState]:
    """Return it. Raises TrafficError."""
    if len(data) % _STATE.size:
        raise TrafficError(f"storage: {len(data)} B of chunks' states, of {_STATE.size} B each; the stream is damaged")
    return {ChunkId(file, index): ChunkState(*state) for file, index, *state in _STATE.iter_unpack(data)}


def pack_last(chain_version: int, last: Mapping[int, Applied]) -> bytes:
    """Return what goes with a chunk that is sent to a target that has come back: the version of the chain under which
    it was committed, and each client's last write of it. 3FS keeps these by client and channel in the memory of a
    service, and sends none; a write that is tried again at a head that was brought up to date could come twice."""
    entries = (_APPLIED.pack(client, one.version, one.request, one.chain_version) for client, one in last.items())
    return _COMMITTED_IN.pack(chain_version) + b"".join(entries)


def parse_last(meta: bytes) -> tuple[int, dict[int, Applied]]:
    """Return it. Raises TrafficError."""
    try:
        (chain_version,) = _COMMITTED_IN.unpack_from(meta)
        entries = _APPLIED.iter_unpack(meta[_COMMITTED_IN.size :])
        return chain_version, {client: Applied(version, request, of) for client, version, request, of in entries}
    except struct.error as error:
        raise TrafficError(f"storage: no chunk's last writes: {error}; the stream is damaged") from error


class ManagerLink:
    """How a program calls the cluster manager: heartbeats, and the routing in turns. Nothing that is not answered in
    time ends the program: it is tried again at its next turn, as in 3FS.

    Of several managers it calls the one that was the primary last; if that does not answer, or says that it is not the
    primary, it calls the one that is named, or the next one, each of them once. ``timeout_s`` is for all together.
    """

    def __init__(
        self, links: Links, managers: Sequence[NodeId], nodes: Nodes, timeout_s: float, skew_s: float = 0.0
    ) -> None:
        self._links = links
        self._managers = tuple(managers)
        self._at = 0
        self.nodes = nodes
        self._timeout_s = timeout_s / len(self._managers)
        self._skew_s = skew_s
        self.unanswered = 0

    def clock_s(self) -> float:
        """Return what time it is by the program's clock."""
        return time.monotonic() + self._skew_s

    async def _call(self, kind: CallKind, meta: bytes) -> Frame | None:
        left = set(range(len(self._managers)))
        while left:
            left.discard(self._at)
            try:
                link = await self._links.to(self._managers[self._at])
                reply = await link.call(kind, meta, self._timeout_s)
            except (ConnectionLost, CallTimeout):
                self.unanswered += 1
                named = None
            else:
                if reply.status is not ReplyStatus.NOT_PRIMARY:
                    return reply if reply.status is ReplyStatus.OK else None
                named = parse_place(reply.meta)
            self._at = named if named in left and named is not None else (self._at + 1) % len(self._managers)
            if self._at not in left and left:
                self._at = min(left)
        return None

    async def heartbeat(self, meta: bytes) -> bool:
        """Return whether a heartbeat was answered."""
        return await self._call(CallKind.HEARTBEAT, meta) is not None

    async def routing_since(self, version: int) -> TableChange | None:
        """Return what is newer than a version, or None if the manager does not answer."""
        reply = await self._call(CallKind.ROUTING, pack_version(version))
        return None if reply is None else self.nodes.parse_routing(reply.meta)
