"""Which receive a message is for.

The k-th send to a rank with a tag meets that rank's k-th receive of that tag from there, whichever comes first. Where a
receive takes any tag, or from anybody, who comes first decides: what it could take goes to the receive that was started
first, and a receive takes what came first, of messages with its size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from traffic.work.operations import ANY, Operation, Receive, Send


class Message(NamedTuple):
    """A message as its receiver knows it: the k-th of its sender to it with a tag, in a step."""

    source: int
    tag: int
    number: int
    size_bytes: int


class _Wanted(NamedTuple):
    source: int
    tag: int
    size_bytes: int
    place: int

    def fits(self, source: int, tag: int) -> bool:
        return self.source in (source, ANY) and self.tag in (tag, ANY)


def send_numbers(operations: Sequence[Operation]) -> dict[int, int]:
    """Return the number of each send by its place: how many went before it to its peer with its tag."""
    counts: Counter[tuple[int, int]] = Counter()
    numbers = {}
    for place, operation in enumerate(operations):
        if isinstance(operation, Send):
            key = (operation.peer, operation.tag)
            numbers[place] = counts[key]
            counts[key] += 1
    return numbers


class Mailbox:
    """What came to a rank in a step and what it waits for. For one thread at a time."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        receives = [(place, one) for place, one in enumerate(operations) if isinstance(one, Receive)]
        self._any = [_wanted(place, one) for place, one in receives if ANY in (one.peer, one.tag)]
        self._decided: dict[tuple[int, int], bool] = {}
        counts: Counter[tuple[int, int]] = Counter()
        self._numbered: dict[int, tuple[int, int, int]] = {}
        self._wanted: dict[int, _Wanted] = {}
        for place, one in receives:
            key = (one.peer, one.tag)
            if ANY not in key and not self.is_open(*key):
                self._numbered[place] = (*key, counts[key])
                counts[key] += 1
            else:
                self._wanted[place] = _wanted(place, one)
        self._come: dict[tuple[int, int, int], Message] = {}
        self._awaited: dict[tuple[int, int, int], int] = {}
        self._come_to_any: list[Message] = []
        self._awaited_of_any: list[_Wanted] = []

    def is_open(self, source: int, tag: int) -> bool:
        """Return whether it is decided by who comes first which receive takes a message."""
        if not self._any:
            return False
        key = (source, tag)
        if key not in self._decided:
            self._decided[key] = any(one.fits(source, tag) for one in self._any)
        return self._decided[key]

    def matches(self, place: int) -> tuple[int, int, int] | None:
        """Return the sender, tag and number of the message that a receive takes; None if who comes first decides."""
        return self._numbered.get(place)

    def come(self, message: Message) -> int | None:
        """Take a message; return the place of the receive that waits for it, if one does."""
        if self.is_open(message.source, message.tag):
            for wanted in self._awaited_of_any:
                if wanted.fits(message.source, message.tag) and wanted.size_bytes == message.size_bytes:
                    self._awaited_of_any.remove(wanted)
                    return wanted.place
            self._come_to_any.append(message)
            return None
        key = message[:3]
        place = self._awaited.pop(key, None)
        if place is None:
            self._come[key] = message
        return place

    def start(self, place: int) -> Message | None:
        """Start a receive: return the message that it takes, if that has come; else it waits."""
        key = self._numbered.get(place)
        if key is not None:
            message = self._come.pop(key, None)
            if message is None:
                self._awaited[key] = place
            return message
        wanted = self._wanted[place]
        for message in self._come_to_any:
            if wanted.fits(message.source, message.tag) and wanted.size_bytes == message.size_bytes:
                self._come_to_any.remove(message)
                return message
        self._awaited_of_any.append(wanted)
        return None

    def is_awaited(self, source: int, tag: int, number: int) -> bool:
        """Return whether the receive of a message that has not come has started, if it is decided which that is."""
        return (source, tag, number) in self._awaited

    @property
    def left(self) -> list[Message]:
        """What came, and no receive took."""
        return [*self._come.values(), *self._come_to_any]


def _wanted(place: int, receive: Receive) -> _Wanted:
    return _Wanted(receive.peer, receive.tag, receive.size_bytes, place)
