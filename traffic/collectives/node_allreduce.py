"""HFReduce over ranks that are GPUs: all of each of some nodes, whose CPUs add up for them.

The first rank of a node, its leader, carries out what the node's CPU and GPUs do, as in
:mod:`traffic.collectives.gpu_copies`, and the node's part of the trees between nodes. The others tell it by a message
without data that they have come, and end when it tells them that all is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.collective import Flows, Groups
from traffic.collectives.elements import ElementType
from traffic.collectives.schedule import Finished, RankContext, Worker
from traffic.collectives.tree_allreduce import TreeAllreduce
from traffic.collectives.trees import tree_flows

BETWEEN_CPUS = 0x4000
"""Channels from here on join CPUs of nodes, by their own addresses."""
COME, DONE = 0x2000, 0x2001
"""Channels of what the ranks of a node tell each other."""


@dataclass(frozen=True)
class NodeAllreduce:
    """A schedule over the ranks of ``groups``, those of a node each; ``tree``: over the nodes, in this order."""

    tree: TreeAllreduce
    groups: Groups

    @property
    def elements(self) -> int:
        """The elements of the size."""
        return self.tree.elements

    @property
    def dtype(self) -> ElementType:
        """The type of the elements."""
        return self.tree.dtype

    @property
    def longest_piece(self) -> int:
        """The elements of a chunk."""
        return self.tree.longest_piece

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Those of the trees, between leaders, and of each other rank with its leader."""
        found = [self._between(edge) for edge in self.tree.edges]
        for leader, *others in self.groups:
            found += [Edge(COME, other, leader) for other in others]
            found += [Edge(DONE, leader, other) for other in others]
        return tuple(sorted(found))

    def _between(self, edge: Edge) -> Edge:
        """Return an edge of the trees as one between leaders."""
        return Edge(BETWEEN_CPUS + edge.channel, self.groups[edge.dialer][0], self.groups[edge.listener][0])

    def flows(self) -> Flows:
        """Return what goes between nodes, as multiples of the size, by their leaders."""
        return [
            (self.groups[source][0], self.groups[target][0], share)
            for source, target, share in tree_flows(self.tree.trees)
        ]

    def shortened(self, elements: int) -> NodeAllreduce:
        """Return the same of the first ``elements``."""
        return replace(self, tree=self.tree.shortened(elements))

    def is_leader(self, rank: int) -> bool:
        """Whether a rank carries out what its node does."""
        return any(group[0] == rank for group in self.groups)

    def node_of(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of a rank's node."""
        return next(group for group in self.groups if rank in group)

    def worker(self, context: RankContext, finished: Sequence[Finished]) -> Worker:
        """Return a rank's part. A leader's inputs and results are those of all ranks of its node, in their order."""
        group = self.node_of(context.rank)
        if context.rank != group[0]:
            come, done = Edge(COME, context.rank, group[0]), Edge(DONE, group[0], context.rank)
            return _Waiting(context.links[come], context.links[done])
        links = {edge: context.links[self._between(edge)] for edge in self.tree.edges if self._is_of(edge, group[0])}
        inner = replace(context, rank=self.groups.index(group), links=links)
        come_from = [context.links[Edge(COME, other, group[0])] for other in group[1:]]
        done_to = [context.links[Edge(DONE, group[0], other)] for other in group[1:]]
        return _Leading(self.tree.worker(inner, finished), come_from, done_to)

    def _is_of(self, edge: Edge, leader: int) -> bool:
        return leader in (self.groups[edge.dialer][0], self.groups[edge.listener][0])


class _Waiting:
    """A rank whose node's leader does its part: it says that it has come, and waits until all is done."""

    def __init__(self, come: ChunkConnection, done: ChunkConnection) -> None:
        self._come, self._done = come, done
        self._empty = np.empty(0, np.uint8)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's only task."""
        return [partial(self._wait, step)]

    def _wait(self, step: int) -> None:
        self._come.send(step, 0, self._empty)
        self._done.receive(step, 0, self._empty)

    def abort(self) -> None:
        """Do nothing: no thread waits for another of this rank."""


class _Leading:
    """A node's leader: it begins once all ranks of its node have come, and tells them when all is done."""

    def __init__(self, worker: Worker, come: Sequence[ChunkConnection], done: Sequence[ChunkConnection]) -> None:
        self._worker, self._come, self._done = worker, come, done
        self._empty = np.empty(0, np.uint8)

    def tasks(self, step: int) -> Sequence[Callable[[], None]]:
        """Return the step's tasks: each waits for all ranks, and the last to end tells them."""
        begun = _Once(partial(self._await_all, step))
        ended = _Last(partial(self._tell_all, step))
        tasks = self._worker.tasks(step)
        ended.left = len(tasks)
        return [partial(_between, begun, task, ended) for task in tasks]

    def _await_all(self, step: int) -> None:
        for one in self._come:
            one.receive(step, 0, self._empty)

    def _tell_all(self, step: int) -> None:
        for one in self._done:
            one.send(step, 0, self._empty)

    def abort(self) -> None:
        """Wake every thread that waits for another of this rank."""
        self._worker.abort()


class _Once:
    """What several threads need to have been done, and the first of them does."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self._action is not None:
                self._action()
                self._action = None


class _Last:
    """What the last of ``left`` threads does."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.left = 0
        self._action = action
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.left -= 1
            is_last = not self.left
        if is_last:
            self._action()


def _between(begun: _Once, task: Callable[[], None], ended: _Last) -> None:
    begun()
    task()
    ended()
