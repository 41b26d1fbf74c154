"""Collectives as jobs: their config, and the run's side, which starts ranks and orders their steps.

Ranks are programs (:mod:`traffic.collectives.rank`). Steps are ordered over pipes, so the fabric carries only the
collective's own bytes.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo

from fabric.config import SizeBytes, Strict, TimeS
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.units import format_size, format_time
from fabric.world.programs import guest_calls
from traffic.collectives.chunk_connection import StalledError
from traffic.collectives.collective import Collective
from traffic.collectives.dataset import Dataset, DatasetShape
from traffic.collectives.elements import Dtype
from traffic.collectives.orders import RankArguments, RankListening, StepDone, StepOrder, Wiring
from traffic.collectives.rank import run_rank
from traffic.collectives.schedule import DEFAULT_SLOTS, Node, Schedule
from traffic.collectives.wiring import START_TIMEOUT_S
from traffic.job import Halt, Play, Records, Stage
from traffic.program_group import FAILURES_TIMEOUT_S, ProgramGroup, ProgramsFailedError, ProgramsPerProcess
from traffic.repeating import Repeating

REPORT_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 10.0
BASE_STEP_TIMEOUT_S = 60.0
"""What a step may take beyond its share of the network: link cuts and TCP's retransmission timeouts."""
IDEAL_STEPS_TIMEOUT = 20
"""How many times the ideal step time a step may take: a collective with a twentieth of its NIC still ends."""


def _whole_elements(size_bytes: int, info: ValidationInfo) -> int:
    dtype = info.data.get("dtype", Dtype.FP32)
    if size_bytes % dtype.size_bytes:
        raise ValueError(
            f"{size_bytes} bytes are not whole {dtype.value} elements; use a multiple of {dtype.size_bytes}"
        )
    return size_bytes


ElementsBytes = Annotated[SizeBytes, Field(gt=0, le=2**36), AfterValidator(_whole_elements)]
"""A size in bytes of one or more elements, of the ``dtype`` that the config declares before it."""


class CollectiveConfig(Strict):
    """A collective in steps.

    ``stall_timeout``: TCP alone survives a cut, but it tries again after 200 ms at the earliest and each time after
    twice as long, so what waits notices the link's return late, by up to as long as the cut (InfiniBand's hardware
    tries again at one interval, 7 times as a rule, and then breaks the connection).
    """

    ranks_per_process: ProgramsPerProcess = Field(
        default=None,
        description=(
            "Ranks that share an interpreter. Without it, as many as the engine prefers; it changes the "
            "emulator's cost, not the network."
        ),
    )
    dtype: Annotated[Dtype, Field(strict=False)] = Field(
        default=Dtype.FP32, description="Type of the elements, in flight and where they are added."
    )
    size: ElementsBytes = Field(
        default=2 * 1024 * 1024,
        description=(
            "Size of a step, S of nccl-tests: in an allreduce, the bytes that each rank, or GPU, contributes. Larger "
            "steps come closer to the steady state, and take longer."
        ),
    )
    step_timeout: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description="Longest time that a step may take before the run fails. Without it, derived from size and rates.",
    )
    slots: Annotated[int, Field(ge=2, le=4096)] = Field(
        default=DEFAULT_SLOTS,
        description=(
            "Chunks (of a tree, at its root) or slices (of a ring) that a rank holds between taking them in and "
            "sending them on. When all are in use, TCP holds the peer back. NCCL's connections have 8."
        ),
    )
    stall_timeout: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description=(
            "A rank without a byte for this long fails its job, which begins again from that step with new "
            "connections; longer than a step takes. Without it, the run ends."
        ),
    )

    def elements_of(self, size_bytes: int) -> int:
        """Return how many elements so many bytes are."""
        return size_bytes // self.dtype.size_bytes


def piece_faults(key: str, piece_bytes: int, size_bytes: int) -> Iterator[str]:
    """Yield that a piece, in which a collective is sent, is more than all that it sends: nothing would be pipelined."""
    if piece_bytes > size_bytes:
        yield f"{key}: {format_size(piece_bytes)} exceeds size, {format_size(size_bytes)}; lower it"


def step_timeout_s(config: CollectiveConfig, ideal_s: float) -> float:
    """Return what a step may take: as configured, or 60 s and 20 times the ideal step time."""
    if config.step_timeout is not None:
        return config.step_timeout
    return BASE_STEP_TIMEOUT_S + IDEAL_STEPS_TIMEOUT * ideal_s


AddressOf = Callable[[NodeId], str]
AddressesOf = Callable[[NodeId], tuple[str, ...]]
"""Gives a node's addresses: its connections of channel c have number c modulo as many as there are."""


def nic_address(stage: Stage, nodes: Sequence[NodeId]) -> AddressOf:
    """Return how a job finds a node's address: see :meth:`Fabric.nics_in_common`. Raises TopologyError."""
    nics = stage.fabric.nics_in_common(nodes)
    return lambda node: nics[node].ip


def one_address(stage: Stage, nodes: Sequence[NodeId], address_of: AddressOf | None = None) -> AddressesOf:
    """Return that all channels of a node have one address: by default the one that :func:`nic_address` says."""
    found = address_of or nic_address(stage, nodes)
    return lambda node: (found(node),)


def zones_of(stage: Stage, nodes: Sequence[NodeId]) -> list[int]:
    """Return the zone of each node's first NIC."""
    return [stage.fabric.nics_of[node][0].zone for node in nodes]


@dataclass(frozen=True)
class PlannedCollective:
    """What distinguishes one collective job from another. ``title`` names it in messages; ``ideal_step_s`` is the step
    time of an idle fabric."""

    title: str
    collective: Collective
    level: ServiceLevel
    schedule: Schedule
    buffers_per_rank: int
    ideal_step_s: float
    node_of: Callable[[NodeId], Node] | None = None
    """The inside of a rank's node, if data begins and ends there."""
    over: Callable[[int], Schedule] | None = None
    """The schedule over so many of the ranks' addresses, if it can do without those whose links are down."""


@dataclass(frozen=True)
class _Data:
    """The data of the ranks, and the directory that it is in."""

    files: tempfile.TemporaryDirectory[str]
    dataset: Dataset


@dataclass(frozen=True)
class _Phase:
    """A phase that is played, with the rows of its steps and restarts so far."""

    name: str = ""
    records: Records = field(default_factory=Records)


class CollectiveJob:
    """A :class:`traffic.job.Job` that repeats a collective over ``ranks``, one step after another, while it plays.

    ``addresses_of`` gives a node's addresses on the fabric. Steps are numbered from 0 over the job's life; one that
    stalled and was begun again keeps its number.
    """

    def __init__(
        self,
        stage: Stage,
        planned: PlannedCollective,
        config: CollectiveConfig,
        ranks: Sequence[NodeId],
        addresses_of: AddressesOf,
        name: str | None = None,
    ) -> None:
        if len(ranks) < 2:
            raise TrafficError(f"{planned.title}: {len(ranks)} ranks; a collective needs at least 2 nodes")
        self.level = planned.level
        self.name = name or self.level.label
        self.ranks = tuple(ranks)
        self._stage = stage
        self._planned = planned
        self._config = config
        self._addresses_of = addresses_of
        self._programs: ProgramGroup[int] = ProgramGroup(stage, planned.title, survives=False)
        self._data: _Data | None = None
        self._next_step = 0
        self._phase = _Phase()
        self._stepping = Repeating()

    @property
    def step_timeout_s(self) -> float:
        """What a step may take."""
        return step_timeout_s(self._config, self._planned.ideal_step_s)

    @property
    def failing_programs(self) -> Sequence[ProgramGroup[int]]:
        """Its ranks, for failures."""
        return (self._programs,)

    def start(self) -> None:
        """Fork the ranks and connect them. Raises TrafficError naming a rank that did not come up."""
        files = tempfile.TemporaryDirectory(prefix=f"{self.level.label}-")
        config, planned = self._config, self._planned
        elements = config.elements_of(config.size)
        shape = DatasetShape(len(self.ranks), planned.buffers_per_rank, elements, config.dtype)
        dataset = Dataset.write(Path(files.name), shape, self._stage.seed, planned.schedule.longest_piece)
        guest_calls.hand_out(*dataset.files)
        self._data = _Data(files, dataset)
        self._start_ranks()

    def _start_ranks(self) -> None:
        starts = {rank: self._start_of(rank) for rank in range(len(self.ranks))}
        self._programs.start_all(run_rank, starts, self._config.ranks_per_process)
        listening = self._collect("listening", START_TIMEOUT_S)
        self._programs.order(self._wiring(listening))
        self._collect("connections", START_TIMEOUT_S)

    def _wiring(self, listening: Sequence[RankListening]) -> Wiring:
        """Return how ranks connect: over all of their addresses, or, if they can do without some, over those whose
        links are up at every rank; over all if none is, and then they wait for the links."""
        places = every = tuple(range(len(listening[0].endpoints)))
        schedule = self._planned.schedule
        if self._planned.over is not None:
            places = tuple(place for place in every if all(one.up[place] for one in listening)) or every
            schedule = self._planned.over(len(places))
        return Wiring(schedule, places, tuple(tuple(one.endpoints[place] for place in places) for one in listening))

    def _start_of(self, rank: int) -> tuple[str, NodeId, RankArguments]:
        assert self._data is not None, "start() has written it"
        node = self.ranks[rank]
        arguments = RankArguments(
            job=self._planned.title,
            rank=rank,
            hosts=tuple(node.name for node in self.ranks),
            addresses=self._addresses_of(node),
            transport=self._stage.transport(self.level),
            schedule=self._planned.schedule,
            dataset=self._data.dataset,
            expected=self._planned.collective.expected,
            timeout_s=self.step_timeout_s,
            stall_s=self._config.stall_timeout or self.step_timeout_s,
            node=self._planned.node_of(node) if self._planned.node_of else None,
        )
        return f"{self._planned.title} rank {rank}", node, arguments

    def play(self, phase: str) -> None:
        """Begin to repeat steps; returns once every rank samples its connections.

        Ranks that were still waiting to begin again when the phase before ended are started anew.
        """
        self._begin(phase)
        self._stepping.start(self._step_or_restart)

    def halt(self) -> Records:
        """End after the step under way and return rows of all steps of the phase.

        Waits for that step at most its timeout, and for one attempt to begin again, if one is under way. Raises
        TrafficError if a rank failed or its result was wrong.
        """
        self._stepping.halt()
        if not self._stepping.join(self.step_timeout_s + REPORT_TIMEOUT_S + self._restart_patience_s()):
            raise TrafficError(self._not_ended())
        self._stepping.raise_error()
        return self._finish()

    def run_steps(self, count: int, phase: str = "") -> Records:
        """Carry out exactly ``count`` steps and return their rows. Raises TrafficError as :meth:`halt` does."""
        self._begin(phase)
        for _ in range(count):
            self._step()
        return self._finish()

    def warm_up(self) -> None:
        """Carry out a short step that no row tells of: in it TCP opens its windows. Its result is checked, too.

        Raises TrafficError as :meth:`halt` does.
        """
        self._start_missing_ranks()
        self._order_step(warms_up=True)

    def close(self) -> None:
        """End the ranks and remove the data."""
        self._stepping.halt()
        if self._stepping.thread is None:
            self._programs.close()
        else:
            self._programs.close_at_once()  # The thread sees them go, whatever it waits for.
            self._stepping.join(CLOSE_TIMEOUT_S)
        if self._data is not None:
            self._data.files.cleanup()

    def _begin(self, phase: str) -> None:
        if self._data is None:
            raise TrafficError(f"{self._planned.title}: has not started; call start() before play()")
        self._start_missing_ranks()
        self._phase = _Phase(phase)
        self._stepping.prepare()
        self._sample()

    def _start_missing_ranks(self) -> None:
        """Start the ranks if the last phase ended before they could begin again."""
        if not self._programs.handles:
            self._start_ranks()

    def _sample(self) -> None:
        self._programs.order(Play(self._phase.name))
        self._collect("samples begun", REPORT_TIMEOUT_S)

    def _finish(self) -> Records:
        records = self._phase.records
        self._programs.order(Halt())
        for message in self._collect("rows", REPORT_TIMEOUT_S):
            records.extend(message)
        return records

    def _step_or_restart(self) -> None:
        try:
            self._step()
        except StalledError as stall:
            if self._config.stall_timeout is None:
                raise
            self._restart(str(stall))

    def _restart(self, reason: str) -> None:
        """Begin again from the last whole step, as a job does whose ranks have given up, and if that stalls, too, again
        until it works or the phase ends: then ``resumed_s`` is NaN, and the next phase starts the ranks."""
        failed = time.monotonic()
        resumed = math.nan
        self._programs.end_at_once()
        while math.isnan(resumed) and not self._stepping.is_halting:
            try:
                self._start_ranks()
                self._sample()
                resumed = time.monotonic()
            except StalledError:
                self._programs.end_at_once()
        row = {
            "phase": self._phase.name,
            "service_level": self.level.label,
            "step": self._next_step,
            "failed_s": failed,
            "resumed_s": resumed,
            "reason": reason,
        }
        self._phase.records.add("restarts", [row])

    def _restart_patience_s(self) -> float:
        """Return how long one attempt to begin again may take: to listen, to connect, to sample."""
        if self._config.stall_timeout is None:
            return 0.0
        return 2 * (START_TIMEOUT_S + FAILURES_TIMEOUT_S) + REPORT_TIMEOUT_S

    def _step(self) -> None:
        done = self._order_step()
        of_job = {"phase": self._phase.name, "service_level": self.level.label}
        common = {**of_job, "step": done[0].step}
        step = {
            **of_job,
            "collective": self._planned.collective.name,
            "step": done[0].step,
            "ranks": len(self.ranks),
            "size_bytes": self._config.size,
            "started_s": min(message.started for message in done),
            "ended_s": max(message.ended for message in done),
        }
        ranks = [
            {**common, "host": node.name, "started_s": message.started, "ended_s": message.ended}
            for node, message in zip(self.ranks, done, strict=True)
        ]
        self._phase.records.extend({"steps": [step], "rank_steps": ranks})

    def _order_step(self, warms_up: bool = False) -> list[StepDone]:
        number = self._next_step
        self._programs.order(StepOrder(number, warms_up))
        done: list[StepDone] = self._collect(f"end of step {number}", self._step_patience_s() + REPORT_TIMEOUT_S)
        self._next_step += 1
        return done

    def _step_patience_s(self) -> float:
        """Return how long a step may take: a rank that stalls says so itself, unless it is the one that has stopped."""
        stall_s = self._config.stall_timeout
        return self.step_timeout_s if stall_s is None else min(self.step_timeout_s, 2 * stall_s)

    def _not_ended(self) -> str:
        ideal = format_time(self._planned.ideal_step_s)
        return (
            f"{self._planned.title}: step {self._next_step} did not end within {self.step_timeout_s:g} s of halt "
            f"(its ideal time is {ideal}); look for cut links or raise step_timeout"
        )

    def _collect(self, what: str, timeout_s: float) -> list[Any]:
        """Return every rank's next message. Raises StalledError or TrafficError, with the failure that came first."""
        try:
            return list(self._programs.collect(what, timeout_s).values())
        except ProgramsFailedError as error:
            raise (StalledError if error.is_stall else TrafficError)(str(error)) from error
