"""What each thread of a recording did after what.

A thread's step waits for what the thread did before it (computing, sends that it was blocked by or has handed over
the end of), for what it has received since, and, where another thread woke it, for what that one had done by then.
A message is what a thread sends without computing or receiving in between; the rest of a send that the socket did not
take at once belongs to it, whoever sends it and whenever: the program had it ready from the begin.

Computing is the time that a thread spends in no call that waits. Where nothing else says why a thread went on after a
wait, the time since anything happened in its process counts, too: a pause, or work of a thread without sockets.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from traffic.programs.recording import ProcessRecords, RecordFlag, RecordKind
from traffic.work.recording.connections import Streams
from traffic.work.recording.steps import Before, Read, Step, Steps

TAKING_NS = 100_000
"""Computing between two reads of one message, up to this long, is part of taking it if what came next was not there yet
for longer."""
LEAST_COMPUTING_NS = 1_000
"""Shorter computing before a message is not told apart from the calls around it; it is kept until there is more."""
PIECE_NS = 20_000
"""Computing between two reads or writes of one message splits the message, once there is as much."""


class _Record(NamedTuple):
    """As RECORD of :mod:`traffic.programs.recording`."""

    started_ns: int
    ended_ns: int
    bytes: int
    wanted: int
    busy_ns: int
    busy_then_ns: int
    connection: int
    thread: int
    kind: int
    flags: int
    other: int


@dataclass(slots=True)
class _Thread:
    """What a thread has done so far.

    ``computed_ns``: not yet a step. ``credit_ns``: what is one already, and its next record tells once more. ``woken``:
    a wait whose reason its next record shows. ``message``: the step of its last message, on the stream ``sent_on``, as
    long as that goes on.
    """

    name: str
    before: Before = field(default_factory=Before)
    computed_ns: int = 0
    credit_ns: int = 0
    ended_ns: int = 0
    woken: _Record | None = None
    message: int | None = None
    sent_on: int = -1


def steps_of(processes: Sequence[ProcessRecords], ranks: Sequence[int], streams: Streams) -> Steps:
    """Return the steps of all processes; ``ranks``: of each."""
    made = Steps()
    moved = [
        record
        for place, records in enumerate(map(_records, processes))
        for record in records
        if record.kind in (RecordKind.SENT, RecordKind.RECEIVED) and (place, record.connection) in streams.sides
    ]
    made.began_ns = min((one.started_ns for one in moved if one.kind == RecordKind.SENT), default=0)
    made.ended_ns = max((one.ended_ns for one in moved), default=0)
    causes = [_Process(place, ranks[place], streams, made) for place in range(len(processes))]
    rows = [zip(repeat(place), _records(process)) for place, process in enumerate(processes)]
    for place, record in heapq.merge(*rows, key=lambda row: (row[1].ended_ns, row[0])):
        if record.ended_ns >= made.began_ns:
            causes[place].take(record)
    return made


def _records(process: ProcessRecords) -> Iterator[_Record]:
    return map(_Record._make, process.records.tolist())


class _Process:
    """What the threads of a process did."""

    def __init__(self, place: int, rank: int, streams: Streams, made: Steps) -> None:
        self._place = place
        self._rank = rank
        self._streams = streams
        self._made = made
        self._threads: dict[int, _Thread] = {}
        self._unsent: dict[int, tuple[int, int]] = {}
        """Of each stream: how much of the last message the socket has not taken yet, and that message's step."""

    def take(self, record: _Record) -> None:
        """Go on by a record."""
        if record.kind == RecordKind.CONNECTED:
            return
        thread = self._threads.get(record.thread)
        if thread is None:
            thread = self._threads[record.thread] = self._first(record)
        else:
            self._compute(thread, record.busy_ns, record.started_ns)
        if record.kind == RecordKind.WOKEN:
            self._woken(thread, record)
        else:
            side = self._streams.sides.get((self._place, record.connection))
            if record.kind == RecordKind.RECEIVED:
                self._settle(thread)
                self._received(thread, record, None if side is None else side.receives)
            else:
                self._sent(thread, record, None if side is None else side.sends)
        thread.ended_ns = record.ended_ns
        thread.credit_ns = 0

    def _first(self, record: _Record) -> _Thread:
        """Return a thread that begins: after what the process had done by then, or at a time."""
        thread = _Thread(f"p{self._place}t{record.thread}")
        others = [one for one in self._threads.values() if one.ended_ns <= record.started_ns]
        last = max(others, key=lambda one: one.ended_ns, default=None)
        if last is not None:
            thread.before.add(last.before)
        since_ns = self._made.began_ns if last is None else last.ended_ns
        passed_ns = max(0, record.started_ns - since_ns)
        thread.computed_ns = min(passed_ns, record.busy_ns) if record.kind == RecordKind.RECEIVED else passed_ns
        return thread

    def _compute(self, thread: _Thread, busy_ns: int, until_ns: int) -> None:
        """Add what a thread has computed until a moment, since the recording's begin."""
        busy_ns = min(busy_ns, max(0, until_ns - self._made.began_ns))
        thread.computed_ns += max(0, busy_ns - thread.credit_ns)
        thread.credit_ns = max(0, thread.credit_ns - busy_ns)

    def _flush(self, thread: _Thread, least_ns: int) -> None:
        """Make a step of what a thread has computed, if that is enough."""
        if thread.computed_ns >= least_ns:
            step = self._add(thread, thread.computed_ns)
            thread.before = Before({step})
            thread.computed_ns = 0
            thread.message = None

    def _add(self, thread: _Thread, duration_ns: int = 0, stream: int = -1, first: int = 0) -> int:
        """Add a step of a thread, and return its number."""
        steps, before = self._made.steps, thread.before
        received = tuple(sorted(before.received.items()))
        after = tuple(sorted(before.steps | set(before.sent.values())))
        order = self._made.next_order()
        steps.append(Step(self._rank, order, thread.name, after, received, duration_ns, stream, first, first))
        return len(steps) - 1

    def _received(self, thread: _Thread, record: _Record, stream: int | None) -> None:
        if stream is not None:
            goes_on = stream in thread.before.received
            waited_ns = record.ended_ns - thread.ended_ns - record.busy_ns - record.busy_then_ns
            if goes_on and thread.computed_ns < min(TAKING_NS, waited_ns):
                thread.computed_ns = 0
            self._flush(thread, PIECE_NS if goes_on else LEAST_COMPUTING_NS)
            made = self._made
            first = made.received.get(stream, 0)
            reads = made.reads.setdefault(stream, [])
            after = tuple(sorted(thread.before.steps))
            if not reads or reads[-1].after != after:
                reads.append(Read(first, made.next_order(), after))
            made.received[stream] = thread.before.received[stream] = first + record.bytes
            thread.message = None
        self._compute(thread, record.busy_then_ns, record.started_ns)

    def _sent(self, thread: _Thread, record: _Record, stream: int | None) -> None:
        if stream is None:
            self._settle(thread)
            return
        unsent, message = self._unsent.get(stream, (0, -1))
        if not self._is_last(message, stream):  # Another process, which has the socket, too, has gone on.
            unsent = 0
        rest = min(unsent, record.bytes)
        if unsent:
            thread.woken = None  # It has waited for room in the socket.
            self._extend(message, stream, rest, record)
            if rest == unsent:
                thread.before.sent[stream] = message
        if record.wanted > unsent:
            self._begin_message(thread, record, stream, rest)
        else:
            self._unsent[stream] = (unsent - rest, message)

    def _begin_message(self, thread: _Thread, record: _Record, stream: int, rest: int) -> None:
        """Begin a message with what a record has beyond ``rest``, or go on with the thread's last one."""
        self._settle(thread)
        goes_on = thread.sent_on == stream and self._is_last(thread.message, stream)
        if not goes_on:
            thread.message = None
        self._flush(thread, PIECE_NS if goes_on else LEAST_COMPUTING_NS)
        if thread.message is None:
            thread.message = self._add(thread, stream=stream, first=self._made.sent.get(stream, 0))
        thread.sent_on = stream
        message = thread.message
        self._extend(message, stream, record.bytes - rest, record)
        self._unsent[stream] = (record.wanted - rest - (record.bytes - rest), message)
        if not record.flags & RecordFlag.DOES_NOT_BLOCK:
            thread.before = Before({message})

    def _is_last(self, message: int | None, stream: int) -> bool:
        """Whether a message is the last one of its stream so far."""
        if message is None or message < 0:
            return False
        step = self._made.steps[message]
        return step.stream == stream and step.last == self._made.sent.get(stream, step.first)

    def _extend(self, message: int, stream: int, bytes_: int, record: _Record) -> None:
        step = self._made.steps[message]
        self._made.sent[stream] = step.last = step.last + bytes_
        step.took_ns = max(step.took_ns, record.ended_ns - record.started_ns)

    def _woken(self, thread: _Thread, record: _Record) -> None:
        """Go on after another thread has signalled; without a signal, keep the wait until it shows what it was for."""
        self._settle(thread)
        signaller = self._threads.get(record.other)
        if not record.flags & RecordFlag.IS_SIGNALLED or signaller is None or signaller is thread:
            thread.woken = record
            return
        self._compute(signaller, record.wanted, record.bytes)
        signaller.credit_ns = record.wanted
        self._flush(signaller, LEAST_COMPUTING_NS)
        self._flush(thread, LEAST_COMPUTING_NS)
        self._join(thread, signaller)

    def _settle(self, thread: _Thread) -> None:
        """Go on after a wait of which nobody has said why it ended: after what others have done meanwhile."""
        record, thread.woken = thread.woken, None
        if record is None:
            return
        self._flush(thread, LEAST_COMPUTING_NS)
        began_ns = max(record.started_ns, self._made.began_ns)
        others = [
            one
            for one in self._threads.values()
            if one is not thread and record.started_ns < one.ended_ns <= record.ended_ns
        ]
        for one in others:
            self._join(thread, one)
        last_ns = max((one.ended_ns for one in others), default=began_ns)
        thread.computed_ns += max(0, record.ended_ns - last_ns)

    def _join(self, thread: _Thread, other: _Thread) -> None:
        thread.before.add(other.before)
        thread.message = None
