"""What the ranks of a job need of each other: a ring of connections, and sums over it. A module without imports of the
project's, for programs of users.

Values are lanes of 64 bits without a sign, kept as one whole number: adding two of them adds all lanes, as long as no
sum of a lane needs more than 64 bits. So any Python can do it, fast enough for vectors of some MiB.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import TracebackType
from typing import Any

LANE_BYTES = 8
_RETRY_S = 0.1
_TRY_S = 2.5
"""How long one try to connect waits, and a word of a mate that has connected."""
_MOST_WORD_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18


class GangLostError(Exception):
    """A rank cannot be reached, or has ended: what all ranks do together cannot go on."""


@dataclass(frozen=True)
class Place:
    """Which rank this is, of how many, of which job, and where rank 0 is to be reached. ``tos``: what packets carry."""

    rank: int
    world: int
    master: tuple[str, int]
    job: str = ""
    tos: int = 0

    @classmethod
    def of_environment(cls) -> Place:
        """Return the place that the platform has told. Raises KeyError or ValueError if it has not."""
        told = os.environ
        return cls(
            int(told["RANK"]),
            int(told["WORLD_SIZE"]),
            (told["MASTER_IP"], int(told["MASTER_PORT"])),
            told.get("PLATFORM_JOB", ""),
            int(told.get("FABRIC_TOS", "0")),
        )


class Gang:
    """The ranks of a job in a ring. ``silent_s``: how long a neighbour may be silent in what all do together."""

    def __init__(self, place: Place, left: socket.socket | None, right: socket.socket | None, silent_s: float) -> None:
        self.rank, self.world, self.silent_s = place.rank, place.world, silent_s
        self._left, self._right = left, right

    def __enter__(self) -> Gang:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections: neighbours are told by that."""
        for one in (self._left, self._right):
            if one is not None:
                one.close()

    def sums(self, lanes: Sequence[int], silent_s: float | None = None) -> list[int]:
        """Return the sum of each of a few lanes over all ranks."""
        total = self.allreduce(of_lanes(lanes), len(lanes), silent_s).to_bytes(len(lanes) * LANE_BYTES, "little")
        starts = range(0, len(total), LANE_BYTES)
        return [int.from_bytes(total[at : at + LANE_BYTES], "little") for at in starts]

    def words(self, mine: bytes, silent_s: float | None = None) -> list[bytes]:
        """Return what each rank says, by ranks. Raises GangLostError as :meth:`allreduce`."""
        lengths = self.sums([len(mine) if rank == self.rank else 0 for rank in range(self.world)], silent_s)
        starts = list(accumulate(lengths, initial=0))
        # No two say anything at the same place, so that sums are what was said.
        lanes = -(-starts[-1] // LANE_BYTES)
        value = int.from_bytes(mine, "little") << 8 * starts[self.rank]
        whole = self.allreduce(value, lanes, silent_s).to_bytes(lanes * LANE_BYTES, "little")
        return [whole[begin:end] for begin, end in pairwise(starts)]

    def allreduce(self, value: int, lanes: int, silent_s: float | None = None) -> int:
        """Return the sum of all ranks' values, lane by lane, by a ring: each rank sends 2 (n-1)/n of the bytes. Raises
        GangLostError if a neighbour ends, or is silent for too long."""
        world, rank = self.world, self.rank
        if world == 1:
            return value
        patience_s = self.silent_s if silent_s is None else silent_s
        bounds = [lanes * part // world * LANE_BYTES for part in range(world + 1)]
        whole = value.to_bytes(lanes * LANE_BYTES, "little")
        parts = [whole[begin:end] for begin, end in pairwise(bounds)]
        for turn in range(world - 1):
            mine, theirs = (rank - turn) % world, (rank - turn - 1) % world
            come = self._exchange(parts[mine], len(parts[theirs]), patience_s)
            total = int.from_bytes(parts[theirs], "little") + int.from_bytes(come, "little")
            parts[theirs] = total.to_bytes(len(come), "little")
        for turn in range(world - 1):
            mine, theirs = (rank + 1 - turn) % world, (rank - turn) % world
            parts[theirs] = self._exchange(parts[mine], len(parts[theirs]), patience_s)
        return int.from_bytes(b"".join(parts), "little")

    def _exchange(self, out: bytes, size_bytes: int, patience_s: float) -> bytes:
        """Send to the right while so many bytes come from the left."""
        assert self._left is not None and self._right is not None, "a gang of one exchanges nothing"
        going, come = memoryview(out), bytearray()
        while going or len(come) < size_bytes:
            readers = [self._left] if len(come) < size_bytes else []
            writers = [self._right] if going else []
            can_read, can_write, _ = select.select(readers, writers, [], patience_s)
            if not can_read and not can_write:
                raise GangLostError(self._silence(bool(readers), patience_s))
            try:
                if can_write:
                    going = going[self._right.send(going[:_PIECE_BYTES]) :]
                if can_read:
                    piece = self._left.recv(min(_PIECE_BYTES, size_bytes - len(come)))
                    if not piece:
                        raise GangLostError(f"rank {(self.rank - 1) % self.world} has ended its connection")
                    come += piece
            except BlockingIOError:
                continue
            except OSError as error:
                raise GangLostError(f"a neighbour of rank {self.rank} is gone: {error}") from None
        return bytes(come)

    def _silence(self, waits_for_left: bool, patience_s: float) -> str:
        other = (self.rank - 1 if waits_for_left else self.rank + 1) % self.world
        what = "nothing comes from" if waits_for_left else "nothing can be sent to"
        return f"{what} rank {other} for {patience_s:g} s"


def of_lanes(lanes: Sequence[int]) -> int:
    """Return lanes as one number."""
    return int.from_bytes(b"".join(one.to_bytes(LANE_BYTES, "little") for one in lanes), "little")


def gathered(place: Place, timeout_s: float, silent_s: float) -> Gang:
    """Return the gang once every rank is there. Raises GangLostError if one is not within ``timeout_s``."""
    if place.world == 1:
        return Gang(place, None, None, silent_s)
    until_s = time.monotonic() + timeout_s
    try:
        return _ring(place, until_s, silent_s)
    except OSError as error:
        raise GangLostError(
            f"rank {place.rank} of {place.world}: not all ranks within {timeout_s:g} s: {error}"
        ) from None


def _ring(place: Place, until_s: float, silent_s: float) -> Gang:
    if place.rank == 0:
        listener = _listening((place.master[0], 0), place.tos)
        ends = _meet_all(place, listener.getsockname(), until_s)
    else:
        word = {"job": place.job, "rank": place.rank, "world": place.world}
        with _connected(place.master, place.tos, until_s) as master:
            listener = _listening((master.getsockname()[0], 0), place.tos)
            _say(master, {**word, "end": listener.getsockname()})
            ends = _hear(master, max(_TRY_S, until_s - time.monotonic()))["ends"]
    with listener:
        host, port = ends[(place.rank + 1) % place.world]
        right = _connected((host, port), place.tos, until_s)
        _say(right, {"job": place.job, "rank": place.rank, "world": place.world})
        wanted = {"job": place.job, "rank": (place.rank - 1) % place.world, "world": place.world}
        left = _accepted(listener, until_s, lambda found: found == wanted)[0]
    for one in (left, right):
        one.setblocking(False)
    return Gang(place, left, right, silent_s)


def _meet_all(place: Place, own: tuple[str, int], until_s: float) -> list[tuple[str, int]]:
    """Let all other ranks come to rank 0; tell each where all listen."""
    ends: dict[int, Any] = {0: own}
    come: list[socket.socket] = []

    def is_mate(word: dict[str, Any]) -> bool:
        return (word.get("job"), word.get("world")) == (place.job, place.world) and "end" in word

    with _listening(place.master, place.tos) as listener:
        while len(ends) < place.world:
            mate, word = _accepted(listener, until_s, is_mate)
            ends[word["rank"]] = word["end"]
            come.append(mate)
    found = [ends[rank] for rank in range(place.world)]
    for mate in come:
        with mate:
            _say(mate, {"ends": found})
    return found


def _socket(tos: int) -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def _listening(end: tuple[str, int], tos: int) -> socket.socket:
    one = _socket(tos)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(end)
    one.listen(1024)
    return one


def _connected(end: tuple[str, int], tos: int, until_s: float) -> socket.socket:
    """Return a connection, tried again until it is time. Raises OSError."""
    while True:
        one = _socket(tos)
        try:
            one.settimeout(max(0.01, min(_TRY_S, until_s - time.monotonic())))
            one.connect(end)
        except OSError as error:
            one.close()
            if time.monotonic() >= until_s:
                raise OSError(f"{end[0]}:{end[1]} cannot be reached ({error})") from None
            time.sleep(_RETRY_S)
        else:
            return one


def _accepted(
    listener: socket.socket, until_s: float, is_mate: Callable[[dict[str, Any]], bool]
) -> tuple[socket.socket, dict[str, Any]]:
    """Return the next who comes and is a mate, and its word; others, such as of a former life, are sent away. Raises
    OSError if nobody comes in time."""
    while True:
        listener.settimeout(max(0.01, until_s - time.monotonic()))
        try:
            one, _ = listener.accept()
        except TimeoutError:
            raise OSError("not all have come") from None
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            word = _hear(one, _TRY_S)
        except (OSError, ValueError):
            one.close()
            continue
        if is_mate(word):
            return one, word
        one.close()


def _say(one: socket.socket, word: dict[str, Any]) -> None:
    one.settimeout(_TRY_S)
    one.sendall(json.dumps(word).encode() + b"\n")


def _hear(one: socket.socket, timeout_s: float) -> dict[str, Any]:
    """Return the next word. Raises OSError if none comes, ValueError if it is none."""
    one.settimeout(timeout_s)
    come = bytearray()
    while not come.endswith(b"\n"):
        # Byte by byte: what follows is of the ring.
        piece = one.recv(1)
        if not piece or len(come) > _MOST_WORD_BYTES:
            raise OSError("the connection ended before a whole word had come")
        come += piece
    found = json.loads(come)
    if not isinstance(found, dict):
        raise ValueError("a word is an object")
    return found
