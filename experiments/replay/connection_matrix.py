"""htsim's connection matrices: which host sends how much to which, from when, or once others have ended. Pure.

The format is that of htsim's reader (github.com/Broadcom/csg-htsim, sim/datacenter/connection_matrix.cpp)::

    Nodes 16
    Connections 2
    Triggers 1
    0->3 id 1 start 0 size 2000000 recv_done_trigger 1     start in picoseconds, size in bytes
    3->5 id 2 trigger 1 size 2000000                       starts when trigger 1 fires
    trigger id 1 oneshot                                   or multishot, or barrier count N
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from fabric.errors import ConfigError

_PICOSECOND_S = 1e-12
MOST_COUNT, MOST_BYTES, MOST_START_S = 10**9, 10**15, 1e6
"""Of numbers of a line: hosts, ids and how many; sizes, a petabyte; starts, before they are scaled."""
_MOST_DIGITS = 20
_SHOWN, _SHOWN_OF_LINE = 24, 120
_ARROW = re.compile(r"^(\d+)->(\d+)$")
_COUNTS = ("Nodes", "Connections", "Triggers", "Failures")
_CONNECTION_KEYS = ("id", "start", "size", "trigger", "send_done_trigger", "recv_done_trigger")
_NOT_PLAYED = {
    "prio": "packets of a flow have the priority of its lane",
    "addon": "a flow starts once",
}


class End(Enum):
    """What of a flow has ended: its source knows that all has arrived, or its sink has all."""

    SENT = "send_done_trigger"
    RECEIVED = "recv_done_trigger"


class TriggerKind(Enum):
    """How a trigger fires: all its flows at its first activation; the next one at each; all at the last of several."""

    ONE_SHOT = "oneshot"
    MULTI_SHOT = "multishot"
    BARRIER = "barrier"


@dataclass(frozen=True)
class Connection:
    """A flow, as its ``line`` of the file has it. It starts at ``start_s``, or when ``trigger`` fires."""

    line: int
    source: int
    sink: int
    size_bytes: int
    number: int | None = None
    start_s: float | None = None
    trigger: int | None = None
    on_sent: int | None = None
    on_received: int | None = None

    def activates(self, end: End) -> int | None:
        """Return which trigger its end activates."""
        return self.on_sent if end is End.SENT else self.on_received


@dataclass(frozen=True)
class Trigger:
    """A trigger, as its ``line`` has it; ``count`` is how many activations a barrier waits for."""

    line: int
    number: int
    kind: TriggerKind
    count: int = 1


@dataclass(frozen=True)
class Matrix:
    """A connection matrix: flows between ``nodes`` hosts, numbered from 0."""

    nodes: int
    connections: tuple[Connection, ...]
    triggers: tuple[Trigger, ...] = ()


class Firing:
    """What has fired so far: told of ends of flows, by their places in the matrix, it says which flows start."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._left = {one.number: one.count if one.kind is TriggerKind.BARRIER else 1 for one in matrix.triggers}
        self._kinds = {one.number: one.kind for one in matrix.triggers}
        self._waiting: dict[int, deque[int]] = {one.number: deque() for one in matrix.triggers}
        for place, connection in enumerate(matrix.connections):
            if connection.trigger is not None:
                self._waiting[connection.trigger].append(place)

    def ended(self, place: int, end: End) -> list[int]:
        """Return the flows that start now, by their places."""
        trigger = self._matrix.connections[place].activates(end)
        if trigger is None:
            return []
        waiting = self._waiting[trigger]
        if self._kinds[trigger] is TriggerKind.MULTI_SHOT:
            return [waiting.popleft()] if waiting else []
        self._left[trigger] -= 1
        if self._left[trigger] != 0:
            return []
        found = list(waiting)
        waiting.clear()
        return found


def read_matrix(text: str, source: str) -> Matrix:
    """Return a connection matrix. Raises ConfigError with every line that cannot be read or played."""
    reader = _Reader(source)
    for number, line in enumerate(text.splitlines(), 1):
        reader.read(number, line)
    return reader.matrix()


class _Reader:
    """Reads lines, and keeps what is wrong with them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._faults: list[str] = []
        self._counts: dict[str, int] = {}
        self._counted_on: dict[str, int] = {}
        self._connections: list[Connection] = []
        self._triggers: dict[int, Trigger] = {}

    def read(self, number: int, line: str) -> None:
        """Read a line."""
        words = line.split()
        if not words or words[0].startswith("#"):
            return
        try:
            if words[0] in _COUNTS and len(words) > 1:
                self._count(number, words)
            elif match := _ARROW.match(words[0]):
                source, sink = (_whole(host, "host") for host in match.groups())
                self._connections.append(_connection(number, source, sink, words[1:]))
            elif words[0] == "trigger":
                self._add_trigger(_trigger(number, words[1:]))
            elif words[0] == "failure":
                raise ValueError("failures of switches cannot be played; cut links with the config's failures")
            else:
                raise ValueError(f"{words[0]!r} is neither SOURCE->SINK, trigger, nor one of {', '.join(_COUNTS)}")
        except ValueError as error:
            self._faults.append(f"line {number}: {line.strip()[:_SHOWN_OF_LINE]!r}: {error}")

    def _count(self, number: int, words: Sequence[str]) -> None:
        name = words[0]
        if len(words) > 2:
            raise ValueError(f"{name} is one number; remove {' '.join(words[2:])}")
        if name in self._counted_on:
            raise ValueError(f"{name} is on line {self._counted_on[name]}, too; keep one of them")
        self._counted_on[name] = number
        self._counts[name] = _whole(words[1], name)

    def _add_trigger(self, trigger: Trigger) -> None:
        if trigger.number in self._triggers:
            raise ValueError(f"trigger {trigger.number} is on line {self._triggers[trigger.number].line}, too")
        self._triggers[trigger.number] = trigger

    def matrix(self) -> Matrix:
        """Return what was read. Raises ConfigError with all faults."""
        found = Matrix(self._counts.get("Nodes", 0), tuple(self._connections), tuple(self._triggers.values()))
        faults = [*self._faults, *self._wrong_counts(), *_wrong_hosts(found), *_wrong_triggers(found)]
        if not faults:
            faults = list(_never_started(found))
        if faults:
            raise ConfigError(self._source, faults)
        return found

    def _wrong_counts(self) -> Iterator[str]:
        if "Nodes" not in self._counts:
            yield "has no line 'Nodes N'; add one"
        if self._faults:
            return
        there = {"Connections": len(self._connections), "Triggers": len(self._triggers), "Failures": 0}
        for name, count in there.items():
            if self._counts.get(name, 0) != count:
                yield f"says {name} {self._counts.get(name, 0)}, and has {count}"
        if not self._connections:
            yield "has no connections: there is nothing to play"


def _whole(text: str, name: str, least: int = 0, most: int = MOST_COUNT) -> int:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} digits)"
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if not is_number or not least <= int(text) <= most:
        raise ValueError(f"{name} {shown}: must be a whole number, {least} or more, and {most:,} at most")
    return int(text)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place in range(0, len(words), 2):
        if words[place] in words[:place:2]:
            raise ValueError(f"{words[place]!r} is there twice; keep one of them")
        if words[place] in _NOT_PLAYED:
            raise ValueError(f"{words[place]!r} cannot be played: {_NOT_PLAYED[words[place]]}; remove it")
        if words[place] not in _CONNECTION_KEYS:
            raise ValueError(f"{words[place]!r} is not a key of a connection; there are {', '.join(_CONNECTION_KEYS)}")
        if place + 1 == len(words):
            raise ValueError(f"{words[place]!r} has no value")
        yield words[place], words[place + 1]


def _connection(line: int, source: int, sink: int, words: Sequence[str]) -> Connection:
    found = dict(_pairs(words))
    if source == sink:
        raise ValueError("a host does not send to itself over the fabric; choose another sink")
    if ("start" in found) == ("trigger" in found):
        raise ValueError("needs either a start or a trigger")
    if "size" not in found:
        raise ValueError("has no size: a flow without end cannot be timed")
    most = {"size": MOST_BYTES}
    numbers = {key: _whole(value, key, 1, most.get(key, MOST_COUNT)) for key, value in found.items() if key != "start"}
    if "trigger" in found and "id" not in found:
        raise ValueError("a flow with a trigger needs an id")
    try:
        start_s = float(found["start"]) * _PICOSECOND_S if "start" in found else None
    except ValueError:
        raise ValueError(f"start {found['start']}: is not a number of picoseconds") from None
    if start_s is not None and not 0 <= start_s <= MOST_START_S:
        raise ValueError(
            f"start {found['start']}: must be 0 or more, and {MOST_START_S / _PICOSECOND_S:.0e} at most (ps)"
        )
    return Connection(
        line, source, sink, numbers["size"], numbers.get("id"), start_s, numbers.get("trigger"),
        numbers.get("send_done_trigger"), numbers.get("recv_done_trigger"),
    )  # fmt: skip


def _trigger(line: int, words: Sequence[str]) -> Trigger:
    rest = deque(words)
    number, count, kinds = 0, None, []
    while rest:
        word = rest.popleft()
        if word in words[: len(words) - len(rest) - 1]:
            raise ValueError(f"{word!r} is there twice; keep one of them")
        if word in ("id", "count") and rest:
            value = _whole(rest.popleft(), word, least=1)
            number, count = (value, count) if word == "id" else (number, value)
        elif word in {kind.value for kind in TriggerKind}:
            kinds.append(TriggerKind(word))
        else:
            raise ValueError(f"{word!r} is not a key of a trigger; write it like: trigger id 1 barrier count 4")
    if not number or len(kinds) != 1:
        raise ValueError("a trigger needs an id and one of oneshot, multishot, barrier")
    if (kinds[0] is TriggerKind.BARRIER) != (count is not None):
        raise ValueError("count: is what a barrier needs, and nothing else has")
    return Trigger(line, number, kinds[0], count or 1)


def _wrong_hosts(matrix: Matrix) -> Iterator[str]:
    for one in matrix.connections:
        if (highest := max(one.source, one.sink)) >= matrix.nodes:
            yield f"line {one.line}: host {highest} does not exist; Nodes {matrix.nodes} are 0 to {matrix.nodes - 1}"


def _wrong_triggers(matrix: Matrix) -> Iterator[str]:
    known = {one.number for one in matrix.triggers}
    for one in matrix.connections:
        for number in (one.trigger, one.on_sent, one.on_received):
            if number is not None and number not in known:
                yield f"line {one.line}: trigger {number} does not exist; add a line 'trigger id {number} oneshot'"


def _never_started(matrix: Matrix) -> Iterator[str]:
    """Yield the flows that no order of ends ever starts."""
    firing = Firing(matrix)
    started = [place for place, one in enumerate(matrix.connections) if one.start_s is not None]
    for place in started:  # It grows.
        for end in End:
            started += firing.ended(place, end)
    for place in sorted(set(range(len(matrix.connections))) - set(started)):
        one = matrix.connections[place]
        yield f"line {one.line}: never starts: trigger {one.trigger} does not fire for it; activate it more often"
