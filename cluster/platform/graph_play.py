"""How a node of a platform plays its ranks of a graph of work, step after step: as those of a run's own job do.

A rank is :func:`traffic.work.player.rank.run_work_rank`, in a thread of this process. What a run tells its ranks over
pipes comes from here instead, and where all ranks listen comes over the fabric, from the other nodes of the job.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from cluster.platform.gang import Gang, GangLostError
from cluster.platform.graph_jobs import SteppedGraph
from cluster.platform.stage_file import RanksStage
from cluster.platform.training_steps import WrongSumError
from cluster.platform.user import receive_suspend_command
from fabric.errors import ConfigError, TrafficError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent, ProgramFailure, StopRequested
from traffic.collectives.orders import RankListening
from traffic.job import Ready
from traffic.program_group import FAILURES_TIMEOUT_S, ProgramFailed
from traffic.stepped_job import REPORT_TIMEOUT_S, START_TIMEOUT_S, StepOrder
from traffic.work.job import WorkJob
from traffic.work.player.loop import Patience
from traffic.work.player.orders import PlayDone, WorkArguments, WorkWiring
from traffic.work.player.rank import run_work_rank

_LOOK_S = 1.0
"""How often who waits for the end of a step looks whether the job is to suspend: it answers then, and need not have
ended its step within the time for that."""


class NodesWork(WorkJob):
    """A graph on the nodes that a life has: who plays what, and what each rank is to know. It starts no programs."""

    def __init__(self, job: SteppedGraph, given: RanksStage, nodes: Sequence[NodeId]) -> None:
        self._given, self._silent_s = given, job.silent
        graph = job.graph_on(given.stage.fabric, len(nodes))
        super().__init__(given.stage, job.play, nodes, level=job.level, name=job.kind, graph=graph)

    def _addresses_of(self, rank: int) -> tuple[str, ...]:
        place = self.ranks[rank]
        return super()._addresses_of(rank) if place.is_inside else (self._given.addresses[place.name],)

    @property
    def ideal_step_s(self) -> float:
        """No less than what a step takes on an idle fabric."""
        return self._limits.ideal_step_s

    def arguments_on(self, host: NodeId) -> dict[int, WorkArguments]:
        """Return what the ranks of a node are to know, by their numbers."""
        self._prepare()
        assert self._data is not None, "it was prepared"
        for data in self._data.sets.values():  # From now on they are in memory, and no kill leaves files.
            data.inputs(0)
            data.expected()
        self._data.files.cleanup()
        # Whoever waits for another's computing waits for that, too.
        patience = Patience(self.step_timeout_s, min(self.step_timeout_s, self._silent_s + self.ideal_step_s))
        found = {}
        for rank, (_, place, arguments) in self._ranks_to_start().starts.items():
            assert isinstance(arguments, WorkArguments)
            if place.host == host:
                found[rank] = replace(arguments, patience=patience)
        return found

    def wiring(self, listening: Mapping[int, RankListening]) -> WorkWiring:
        """Return the order to connect, by where each rank listens."""
        return self._wiring([listening[rank] for rank in range(self.graph.ranks)])


@dataclass(frozen=True)
class _Rank:
    """A rank in a thread of this process, and this end of its pipe."""

    name: str
    pipe: Connection


def _started(rank: int, arguments: WorkArguments) -> _Rank:
    ours, theirs = multiprocessing.Pipe()
    agent = Agent(arguments.hosts[rank], theirs)
    name = arguments.name(rank)
    threading.Thread(target=_be, args=(agent, arguments), daemon=True, name=name).start()
    return _Rank(name, ours)


def _be(agent: Agent, arguments: WorkArguments) -> None:
    try:
        run_work_rank(agent, arguments)
    except StopRequested:
        pass
    except BaseException:
        agent.report(ProgramFailure(traceback.format_exc()))


@contextmanager
def ranks_playing(job: SteppedGraph, gang: Gang, given: RanksStage, host: str) -> Iterator[Callable[[int], None]]:
    """Give what plays this node's part of a step, by the step, once the ranks of all nodes are connected. Raises
    GangLostError if one is not, or what it raises while it plays; WrongSumError if what came is not what was sent;
    ConfigError if the graph cannot be played on these nodes."""
    hosts = [word.decode() for word in gang.words(host.encode())]
    work = NodesWork(job, given, [_node_of(given, name) for name in hosts])
    ranks = {rank: _started(rank, one) for rank, one in work.arguments_on(_node_of(given, host)).items()}
    try:
        _connect(work, gang, ranks)
        gang.silent_s += work.ideal_step_s  # Others may still play when this node's part has ended.
        patience_s = work.step_timeout_s + REPORT_TIMEOUT_S

        def play(step: int) -> None:
            for one in ranks.values():
                one.pipe.send(StepOrder(step))
            meanwhile = receive_suspend_command if gang.rank == 0 else None
            _answers(ranks, PlayDone, f"end of step {step}", patience_s, meanwhile)

        yield play
    finally:
        for one in ranks.values():
            one.pipe.close()


def _node_of(given: RanksStage, name: str) -> NodeId:
    if name not in given.addresses:
        raise ConfigError("node", [f"{name!r}: is not a node of this platform; it has {', '.join(given.addresses)}"])
    return NodeId.parse(name)


def _connect(work: NodesWork, gang: Gang, ranks: Mapping[int, _Rank]) -> None:
    """Let ranks of all nodes know where the others listen, and connect."""
    listening = _answers(ranks, RankListening, "word of where it listens", START_TIMEOUT_S)
    mine = {rank: [list(end) for end in one.endpoints] for rank, one in listening.items()}
    everywhere: dict[int, RankListening] = {}
    for word in gang.words(json.dumps(mine).encode()):
        for rank, ends in json.loads(word).items():
            endpoints = tuple((str(address), int(port)) for address, port in ends)
            everywhere[int(rank)] = RankListening(endpoints, (True,) * len(endpoints))
    wiring = work.wiring(everywhere)
    for one in ranks.values():
        one.pipe.send(wiring)
    _answers(ranks, Ready, "connections", START_TIMEOUT_S + FAILURES_TIMEOUT_S)


def _answers(
    ranks: Mapping[int, _Rank],
    kind: type[Any],
    what: str,
    patience_s: float,
    meanwhile: Callable[[], object] | None = None,
) -> dict[int, Any]:
    """Return the next word of each rank; ``meanwhile`` is called now and then. Raises GangLostError if one does not
    come, or has lost others, WrongSumError if one failed for another reason."""
    until_s = time.monotonic() + patience_s
    found: dict[int, Any] = {}
    failures: list[ProgramFailed] = []
    for rank, one in ranks.items():
        message = _next(one, until_s, what, meanwhile)
        if isinstance(message, ProgramFailed):
            failures.append(message)
            until_s = min(until_s, time.monotonic() + FAILURES_TIMEOUT_S)
        elif not isinstance(message, kind):
            raise TrafficError(f"{one.name}: answered {message!r} instead of {what}")
        else:
            found[rank] = message
    if failures:
        cause = min(failures, key=lambda one: one.is_consequence)
        raise (GangLostError if cause.is_consequence or cause.is_stall else WrongSumError)(cause.text)
    return found


def _next(rank: _Rank, until_s: float, what: str, meanwhile: Callable[[], object] | None) -> object:
    while not rank.pipe.poll(_wait_s(until_s, meanwhile is not None)):
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() >= until_s:
            return ProgramFailed(f"{rank.name}: no {what} in time", is_consequence=False, is_stall=True)
    message = rank.pipe.recv()
    if isinstance(message, ProgramFailure):
        raise RuntimeError(f"{rank.name}: failed before {what}:\n{message.text}")
    return message


def _wait_s(until_s: float, looks: bool) -> float:
    left_s = max(0.0, until_s - time.monotonic())
    return min(left_s, _LOOK_S) if looks else left_s
