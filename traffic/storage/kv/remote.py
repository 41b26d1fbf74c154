"""The store of another program, over the fabric: a :class:`traffic.storage.kv.store.Store`."""

from __future__ import annotations

import struct

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from traffic.storage.kv.calls import (
    MOST_CALL_BYTES,
    Ask,
    Outcome,
    RangeAsked,
    pack_commit,
    pack_get,
    pack_range,
    parse_pairs,
    parse_version,
    raise_outcome,
)
from traffic.storage.kv.store import Commit, Pair, Range, Unreachable
from traffic.storage.wire.calls import CallTimeout, ConnectionLost
from traffic.storage.wire.links import Links
from traffic.storage.wire.messages import CallKind, ReplyStatus


class RemoteStore:
    """The store of the program on a node. A call that is not answered within ``timeout_s`` raises Unreachable."""

    def __init__(self, links: Links, node: NodeId, timeout_s: float) -> None:
        self._links = links
        self._node = node
        self._timeout_s = timeout_s

    async def _asked(self, call: bytes, offer: bytes = b"") -> bytes:
        """Return what a call is answered with. Raises Unreachable, and what the answer says."""
        pieces = [memoryview(offer)] if offer else []
        try:
            link = await self._links.to(self._node)
            reply = await link.call(CallKind.KV, call, self._timeout_s, offer=pieces)
        except (ConnectionLost, CallTimeout) as error:
            raise Unreachable(f"the store on {self._node} does not answer: {error}") from error
        if reply.status is not ReplyStatus.OK or not reply.meta:
            raise TrafficError(f"the store on {self._node} refuses a call: {reply.status.name}; that is a bug")
        answer = reply.meta[1:]
        raise_outcome(Outcome(reply.meta[0]), answer.decode() if reply.meta[0] else "")
        return answer

    async def read_version(self) -> int:
        """Return the version of the latest commit. Raises Unreachable."""
        return parse_version(await self._asked(bytes([Ask.READ_VERSION])))

    async def get(self, key: bytes, version: int) -> bytes | None:
        """Return the value of a key at a version, or None. Raises TooOld, Unreachable."""
        answer = await self._asked(pack_get(key, version))
        return answer[1:] if answer[:1] == b"\1" else None

    async def range(self, range_: Range, version: int, limit: int, reverse: bool = False) -> list[Pair]:
        """Return the first pairs of a range at a version. Raises TooOld, Unreachable."""
        found: list[Pair] = []
        while True:
            answer = await self._asked(pack_range(RangeAsked(range_, version, limit - len(found), reverse)))
            found += parse_pairs(answer[1:])
            if answer[:1] == b"\0" or len(found) == limit:
                return found
            key = found[-1].key
            range_ = Range(range_.begin, key) if reverse else Range(key + b"\0", range_.end)

    async def commit(self, commit: Commit) -> int:
        """Write; return the version. Raises Conflict, TooOld, and Unreachable if it may have been written or not."""
        packed = pack_commit(commit)
        if len(packed) <= MOST_CALL_BYTES:
            return parse_version(await self._asked(bytes([Ask.COMMIT]) + packed))
        return parse_version(await self._asked(bytes([Ask.PULLED_COMMIT]) + struct.pack("<I", len(packed)), packed))
