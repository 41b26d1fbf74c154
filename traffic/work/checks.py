"""Graphs that cannot be played to their end, told before they are played, by rank and operation.

What is wrong by itself comes first, then what does not fit between ranks (messages, collectives).
If nothing is, the graph is carried out in no time: whoever is stuck then waits for somebody who waits for it.

Where streams have operations that wait for other ranks, who gets a stream first can depend on how long others take. The
one order that is tried here is that in which nothing takes time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from fabric.errors import ConfigError
from fabric.suggestions import nearest
from traffic.collectives.elements import Dtype
from traffic.work import words
from traffic.work.graph import ALL_RANKS, WorkGraph
from traffic.work.mailbox import Mailbox, Message, send_numbers
from traffic.work.operations import (
    ANY,
    CollectiveCall,
    Compute,
    FileRead,
    FileWrite,
    Operation,
    Receive,
    Send,
)
from traffic.work.progress import RankOrder, RankProgress
from traffic.work.schedules import known_algorithms

MOST_FAULTS = 20
"""How many faults are told of one graph."""
_TAGS = 2**64
"""How many tags the header of a message tells apart."""
Algorithms = Mapping[str, Sequence[str]]
"""The algorithms of each collective that there is, by names."""


def require_playable(graph: WorkGraph, known: Algorithms | None = None) -> None:
    """Raise ConfigError with the faults of a graph, if it has any."""
    if faults := list(islice(graph_faults(graph, known), MOST_FAULTS + 1)):
        more = ["and more; mend these first"] if len(faults) > MOST_FAULTS else []
        raise ConfigError(f"graph {graph.name}", faults[:MOST_FAULTS] + more)


def graph_faults(graph: WorkGraph, known: Algorithms | None = None) -> Iterator[str]:
    """Yield why a graph cannot be played to its end, as far as one looks: what is wrong in a rank hides what does not
    fit between ranks, and that hides who is stuck. ``known``: the collectives that can be played."""
    algorithms = known_algorithms() if known is None else known
    for look in (_faults_of_ranks(graph, algorithms), _faults_between_ranks(graph), _stuck(graph)):
        found = False
        for fault in look:
            found = True
            yield fault
        if found:
            return


def described(graph: WorkGraph, rank: int, place: int) -> str:
    """Return the words for an operation of a graph."""
    return words.described(rank, place, graph.operations[rank][place])


# What is wrong by itself ----------------------------------------------------------------------------------------------


def _faults_of_ranks(graph: WorkGraph, known: Algorithms) -> Iterator[str]:
    if not graph.ranks:
        yield "has no ranks; give it one at least"
    yield from _group_faults(graph)
    groups = {name: frozenset(ranks) for name, ranks in graph.groups.items()}
    groups.setdefault(ALL_RANKS, frozenset(range(graph.ranks)))
    sound_calls: set[tuple[object, ...]] = set()
    for rank, operations in enumerate(graph.operations):
        count = len(operations)
        for place, one in enumerate(operations):
            for other in chain(one.after, one.after_start):
                if not 0 <= other < count or other == place:
                    yield _out_of_range(graph, rank, place, other)
            if isinstance(one, CollectiveCall):
                # Many calls are alike, and to look at one costs more than to remember it.
                key = (one.collective, one.size_bytes, one.group, one.root, one.sent_bytes, one.algorithm, one.dtype)
                if key not in sound_calls:
                    faults = list(_call_faults(graph, one, known))
                    yield from (f"{described(graph, rank, place)}: {fault}" for fault in faults)
                    if not faults:
                        sound_calls.add(key)
                if rank not in groups.get(one.group, (rank,)):
                    members = _listed(graph.members(one.group))
                    yield f"{described(graph, rank, place)}: the group is ranks {members}; leave the call out"
            else:
                fault = _value_fault(graph, rank, one)
                if fault:
                    yield f"{described(graph, rank, place)}: {fault}"


def _out_of_range(graph: WorkGraph, rank: int, place: int, other: int) -> str:
    who, count = described(graph, rank, place), len(graph.operations[rank])
    if other == place:
        return f"{who}: waits for itself; leave that out"
    return f"{who}: waits for operation {other}, and its rank has 0 to {count - 1}; name one of these"


def _group_faults(graph: WorkGraph) -> Iterator[str]:
    for name, members in graph.groups.items():
        if name == ALL_RANKS and tuple(members) != tuple(range(graph.ranks)):
            whom = f"ranks {_listed(members)}"
            yield f"group {name}: is {whom}, and {name} means all {graph.ranks} in their order; give it another name"
        if not members:
            yield f"group {name}: has no ranks; give it some or leave it out"
        if len(set(members)) < len(members):
            twice = next(rank for rank, count in Counter(members).items() if count > 1)
            yield f"group {name}: has rank {twice} twice; name each once"
        for rank in members:
            if not 0 <= rank < graph.ranks:
                yield f"group {name}: has rank {rank}, and ranks are 0 to {graph.ranks - 1}"


def _value_fault(graph: WorkGraph, rank: int, one: Operation) -> str | None:
    if isinstance(one, Send | Receive):
        lowest = 0 if isinstance(one, Send) else ANY
        if not lowest <= one.peer < graph.ranks:
            return f"unknown rank {one.peer}; ranks are 0 to {graph.ranks - 1}"
        if one.tag < lowest:
            return f"tag {one.tag}: tags of messages begin with 0"
        if one.tag >= _TAGS:
            return f"tag {one.tag}: tags are below 2**64"
        if one.size_bytes < 0:
            return f"size {one.size_bytes}: give 0 bytes or more"
    elif isinstance(one, Compute):
        if one.duration_s is None and not one.flops:
            return "has neither a time nor FLOP; give it duration_s or flops, or leave it out"
        if one.duration_s is None:
            return f"has {one.flops:g} FLOP and no duration; say how many FLOP/s a rank computes"
        if not 0 <= one.duration_s < math.inf:
            return f"duration {one.duration_s} s: give 0 or more, and finite"
    elif isinstance(one, FileRead | FileWrite) and (one.offset_bytes < 0 or one.size_bytes < 0 or not one.path):
        return f"{one.size_bytes} B from {one.offset_bytes} of {one.path!r}: give a path, and 0 bytes or more"
    return None


def _call_faults(graph: WorkGraph, one: CollectiveCall, known: Algorithms) -> Iterator[str]:
    if one.group not in graph.groups and one.group != ALL_RANKS:
        yield f"unknown group {one.group}{_meant(one.group, [*graph.groups, ALL_RANKS])}"
        return
    members = graph.members(one.group)
    if not 0 <= one.root < len(members):
        yield f"root {one.root}: places in the group are 0 to {len(members) - 1}"
    if one.sent_bytes and (len(one.sent_bytes) != len(members) or min(one.sent_bytes) < 0):
        yield f"sent_bytes has {len(one.sent_bytes)} sizes for {len(members)} ranks; give each 0 or more"
    elif one.sent_bytes and sum(one.sent_bytes) != one.size_bytes:
        yield f"the sum of sent_bytes is {sum(one.sent_bytes)}, not {one.size_bytes}; set size_bytes to it"
    if one.collective not in known:
        yield f"{one.collective!r} is not a collective; use one of {', '.join(known)}"
        return
    if one.algorithm is not None and one.algorithm not in known[one.collective]:
        yield f"{one.algorithm!r} is not an algorithm of {one.collective}; use {', '.join(known[one.collective])}"
    types = [dtype.value for dtype in Dtype]
    if one.dtype not in types:
        yield f"{one.dtype!r} is not a dtype; use one of {', '.join(types)}"
        return
    element_bytes = Dtype(one.dtype).size_bytes
    if one.size_bytes < 0 or any(size % element_bytes for size in (one.size_bytes, *one.sent_bytes)):
        yield f"is not of whole {one.dtype} elements; give multiples of {element_bytes} bytes, or a smaller dtype"


def _meant(name: str, names: Sequence[str]) -> str:
    meant = nearest(name, names)
    return f"; did you mean {meant}?" if meant else f"; there are {_listed(names)}"


def _listed(items: Sequence[object], most: int = 8) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, items[:most])) + more


# What does not fit between ranks --------------------------------------------------------------------------------------


def _faults_between_ranks(graph: WorkGraph) -> Iterator[str]:
    yield from _faults_of_messages(graph)
    yield from _faults_of_collectives(graph)


class _Ends(NamedTuple):
    """The sends and receives, as (rank, place), of one sender, receiver and tag, in order."""

    sends: list[tuple[int, int]]
    receives: list[tuple[int, int]]


def _faults_of_messages(graph: WorkGraph) -> Iterator[str]:
    found: dict[tuple[int, int, int], _Ends] = defaultdict(lambda: _Ends([], []))
    open_to_any = [Mailbox(operations).is_open for operations in graph.operations]
    open_ends = [_Ends([], []) for _ in graph.operations]
    for rank, place, one in graph.all_operations():
        if isinstance(one, Send):
            is_open = open_to_any[one.peer](rank, one.tag)
            (open_ends[one.peer] if is_open else found[rank, one.peer, one.tag]).sends.append((rank, place))
        elif isinstance(one, Receive):
            is_open = ANY in (one.peer, one.tag) or open_to_any[rank](one.peer, one.tag)
            (open_ends[rank] if is_open else found[one.peer, rank, one.tag]).receives.append((rank, place))
    for ends in found.values():
        yield from _unmatched(graph, ends)
        for send, receive in zip(*ends, strict=False):
            if _size(graph, send) != _size(graph, receive):
                yield (
                    f"{described(graph, *send)} meets {described(graph, *receive)}: sizes differ; make them equal, or "
                    "look for a message before it that is missing at one end"
                )
    for ends in open_ends:
        yield from _unmatched(graph, ends)


def _size(graph: WorkGraph, end: tuple[int, int]) -> int:
    one = graph.operations[end[0]][end[1]]
    assert isinstance(one, Send | Receive)
    return one.size_bytes


def _unmatched(graph: WorkGraph, ends: _Ends) -> Iterator[str]:
    counts = f"{_many(ends.sends, 'send')}, {_many(ends.receives, 'receive')}"
    for send in ends.sends[len(ends.receives) :]:
        one = graph.operations[send[0]][send[1]]
        assert isinstance(one, Send)
        step = f"let rank {one.peer} receive it, or leave it out"
        yield f"{described(graph, *send)} is never received: {counts}; {step}"
    for receive in ends.receives[len(ends.sends) :]:
        step = "let its peer send it, or leave it out"
        yield f"{described(graph, *receive)} is never sent: {counts}; {step}"


def _many(ends: Sequence[object], what: str) -> str:
    return f"{len(ends)} {what}{'' if len(ends) == 1 else 's'}"


_ALIKE: dict[str, Callable[[CollectiveCall], object]] = {
    "collective": lambda one: one.collective,
    "size": lambda one: None if one.sent_bytes else one.size_bytes,
    "root": lambda one: one.root,
    "dtype": lambda one: one.dtype,
    "algorithm": lambda one: one.algorithm,
}


def _calls_of_groups(graph: WorkGraph) -> dict[str, dict[int, list[int]]]:
    """Return, by group and rank, the places of the calls."""
    calls: dict[str, dict[int, list[int]]] = {}
    for rank, place, one in graph.all_operations():
        if isinstance(one, CollectiveCall):
            calls.setdefault(one.group, {}).setdefault(rank, []).append(place)
    return calls


def _faults_of_collectives(graph: WorkGraph) -> Iterator[str]:
    for group, places in _calls_of_groups(graph).items():
        members = graph.members(group)
        first = max(members, key=lambda rank: len(places.get(rank, ())))
        for rank in members:
            mine, theirs = places.get(rank, []), places[first]
            for number, (place, other) in enumerate(zip(mine, theirs, strict=False)):
                if (fault := _difference(graph, (rank, place), (first, other))) is not None:
                    yield f"group {group}, call {number}: {fault}"
                    break
            else:
                if len(mine) < len(theirs):
                    missed = described(graph, first, theirs[len(mine)])
                    yield (
                        f"group {group}: rank {rank} calls {len(mine)} times, and never reaches {missed}; let all "
                        "ranks of the group call as often, or take it out of the group"
                    )


def _difference(graph: WorkGraph, one: tuple[int, int], other: tuple[int, int]) -> str | None:
    """Return in what two ranks' calls differ that meet; None if they are alike."""
    mine, theirs = graph.operations[one[0]][one[1]], graph.operations[other[0]][other[1]]
    if mine is theirs or one == other:
        return None
    assert isinstance(mine, CollectiveCall)
    assert isinstance(theirs, CollectiveCall)
    for what, value_of in _ALIKE.items():
        if value_of(mine) != value_of(theirs):
            return (
                f"{described(graph, *one)} has {what} {value_of(mine)}, {described(graph, *other)} {value_of(theirs)}; "
                "ranks of a group call the same in the same order"
            )
    return None


# Who is stuck ---------------------------------------------------------------------------------------------------------


class _Waiting(NamedTuple):
    """What an operation waits for, and why."""

    rank: int
    place: int
    why: str


class _Trial:
    """A graph that is carried out in no time, as far as it goes."""

    def __init__(self, graph: WorkGraph) -> None:
        self._graph = graph
        self._progress = [RankProgress(RankOrder.of(operations)) for operations in graph.operations]
        self._mailboxes = [Mailbox(operations) for operations in graph.operations]
        self._numbers = [send_numbers(operations) for operations in graph.operations]
        self._sizes = {group: len(graph.members(group)) for group in (*graph.groups, ALL_RANKS)}
        self._met: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._calls: list[Counter[str]] = [Counter() for _ in graph.operations]
        self._started = [bytearray(len(operations)) for operations in graph.operations]
        self._ended = [bytearray(len(operations)) for operations in graph.operations]

    def carry_out(self) -> None:
        """Start and end what can be, until nothing can."""
        ends: list[tuple[int, int]] = []
        for rank, progress in enumerate(self._progress):
            for place in progress.begin():
                self._start(rank, place, ends)
        while ends:
            rank, place = ends.pop()
            self._ended[rank][place] = True
            for following in self._progress[rank].end((place,)):
                self._start(rank, following, ends)

    def _start(self, rank: int, place: int, ends: list[tuple[int, int]]) -> None:
        """Start an operation; add to ``ends`` whatever ends of itself or of others by that."""
        self._started[rank][place] = True
        one = self._graph.operations[rank][place]
        if isinstance(one, Receive):
            if self._mailboxes[rank].start(place) is not None:
                ends.append((rank, place))
            return
        if isinstance(one, CollectiveCall):
            number = self._calls[rank][one.group]
            self._calls[rank][one.group] += 1
            met = self._met.setdefault((one.group, number), [])
            met.append((rank, place))
            if len(met) == self._sizes[one.group]:
                ends.extend(self._met.pop((one.group, number)))
            return
        if isinstance(one, Send):
            message = Message(rank, one.tag, self._numbers[rank][place], one.size_bytes)
            awaited = self._mailboxes[one.peer].come(message)
            if awaited is not None:
                ends.append((one.peer, awaited))
        ends.append((rank, place))

    def stuck(self) -> dict[int, int]:
        """Return the ranks that do not end, each with an operation of it that does not: one that has started, if
        any has."""
        found = {}
        for rank, progress in enumerate(self._progress):
            if progress.left:
                open_places = [place for place, ended in enumerate(self._ended[rank]) if not ended]
                found[rank] = next((place for place in open_places if self._started[rank][place]), open_places[0])
        return found

    def waits_for(self, rank: int, place: int) -> _Waiting | None:
        """Return what an operation that does not end waits for; None if there is nothing in particular."""
        one = self._graph.operations[rank][place]
        if self._started[rank][place]:
            if isinstance(one, Receive):
                return self._missing_send(rank, place)
            assert isinstance(one, CollectiveCall), "all others end at once"
            return self._missing_member(one, rank)
        for other in one.after:
            if not self._ended[rank][other]:
                return _Waiting(rank, other, "waits for the end of")
        for other in one.after_start:
            if not self._started[rank][other]:
                return _Waiting(rank, other, "waits for the start of")
        if isinstance(one, CollectiveCall):
            before = self._graph.operations[rank][:place]
            for other in range(place - 1, -1, -1):
                call = before[other]
                if isinstance(call, CollectiveCall) and call.group == one.group and not self._ended[rank][other]:
                    return _Waiting(rank, other, "comes in its group after")
        progress = self._progress[rank]
        holder = progress.holder[progress.order.stream[place]]
        return _Waiting(rank, holder, f"waits for stream {one.stream}, which has")

    def _missing_send(self, rank: int, place: int) -> _Waiting | None:
        wanted = self._mailboxes[rank].matches(place)
        if wanted is None:
            return None
        source, tag, number = wanted
        for other, sent in self._numbers[source].items():
            one = self._graph.operations[source][other]
            if isinstance(one, Send) and (one.peer, one.tag, sent) == (rank, tag, number):
                return _Waiting(source, other, "waits for")
        return None

    def _missing_member(self, call: CollectiveCall, rank: int) -> _Waiting | None:
        number = self._calls[rank][call.group] - 1
        for member in self._graph.members(call.group):
            if self._calls[member][call.group] <= number:
                places = [
                    place
                    for place, one in enumerate(self._graph.operations[member])
                    if isinstance(one, CollectiveCall) and one.group == call.group
                ]
                return _Waiting(member, places[number], "waits for")
        return None


def _stuck(graph: WorkGraph) -> Iterator[str]:
    """Yield the circles in which operations wait for each other, then what each other rank that is stuck waits for."""
    trial = _Trial(graph)
    trial.carry_out()
    told: set[tuple[int, int]] = set()
    others = []
    for start in trial.stuck().items():
        way, whys, places = [start], [""], {start: 0}
        while (following := trial.waits_for(*way[-1])) is not None:
            here = following.rank, following.place
            whys.append(following.why)
            way.append(here)
            if here in places:
                circle = way[places[here] :]
                if told.isdisjoint(circle):
                    told.update(circle)
                    text = _in_words(graph, circle, whys[places[here] :])
                    yield f"cannot end, for these wait for each other: {text}; let one of them not wait"
                if start not in told:
                    others.append(_in_words(graph, way[:3], whys))
                break
            places[here] = len(places)
        else:
            left = "nothing that fits it is left, so give it what it waits for or leave it out"
            others.append(f"{_in_words(graph, way[-3:], whys[-3:])}; {left}")
    yield from (f"never ends: {text}" for text in others)


def _in_words(graph: WorkGraph, way: Sequence[tuple[int, int]], whys: Sequence[str]) -> str:
    """Return operations of which each waits for the next, the first, as it waits for the second, by its own reason."""
    pairs = zip(way[1:], whys[1:], strict=False)
    return ", which ".join([described(graph, *way[0]), *(f"{why} {described(graph, *one)}" for one, why in pairs)])
