"""A store over etcd, by its JSON gateway: a :class:`traffic.storage.kv.store.Store` that other programs replicate.

Versions are etcd's revisions. What is cleared has a value that says so, since etcd compares no key that is not there;
so old keys stay until etcd's files are removed. A commit is one transaction of etcd: that no key that was read has a
newer revision, and then the writes. A commit with stamped keys must know its revision before it is made: it compares a
key that every commit writes, and is made anew if another one was faster.

HTTP/1.0 over connections of any transport, one for each call: the fabric carries it as it does all else.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fabric.errors import TrafficError
from traffic.storage.kv.store import Commit, Conflict, Pair, Range, TooOld, Unreachable, only
from traffic.storage.wire.event_loop import dialled, until
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    Endpoint,
    Transport,
    UnreachableError,
    after,
)

MOST_OPERATIONS = 10_000
"""What etcd is started with (``--max-txn-ops``); as shipped it takes 128."""
_DATA = b"d"
_LATEST = b"l"
_SET, _CLEARED = b"\1", b"\0"
_MOST_TRIES = 20
_RECEIVED_BYTES = 64 << 10


class EtcdError(TrafficError):
    """etcd refuses a call."""


@dataclass(frozen=True)
class EtcdStore:
    """The etcd that listens at an endpoint, called from the address ``source``. A call that is not answered within
    ``timeout_s`` raises Unreachable."""

    transport: Transport
    endpoint: Endpoint
    source: str
    timeout_s: float

    async def read_version(self) -> int:
        """Return the revision of the latest commit. Raises Unreachable."""
        found = await self._range(only(_LATEST), count_only=True)
        return int(found["header"]["revision"])

    async def get(self, key: bytes, version: int) -> bytes | None:
        """Return the value of a key at a version, or None. Raises TooOld, Unreachable."""
        if version == 0:
            return None
        found = await self._range(only(_DATA + key), revision=version)
        return next((pair.value for pair in _live(found)), None)

    async def range(self, range_: Range, version: int, limit: int, reverse: bool = False) -> list[Pair]:
        """Return the first pairs of a range at a version. Raises TooOld, Unreachable."""
        found: list[Pair] = []
        left = Range(_DATA + range_.begin, _DATA + range_.end)
        while version and len(found) < limit and left.begin < left.end:
            order = "DESCEND" if reverse else "ASCEND"
            page = await self._range(left, revision=version, limit=limit, sort_target="KEY", sort_order=order)
            found += _live(page)
            if not page.get("more"):
                break
            last = _bytes(page["kvs"][-1]["key"])
            left = Range(left.begin, last) if reverse else Range(last + b"\0", left.end)
        return found[:limit]

    async def commit(self, commit: Commit) -> int:
        """Write; return the revision. Raises Conflict, and Unreachable if it may have been written or not."""
        if not commit.writes:
            await self._require_no_conflict(commit)
            return commit.read_version
        for _ in range(_MOST_TRIES):
            done = await self._try(commit)
            if done is not None:
                return done
            await self._require_no_conflict(commit)
        raise Conflict(f"others wrote what this commit clears or stamps, {_MOST_TRIES} times; try it again later")

    async def _try(self, commit: Commit) -> int | None:
        """Make a commit, if nothing of what was read has changed, and nothing else has that it must know."""
        compares = [_older(Range(_DATA + begin, _DATA + end), commit.read_version + 1) for begin, end in commit.reads]
        latest = await self._range(only(_LATEST))
        now = int(latest["header"]["revision"])
        cleared: dict[bytes, bytes] = {}
        for begin, end in commit.clears:
            there = Range(_DATA + begin, _DATA + end)
            compares.append(_older(there, now + 1))
            found = await self._range(there, revision=now)
            cleared |= {_DATA + pair.key: _CLEARED for pair in _live(found)}
        if commit.stamped:
            changed = [int(one["mod_revision"]) for one in latest.get("kvs", [])]
            compares.append(_compared(only(_LATEST), "EQUAL", changed[0] if changed else 0))
        pairs = cleared | {_DATA + key: _SET + value for key, value in commit.pairs_at(now + 1)}
        puts = [{"request_put": {"key": _text(key), "value": _text(value)}} for key, value in pairs.items()]
        if len(puts) + 1 > MOST_OPERATIONS:
            raise ValueError(f"a commit of {len(puts)} keys, more than {MOST_OPERATIONS - 1}; divide it")
        puts.append({"request_put": {"key": _text(_LATEST), "value": ""}})
        done = await self._call("/v3/kv/txn", {"compare": compares, "success": puts})
        if not done.get("succeeded"):
            return None
        version = int(done["header"]["revision"])
        if commit.stamped and version != now + 1:
            raise EtcdError(f"revision {version} instead of {now + 1}: somebody else writes to this etcd; use another")
        return version

    async def _require_no_conflict(self, commit: Commit) -> None:
        for begin, end in commit.reads:
            newer = {"min_mod_revision": commit.read_version + 1, "limit": 1}
            found = await self._range(Range(_DATA + begin, _DATA + end), **newer)
            for one in found.get("kvs", []):
                key, version = _bytes(one["key"])[len(_DATA) :], one["mod_revision"]
                raise Conflict(f"{key!r} was changed by version {version}, after {commit.read_version}")

    async def _range(self, range_: Range, **words: Any) -> dict[str, Any]:
        return await self._call("/v3/kv/range", {"key": _text(range_.begin), "range_end": _text(range_.end), **words})

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return etcd's answer. Raises Unreachable, TooOld, EtcdError, and ValueError of a version to come."""
        status, text = await self._post(path, json.dumps(body).encode())
        try:
            answer: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise EtcdError(f"etcd at {self._where} answers {text[:60]!r}, which is not JSON") from error
        if status == http.HTTPStatus.OK:
            return answer
        said = str(answer.get("error", answer))
        if "has been compacted" in said:
            raise TooOld(f"{said}; begin a new transaction")
        if "future revision" in said:
            raise ValueError(f"{said}; ask for read_version")
        raise EtcdError(f"etcd at {self._where}: {path}: {said}")

    @property
    def _where(self) -> str:
        return "{}:{}".format(*self.endpoint)

    async def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        head = f"POST {path} HTTP/1.0\r\nHost: {self._where}\r\nContent-Length: {len(body)}\r\n\r\n"
        deadline_s = time.monotonic() + self.timeout_s
        try:
            received = await self._exchanged(head.encode() + body, deadline_s)
            response = http.client.HTTPResponse(_Received(received))  # type: ignore[arg-type]
            response.begin()
            return response.status, response.read()
        except (UnreachableError, ConnectionEndedError, asyncio.TimeoutError, http.client.HTTPException) as error:
            raise Unreachable(f"etcd at {self._where} does not answer: {error or 'in time'}") from error

    async def _exchanged(self, sent: bytes, deadline_s: float) -> bytes:
        """Return all that comes until the peer ends the connection."""
        connection = await dialled(self.transport, self.endpoint, self.source, _left(deadline_s))
        try:
            await _send(connection, sent, deadline_s)
            return await _received(connection, deadline_s)
        finally:
            connection.close()


class _Received:
    """What :class:`http.client.HTTPResponse` takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        """Return what was received, as a file."""
        return io.BytesIO(self._data)


async def _send(connection: Connection, data: bytes, deadline_s: float) -> None:
    left: Sequence[memoryview] = [memoryview(data)]
    while left:
        left = after(left, connection.send_at_once(left))
        if left:
            await until(connection.poll_for_room, _left(deadline_s))


async def _received(connection: Connection, deadline_s: float) -> bytes:
    found, into = bytearray(), bytearray(_RECEIVED_BYTES)
    while True:
        try:
            count = connection.receive_at_once(into)
        except ConnectionEndedError:
            return bytes(found)
        found += into[:count]
        if not count:
            await until(connection.poll_for_arrivals, _left(deadline_s))


def _left(deadline_s: float) -> float:
    return max(0.001, deadline_s - time.monotonic())


def _live(found: dict[str, Any]) -> list[Pair]:
    """Return the pairs of an answer that were not cleared, by their own keys."""
    pairs = [Pair(_bytes(one["key"])[len(_DATA) :], _bytes(one.get("value", ""))) for one in found.get("kvs", [])]
    return [Pair(key, value[1:]) for key, value in pairs if value[:1] == _SET]


def _older(range_: Range, revision: int) -> dict[str, Any]:
    """Return the condition that no key of a range has a revision that is not older."""
    return _compared(range_, "LESS", revision)


def _compared(range_: Range, result: str, revision: int) -> dict[str, Any]:
    keys = {"key": _text(range_.begin), "range_end": _text(range_.end)}
    return {**keys, "target": "MOD", "result": result, "mod_revision": revision}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
