"""A rank's part in a group: its connections there, and the collectives that it calls, one after another.

What a collective does, and whether its result is right, is :mod:`traffic.collectives`'. The members of a group are its
ranks there, from 0 at the root of a call on. Edges of all groups are told apart by their channels.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.dataset import Buffer, Dataset
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.gpu_copies import NodeLinks, NodeParts
from traffic.collectives.node_allreduce import NodeAllreduce
from traffic.collectives.operations.all_to_all_v import Counts, size_of
from traffic.collectives.result_check import ResultCheck
from traffic.collectives.schedule import RankContext, Worker
from traffic.program_group import PeerGoneError
from traffic.transport.connection import Transport
from traffic.work.operations import CollectiveCall
from traffic.work.player.links import Event, Events
from traffic.work.schedules import ScheduleChoice, without_counts

CHANNEL_BITS = 16
"""An edge's channel is that of the schedule, below the number of the group, which begin with 1: 0 is for messages."""
_WORKERS_KEPT = 16
"""Kinds of calls of a group of which the memory is kept: a step has few, and repeats them."""
_STEPS = 2**32

DataKey = tuple[int, str]
"""How many ranks share a data set, and its dtype."""


@dataclass(frozen=True)
class SharedDataset(Dataset):
    """Data of collectives of any size, for all groups of so many ranks, which a process maps once."""

    def _mapped(self, path: Path) -> Elements:
        return _mapping(path, self.shape.dtype)


@lru_cache(maxsize=256)
def _mapping(path: Path, dtype: Dtype) -> Elements:
    return np.asarray(np.memmap(path, dtype=dtype.numpy, mode="r"))


def edge_between(group_number: int, members: Sequence[int], edge: Edge) -> Edge:
    """Return an edge of a schedule as one between ranks of the job."""
    return Edge(group_number << CHANNEL_BITS | edge.channel, members[edge.dialer], members[edge.listener])


def edges_of(
    rank: int, group_number: int, members: Sequence[int], calls: Iterable[CollectiveCall], choice: ScheduleChoice
) -> set[Edge]:
    """Return the edges that a rank has in a group, for all of some calls."""
    found: set[Edge] = set()
    for call in calls if len(members) > 1 else ():
        planned = choice.planned(without_counts(call), members)
        between = (edge_between(group_number, planned.ranks, one) for one in planned.schedule.edges)
        found |= {edge for edge in between if rank in (edge.dialer, edge.listener)}
    return found


class _Kind(NamedTuple):
    """Calls that are alike: one worker does for them."""

    collective: str
    size_bytes: int
    root: int
    counts: Counts | None
    algorithm: str | None
    dtype: str

    @classmethod
    def of(cls, call: CollectiveCall, counts: Counts | None) -> _Kind:
        return cls(call.collective, call.size_bytes, call.root, counts, call.algorithm, call.dtype)


class _Part(NamedTuple):
    """What carries calls of a kind out, and the checks of its results: one as a rule, of a node's leader one for each
    of its ranks, which have none."""

    worker: Worker
    checks: Sequence[ResultCheck]


@dataclass(frozen=True)
class Inside:
    """The parts of a rank's node, and by what they are connected."""

    parts: NodeParts
    transport: Transport


@dataclass(frozen=True)
class GroupPlace:
    """A rank's place in a group. ``name``: the rank's and the group's, for messages. ``inside``: how the parts of its
    node are connected, if its CPU adds up for its ranks."""

    name: str
    rank: int
    number: int
    members: tuple[int, ...]
    choice: ScheduleChoice
    data: Mapping[DataKey, Dataset]
    timeout_s: float
    inside: Inside | None = None


class Communicator:
    """Carries out a rank's calls in a group, and tells of their ends by events."""

    def __init__(self, place: GroupPlace, links: Mapping[Edge, ChunkConnection], events: Events) -> None:
        self._place = place
        self._links = links
        self._events = events
        self._kept: OrderedDict[_Kind, _Part] = OrderedDict()
        self._calls = 0
        self._threads: ThreadPoolExecutor | None = None
        self._most_tasks = 0
        self._running: Worker | None = None
        self._node: NodeLinks | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._running is not None

    def start(self, place: int, call: CollectiveCall, counts: Counts | None) -> bool:
        """Begin a call, the only one then. Return whether it has ended already: of a group of one, or of counts of 0,
        which have nothing to do."""
        if len(self._place.members) == 1 or (counts is not None and not size_of(counts)):
            return True
        part = self._part(call, counts)
        number = self._calls = (self._calls + 1) % _STEPS
        for check in part.checks:
            check.begin(f"{self._place.name}, call {number}, {call.collective}")
        tasks = part.worker.tasks(number)
        self._running = part.worker
        _AllOf(tasks, self._room_for(len(tasks)), lambda errors: self._ended(place, part, errors), self.abort)
        return False

    def _part(self, call: CollectiveCall, counts: Counts | None) -> _Part:
        kind = _Kind.of(call, counts)
        part = self._kept.get(kind)
        if part is None:
            part = self._kept[kind] = self._made(call, counts)
            if len(self._kept) > _WORKERS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(kind)
        return part

    def _made(self, call: CollectiveCall, counts: Counts | None) -> _Part:
        ours = self._place
        planned = ours.choice.planned(call, ours.members, counts)
        schedule, rank, count = planned.schedule, planned.ranks.index(ours.rank), len(planned.ranks)
        links = {
            edge: self._links[edge_between(ours.number, planned.ranks, edge)]
            for edge in schedule.edges
            if rank in (edge.dialer, edge.listener)
        }
        data = ours.data[count, call.dtype]
        expected = planned.collective.expected(rank, count, schedule.elements)
        inputs: Sequence[Buffer] = data.inputs(rank)
        results, node = 1, None
        if isinstance(schedule, NodeAllreduce):
            mates = schedule.node_of(rank) if schedule.is_leader(rank) else ()
            inputs = [data.inputs(one)[0] for one in mates]
            results, node = len(mates), self._connected_node() if mates else None
        checks = [ResultCheck.of(data, expected, schedule.elements) for _ in range(results)]
        context = RankContext(rank, links, inputs, ours.timeout_s, node)
        return _Part(schedule.worker(context, [check.piece for check in checks]), checks)

    def _connected_node(self) -> NodeLinks:
        """Return the connections between the parts of the rank's node, made when a call first needs them, which is to
        warm up."""
        if self._node is None:
            ours = self._place
            assert ours.inside is not None, "the job gives it to ranks whose calls need it"
            chunk_bytes, timeout_s = ours.choice.piece_bytes, ours.timeout_s
            self._node = ours.inside.parts.connect(chunk_bytes, ours.inside.transport, ours.name, timeout_s)
        return self._node

    def _room_for(self, tasks: int) -> ThreadPoolExecutor:
        """Return threads for so many tasks at a time; they are made when there is nothing for those that are there."""
        if self._threads is None or tasks > self._most_tasks:
            if self._threads is not None:
                self._threads.shutdown(wait=False)
            self._most_tasks = tasks
            self._threads = ThreadPoolExecutor(max_workers=tasks)
        return self._threads

    def _ended(self, place: int, part: _Part, errors: Sequence[BaseException]) -> None:
        at = time.monotonic()
        self._running = None
        error: BaseException | None = None
        if errors:
            error = min(errors, key=lambda one: isinstance(one, PeerGoneError))
        else:
            try:
                for check in part.checks:
                    check.end()
            except Exception as fault:
                error = fault
        self._events.put(Event(place, at, error))

    def abort(self) -> None:
        """Wake all threads of the group."""
        for link in self._links.values():
            link.abort()
        if self._node is not None:
            self._node.abort()
        if (worker := self._running) is not None:
            worker.abort()

    def close(self) -> None:
        """End the connections and threads of the group."""
        self.abort()
        for link in self._links.values():
            link.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


class _AllOf:
    """Tasks side by side: once all have ended, whoever began them is told, of errors, too; at the first of these,
    ``abort`` wakes the others."""

    def __init__(
        self,
        tasks: Sequence[Callable[[], None]],
        threads: ThreadPoolExecutor,
        ended: Callable[[Sequence[BaseException]], None],
        abort: Callable[[], None],
    ) -> None:
        self._left = len(tasks)
        self._errors: list[BaseException] = []
        self._lock = threading.Lock()
        self._tell, self._abort = ended, abort
        for task in tasks:
            threads.submit(task).add_done_callback(self._one_ended)
        if not tasks:
            ended(())

    def _one_ended(self, task: Future[None]) -> None:
        error = task.exception()
        with self._lock:
            self._left -= 1
            is_last, is_first_error = not self._left, error is not None and not self._errors
            if error is not None:
                self._errors.append(error)
        if is_first_error:
            self._abort()
        if is_last:
            self._tell(self._errors)
