"""The loop that plays a rank's operations: it starts what may start, and waits for what ends.

One thread does it all. Computing is a time at which an operation ends, messages and collectives end by events of other
threads. An operation starts at the time at which what it waited for ended, not when this thread got to know: how late
it wakes up does not add up over a step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from queue import Empty
from typing import Any, NamedTuple

from traffic.collectives.operations.all_to_all_v import Counts
from traffic.program_group import StalledError
from traffic.work.mailbox import Message, send_numbers
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite, Operation, Receive, Send
from traffic.work.player.communicator import Communicator
from traffic.work.player.file_client import FileClient
from traffic.work.player.links import Event, Events, Incoming, Mail, Outgoing
from traffic.work.player.payload import Origin
from traffic.work.progress import RankOrder, RankProgress
from traffic.work.words import described

_LOOKS_PER_TIMEOUT = 8
_TOLD_WAITING = 3
"""How many operations an error names that wait."""


class Times(NamedTuple):
    """When a step began, and each operation of it was ready, started and ended, by places (``time.monotonic()``)."""

    began: float
    ready_s: list[float]
    started_s: list[float]
    ended_s: list[float]


@dataclass(frozen=True)
class Patience:
    """How long a rank waits: for a step to end, and without a byte or an end of an operation."""

    step_s: float
    stall_s: float


@dataclass(frozen=True)
class Messages:
    """A rank's ways to its peers, and those of messages with a tag, where these have their own; and what comes."""

    to_peers: Mapping[int, Outgoing]
    of_tags: Mapping[tuple[int, int], Outgoing]
    incoming: Sequence[Incoming]

    def way(self, peer: int, tag: int) -> Outgoing:
        """Return the way of messages with a tag to a peer."""
        return self.of_tags[peer, tag] if self.of_tags else self.to_peers[peer]

    @property
    def outgoing(self) -> Iterable[Outgoing]:
        """All ways out."""
        return self.of_tags.values() if self.of_tags else self.to_peers.values()

    @property
    def moved_bytes(self) -> int:
        """How much has come and gone."""
        return sum(one.moved_bytes for one in self.outgoing) + sum(one.moved_bytes for one in self.incoming)

    def close(self) -> None:
        """End all connections."""
        for outgoing in self.outgoing:
            outgoing.close()
        for incoming in self.incoming:
            incoming.close()


@dataclass(frozen=True)
class Connected:
    """A rank with all that it is connected to. ``name``: the rank's for messages."""

    name: str
    rank: int
    events: Events
    messages: Messages
    communicators: Mapping[str, Communicator]
    files: FileClient | None
    patience: Patience

    @property
    def moved_bytes(self) -> int:
        """How much has come and gone by messages."""
        return self.messages.moved_bytes

    @property
    def calls(self) -> bool:
        """Whether a collective is under way; it detects by itself that it stalls."""
        return any(one.is_busy for one in self.communicators.values())


class Player:
    """Plays one part of a rank's work, ``part`` by its number among those that its peers know, step after step.
    ``counts``: of each all-to-all-v, by its place, the elements from each rank to each."""

    def __init__(
        self,
        part: int,
        operations: Sequence[Operation],
        mail: Mail,
        connected: Connected,
        counts: Mapping[int, Counts],
    ) -> None:
        self._counts = counts
        self._part = part
        self._operations = operations
        self._order = RankOrder.of(operations)
        self._numbers = send_numbers(operations)
        self._mail = mail
        self._at = connected
        self._timers: list[tuple[float, int]] = []
        self._step = -1
        self._times = Times(0.0, [], [], [])
        self._starters: dict[type[Operation], Callable[[int, Any, float], bool]] = {
            Compute: self._compute,
            Send: self._send,
            Receive: self._receive,
            CollectiveCall: self._call,
            FileRead: self._file,
            FileWrite: self._file,
        }

    def play(self, step: int) -> Times:
        """Play a step to its end. Raises TrafficError: what went wrong, or StalledError with what is waited for."""
        count = len(self._operations)
        progress = RankProgress(self._order)
        self._step = step
        progress.now = began = time.monotonic()
        self._times = Times(began, progress.ready_s, [0.0] * count, [0.0] * count)
        watch = _Watch(self, began)
        self._start(progress, progress.begin())
        while progress.left:
            ended = self._next_ends(progress.now, watch)
            if ended is not None:
                at, places = ended
                progress.now = max(progress.now, at)
                self._end(progress, places)
        return self._times

    def _end(self, progress: RankProgress, places: Sequence[int]) -> None:
        for place in places:
            self._times.ended_s[place] = progress.now
        self._start(progress, progress.end(places))

    def _start(self, progress: RankProgress, places: Sequence[int]) -> None:
        """Start operations, and what starts because some of them end at once."""
        operations, starters, now = self._operations, self._starters, progress.now
        _, _, started_s, ended_s = self._times
        while places:
            ended = []
            for place in places:
                started_s[place] = now
                operation = operations[place]
                if starters[type(operation)](place, operation, now):
                    ended_s[place] = now
                    ended.append(place)
            places = progress.end(ended) if ended else ()

    # How operations start; True: it has ended, too -------------------------------------------------------------------

    def _compute(self, place: int, operation: Compute, now: float) -> bool:
        assert operation.duration_s is not None, "checked before it is played"
        if not operation.duration_s:
            return True
        heappush(self._timers, (now + operation.duration_s, place))
        return False

    def _send(self, place: int, operation: Send, _: float) -> bool:
        origin = Origin(self._at.rank, operation.tag, self._numbers[place], self._step)
        if operation.peer == self._at.rank:
            self._mail.come(Message(origin.source, origin.tag, origin.number, operation.size_bytes))
            return True
        way = self._at.messages.way(operation.peer, operation.tag)
        return way.send(place, self._part, origin, operation.size_bytes)

    def _receive(self, place: int, _: Receive, __: float) -> bool:
        return self._mail.has_come(place)

    def _call(self, place: int, operation: CollectiveCall, _: float) -> bool:
        return self._at.communicators[operation.group].start(place, operation, self._counts.get(place))

    def _file(self, place: int, operation: FileRead | FileWrite, _: float) -> bool:
        assert self._at.files is not None, "a rank with files has a client"
        return self._at.files.start(place, operation)

    # What ends next ---------------------------------------------------------------------------------------------------

    def _next_ends(self, now: float, watch: _Watch) -> tuple[float, Sequence[int]] | None:
        """Wait for the next end and return when it was, and of which operations: of all timers that end together, or of
        the next event. Returns None after a while without either."""
        due = self._timers[0][0] if self._timers else math.inf
        event = self._event_before(due, watch.look_s)
        if event is not None:
            if event.error is not None:
                raise event.error
            watch.last = time.monotonic()
            return event.at, (event.place,)
        if due <= time.monotonic():
            places = []
            while self._timers and self._timers[0][0] <= due:
                places.append(heappop(self._timers)[1])
            watch.last = time.monotonic()
            return due, places
        watch.look(computes=bool(self._timers))
        return None

    def _event_before(self, due: float, look_s: float) -> Event | None:
        """Return the next event that comes before a time; None if there is none, or not for so long."""
        try:
            return self._at.events.get(timeout=max(0.0, min(due - time.monotonic(), look_s)))
        except Empty:
            return None

    def waiting(self) -> list[tuple[float, int]]:
        """Return the operations that have started and not ended, each with when it started."""
        _, _, started_s, ended_s = self._times
        begun = ((at, place) for place, at in enumerate(started_s) if at and not ended_s[place])
        return sorted(begun)

    def stalled(self, why: str) -> StalledError:
        """Return the error that a step does not go on, with what is waited for."""
        now, waiting = time.monotonic(), self.waiting()
        told = [
            f"{described(self._at.rank, place, self._operations[place])} for {now - at:.3g} s"
            for at, place in waiting[:_TOLD_WAITING]
        ]
        more = f" and {len(waiting) - _TOLD_WAITING} more" if len(waiting) > _TOLD_WAITING else ""
        return StalledError(
            f"{self._at.name}: step {self._step} {why}; waits for {'; '.join(told) or 'nothing'}{more}; look for a "
            "dead route, or for a rank that is late, or raise stall_timeout or step_timeout"
        )


class _Watch:
    """Looks whether a step still goes on."""

    def __init__(self, player: Player, began: float) -> None:
        self._player = player
        self._at = player._at
        patience = self._at.patience
        self.look_s = min(patience.step_s, patience.stall_s) / _LOOKS_PER_TIMEOUT
        self._deadline = began + patience.step_s
        self._moved_bytes = -1
        self.last = began
        """When something ended, or a byte came or went."""

    def look(self, computes: bool) -> None:
        """Raise StalledError if the step takes too long, or nothing has come or gone for too long and nothing computes
        meanwhile."""
        now = time.monotonic()
        moved = self._at.moved_bytes
        if moved != self._moved_bytes or computes or self._at.calls:
            self._moved_bytes = moved
            self.last = now
        if now >= self._deadline:
            raise self._player.stalled(f"did not end within {self._at.patience.step_s:g} s")
        if now - self.last >= self._at.patience.stall_s:
            raise self._player.stalled(f"went on with nothing for {self._at.patience.stall_s:g} s")
