"""The steps of a recording as operations of a graph: streams of bytes become messages that both ends cut alike.

A stream is cut where its sender begins a message, where its receiver did something before it went on, and where a step
waits for what has come by then. So the k-th piece that is sent is the k-th that is received; the tag of both is the
stream's number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.operations import Compute, Receive, Send
from traffic.work.recording.connections import Streams
from traffic.work.recording.steps import Read, Step, Steps

_KNOWN_OVER = 3


def graph_from(name: str, steps: Steps, streams: Streams, ranks: int) -> WorkGraph:
    """Return the graph of a recording."""
    return _Maker(steps, streams, ranks).graph(name)


class _Maker:
    def __init__(self, steps: Steps, streams: Streams, ranks: int) -> None:
        self._steps = steps
        self._streams = streams
        self._works = [RankWork() for _ in range(ranks)]
        self._cuts = _cuts(steps)
        self._places: list[tuple[int, ...]] = [()] * len(steps.steps)
        """The operations that whoever waits for a step waits for."""
        self._sent: dict[int, int] = {}
        """The place of the last send of each stream: bytes of a connection are in order."""
        self._received: dict[int, list[int]] = {stream: [] for stream in self._cuts}
        """The places of the receives of each stream, in the order of its pieces."""

    def graph(self, name: str) -> WorkGraph:
        """Make all operations in the order in which they began."""
        steps = self._steps
        begun: list[tuple[int, Step | tuple[int, int, int, Read]]] = [(step.order, step) for step in steps.steps]
        for stream, cuts in self._cuts.items():
            begun += [(piece[3].order, piece) for piece in self._pieces(stream, cuts)]
        numbers = {id(step): number for number, step in enumerate(steps.steps)}
        for _, one in sorted(begun, key=lambda pair: pair[0]):
            if isinstance(one, Step):
                self._places[numbers[id(one)]] = self._take(one)
            else:
                self._receive(*one)
        return graph_of(name, self._works)

    def _pieces(self, stream: int, cuts: Sequence[int]) -> list[tuple[int, int, int, Read]]:
        """Return each piece of a stream: its first byte, the one behind its last, and the read that began it."""
        reads = self._steps.reads.get(stream, [])
        late = Read(0, self._steps.orders + 1, ())
        begins = [read.first for read in reads]
        read_bytes = self._steps.received.get(stream, 0)
        found = []
        for first, last in pairwise((0, *cuts)):
            place = bisect_right(begins, first) - 1
            found.append((stream, first, last, reads[place] if first < read_bytes and place >= 0 else late))
        return found

    def _waits(self, step: Step) -> tuple[int, ...]:
        places = {place for number in step.after for place in self._places[number]}
        for stream, received in step.received:
            cuts = self._cuts.get(stream, [])
            piece = bisect_left(cuts, min(received, cuts[-1])) if cuts else -1
            if piece >= 0:
                places.add(self._received[stream][piece])
        return _needed(self._works[step.rank], places)

    def _take(self, step: Step) -> tuple[int, ...]:
        """Add the operations of a step, and return the places to wait for."""
        after = self._waits(step)
        work = self._works[step.rank]
        if step.stream < 0:
            return (work.add(Compute(after=after, stream=step.thread, duration_s=step.duration_ns / 1e9)),)
        cuts = self._cuts.get(step.stream, [])
        inside = cuts[bisect_right(cuts, step.first) : bisect_left(cuts, step.last)]
        last = after  # A message of which nothing was sent.
        for begin, end in pairwise((step.first, *inside, step.last)):
            if end > begin:
                peer = self._streams.ranks(step.stream)[1]
                before = after if step.stream not in self._sent else (*after, self._sent[step.stream])
                sent = Send(after=_needed(work, before), peer=peer, size_bytes=end - begin, tag=step.stream)
                self._sent[step.stream] = work.add(sent)
                last = (self._sent[step.stream],)
        return last

    def _receive(self, stream: int, first: int, last: int, read: Read) -> None:
        sender, receiver = self._streams.ranks(stream)
        after = [place for number in read.after for place in self._places[number]] + self._received[stream][-1:]
        work = self._works[receiver]
        received = Receive(after=_needed(work, after), peer=sender, size_bytes=last - first, tag=stream)
        self._received[stream].append(work.add(received))


def _needed(work: RankWork, places: Iterable[int]) -> tuple[int, ...]:
    """Return the operations to wait for, without those that another one of them waits for, over some others at most."""
    wanted = set(places)
    known = wanted
    for _ in range(_KNOWN_OVER if len(wanted) > 1 else 0):
        known = {other for place in known for other in work.operations[place].after}
        wanted -= known
    return tuple(sorted(wanted))


def _cuts(steps: Steps) -> dict[int, list[int]]:
    """Return where the pieces of each stream end, of what was sent."""
    found: dict[int, set[int]] = {stream: {size} for stream, size in steps.sent.items() if size > 0}
    for step in steps.steps:
        if step.stream in found:
            found[step.stream].add(step.first)
        for stream, received in step.received:
            if stream in found:
                found[stream].add(received)
    for stream, reads in steps.reads.items():
        if stream in found:
            found[stream] |= {read.first for read in reads}
    return {stream: sorted(cut for cut in cuts if 0 < cut <= steps.sent[stream]) for stream, cuts in found.items()}
