"""Collectives as the sends and receives that they consist of, for formats that have nothing else.

Rings for what goes round, all to all at once for what is direct, binomial trees for what has a root. Adding up takes no
time. The ranks of a group send with a tag of the group's own, which no message of the graph has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fabric.errors import ConfigError
from traffic.work.formats import names
from traffic.work.graph import RankWork, WorkGraph
from traffic.work.operations import ANY, NO_STREAM, CollectiveCall, Compute, Operation, Receive, Send

Message = tuple[int, int]
"""To or from which place of the group, and how many bytes."""


@dataclass(frozen=True)
class _Round:
    """What a rank sends and receives at once; the next round begins when all has come."""

    sends: Sequence[Message] = ()
    receives: Sequence[Message] = ()


@dataclass(frozen=True)
class _Call:
    """A call as one of its ranks sees it: ``place`` of ``ranks``; ``sent``: of an all-to-all-v, by place what each rank
    sends to each place."""

    one: CollectiveCall
    place: int
    ranks: int
    sent: Sequence[Sequence[int]] = ()

    def block(self, number: int) -> int:
        """Return the bytes of a block of the data: all blocks differ by a byte at most."""
        number %= self.ranks
        return self.one.size_bytes * (number + 1) // self.ranks - self.one.size_bytes * number // self.ranks


def lowered(graph: WorkGraph, kept: Collection[str] = ()) -> WorkGraph:
    """Return a graph in which each collective is messages, but for those that are ``kept``, by their names.

    Raises ConfigError for one that is not known here, and if receives of any tag could take what belongs to one.
    """
    operations = [one for _, _, one in graph.all_operations()]
    if all(one.collective in kept for one in operations if isinstance(one, CollectiveCall)):
        return graph if kept else replace(graph, groups={})
    if any(isinstance(one, Receive) and one.tag == ANY for one in operations):
        raise ConfigError(
            graph.name, ["receives any tag and calls collectives: as messages they could not be distinguished"]
        )
    highest = max((one.tag for one in operations if isinstance(one, Send | Receive)), default=-1)
    groups = list(dict.fromkeys(one.group for one in operations if isinstance(one, CollectiveCall)))
    tags = {group: highest + 1 + number for number, group in enumerate(groups)}
    calls = _calls(graph)
    ranks = tuple(_Lowering(graph, rank, tags, calls).operations(kept) for rank in range(graph.ranks))
    return WorkGraph(graph.name, ranks, dict(graph.groups) if kept else {})


def _calls(graph: WorkGraph) -> Mapping[tuple[int, str], list[CollectiveCall]]:
    found: dict[tuple[int, str], list[CollectiveCall]] = defaultdict(list)
    for rank, _, one in graph.all_operations():
        if isinstance(one, CollectiveCall):
            found[rank, one.group].append(one)
    return found


class _Lowering:
    """Makes one rank's operations anew."""

    def __init__(
        self,
        graph: WorkGraph,
        rank: int,
        tags: Mapping[str, int],
        calls: Mapping[tuple[int, str], list[CollectiveCall]],
    ) -> None:
        self._graph = graph
        self._rank = rank
        self._tags = tags
        self._calls = calls
        self._work = RankWork()
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._serial: dict[str, int] = {}
        self._called: dict[str, int] = defaultdict(int)

    def operations(self, kept: Collection[str]) -> tuple[Operation, ...]:
        """Return them. Collectives hold their streams and groups: what follows on these waits for their end."""
        mine = self._graph.operations[self._rank]
        held = {one.stream for one in mine if isinstance(one, CollectiveCall)} - {NO_STREAM}
        for one in mine:
            keys = [f"stream {one.stream}"] if one.stream in held else []
            if isinstance(one, CollectiveCall):
                keys.append(f"group {one.group}")
                self._called[one.group] += 1
            before = [self._serial[key] for key in keys if key in self._serial]
            after = tuple(dict.fromkeys([*(self._ends[place] for place in one.after), *before]))
            moved = replace(one, after=after, after_start=tuple(self._begins[place] for place in one.after_start))
            if isinstance(moved, CollectiveCall) and moved.collective not in kept:
                begin, end = self._messages(moved)
            else:
                begin = end = self._work.add(moved)
            self._begins.append(begin)
            self._ends.append(end)
            self._serial |= dict.fromkeys(keys, end)
        return tuple(self._work.operations)

    def _messages(self, one: CollectiveCall) -> tuple[int, int]:
        """Add the messages of a call between two operations that take no time; return the places of these."""
        members = self._graph.members(one.group)
        number = self._called[one.group] - 1
        sent = [self._calls[member, one.group][number].sent_bytes for member in members] if one.sent_bytes else ()
        if one.collective not in _ROUNDS:
            what = f"rank {self._rank}: {one.collective}: is not one of {', '.join(_ROUNDS)}"
            raise ConfigError(self._graph.name, [f"{what}; GOAL cannot have it: write Chakra instead"])
        rounds = _ROUNDS[one.collective](_Call(one, members.index(self._rank), len(members), sent))
        begin = self._work.add(Compute(duration_s=0.0, after=one.after, after_start=one.after_start, name=one.name))
        last: tuple[int, ...] = (begin,)
        tag = self._tags[one.group]
        for each in rounds if len(members) > 1 else ():
            sends = [Send(peer=members[to], size_bytes=size, tag=tag, after=last) for to, size in each.sends]
            comes = [Receive(peer=members[of], size_bytes=size, tag=tag, after=last) for of, size in each.receives]
            last = tuple(self._work.add(made) for made in (*sends, *comes)) or last
        end = self._work.add(Compute(duration_s=0.0, after=last, name=one.name, measured_s=one.measured_s))
        return begin, end


def _around(call: _Call, first: int, rounds: int) -> list[_Round]:
    """Return rounds of a ring in which each rank sends a block on, the first one at ``first`` blocks behind itself."""
    following, before = (call.place + 1) % call.ranks, (call.place - 1) % call.ranks
    return [
        _Round(
            [(following, call.block(call.place - first - turn))],
            [(before, call.block(call.place - 1 - first - turn))],
        )
        for turn in range(rounds)
    ]


def _reduce_scatter(call: _Call) -> list[_Round]:
    return _around(call, 1, call.ranks - 1)


def _all_gather(call: _Call) -> list[_Round]:
    return _around(call, 0, call.ranks - 1)


def _allreduce(call: _Call) -> list[_Round]:
    return _reduce_scatter(call) + _all_gather(call)


def _others(call: _Call) -> list[int]:
    return [(call.place + distance) % call.ranks for distance in range(1, call.ranks)]


def _all_to_all(call: _Call) -> list[_Round]:
    if call.sent:
        sends = [(to, call.sent[call.place][to]) for to in _others(call)]
        return [_Round(sends, [(of, call.sent[of][call.place]) for of in _others(call)])]
    return [
        _Round([(to, call.block(to)) for to in _others(call)], [(of, call.block(call.place)) for of in _others(call)])
    ]


def _from_root(call: _Call, place: int) -> int:
    return (place - call.one.root) % call.ranks


def _broadcast(call: _Call) -> list[_Round]:
    """Return a binomial tree: who has the data gives it to the rank half the distance away, and so on."""
    size, mine = call.one.size_bytes, _from_root(call, call.place)
    rounds, distance = [], 1 << (call.ranks - 1).bit_length()
    while (distance := distance // 2) >= 1:
        if mine % (2 * distance) == 0 and mine + distance < call.ranks:
            rounds.append(_Round(sends=[((call.place + distance) % call.ranks, size)]))
        elif mine % (2 * distance) == distance:
            rounds.append(_Round(receives=[((call.place - distance) % call.ranks, size)]))
    return rounds


def _reduce(call: _Call) -> list[_Round]:
    """Return the same tree the other way round."""
    return [_Round(one.receives, one.sends) for one in reversed(_broadcast(call))]


def _scatter(call: _Call) -> list[_Round]:
    if call.place == call.one.root:
        return [_Round(sends=[(to, call.block(to)) for to in _others(call)])]
    return [_Round(receives=[(call.one.root, call.block(call.place))])]


def _gather(call: _Call) -> list[_Round]:
    return [_Round(one.receives, one.sends) for one in _scatter(call)]


def _barrier(call: _Call) -> list[_Round]:
    """Return rounds in which each rank tells one twice as far away, until all know of all."""
    rounds, distance = [], 1
    while distance < call.ranks:
        to, of = (call.place + distance) % call.ranks, (call.place - distance) % call.ranks
        rounds.append(_Round([(to, 1)], [(of, 1)]))
        distance *= 2
    return rounds


_ROUNDS: Mapping[str, Callable[[_Call], list[_Round]]] = {
    names.ALLREDUCE: _allreduce,
    names.REDUCE_SCATTER: _reduce_scatter,
    names.ALL_GATHER: _all_gather,
    names.ALL_TO_ALL: _all_to_all,
    names.ALL_TO_ALL_V: _all_to_all,
    names.BROADCAST: _broadcast,
    names.REDUCE: _reduce,
    names.SCATTER: _scatter,
    names.GATHER: _gather,
    names.BARRIER: _barrier,
}
