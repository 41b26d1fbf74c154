"""Collectives as jobs: their config, and the run's side, which makes the data and says how ranks are connected.

Ranks are programs (:mod:`traffic.collectives.rank`); the life of a job is :class:`traffic.stepped_job.SteppedJob`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo

from fabric.config import SizeBytes, TimeS
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_apart, format_size, format_time
from fabric.world.programs import guest_calls
from traffic.collectives.collective import Collective
from traffic.collectives.dataset import Dataset, DatasetShape
from traffic.collectives.elements import Dtype
from traffic.collectives.orders import RankArguments, RankListening, ShapedStepOrder, StepShape, Wiring
from traffic.collectives.rank import run_rank
from traffic.collectives.schedule import DEFAULT_SLOTS, Node, Schedule
from traffic.job import Records, Stage
from traffic.program_group import RanksTogether
from traffic.stepped_job import StartedRanks, StepDone, StepLimits, StepOrder, SteppedJob

BASE_STEP_TIMEOUT_S = 60.0
"""What a step may take beyond its share of the network: link cuts and TCP's retransmission timeouts."""
MOST_PIECES = 2**19
"""Of a step: each is a span of the result that a rank has checked, and one of each of its schedule's loops, some 500
bytes together; of 64 GiB in pieces of 128 KiB that is a quarter of a GiB per rank."""
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
PieceBytes = Annotated[SizeBytes, Field(gt=0, le=2**30), AfterValidator(_whole_elements)]
"""The same of what travels in one frame, of which a rank holds several; a frame's header counts 32 bits of bytes."""
StepBytes = Annotated[SizeBytes, Field(ge=0, le=2**36), AfterValidator(_whole_elements)]
"""The same, or 0: a step of a count of 0 is a step, too."""


def growing_sizes(begin: int, end: int, factor: int) -> list[int]:
    """Return ``begin`` and each size that is ``factor`` times the one before, up to ``end``, in bytes, as nccl-tests'
    -b, -e and -f do."""
    found = [begin]
    while found[-1] * factor <= end:
        found.append(found[-1] * factor)
    return found


class CollectiveRanks(RanksTogether):
    """How ranks of collectives are started, and how long they may take."""

    step_timeout: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description="Longest time that a step may take before the run fails. Without it, derived from size and rates.",
    )

    @property
    def of_ranks(self) -> dict[str, Any]:
        """Its keys, as those of a collective's config have them."""
        return {"step_timeout": self.step_timeout, "ranks_per_process": self.ranks_per_process}


class CollectiveConfig(CollectiveRanks):
    """A collective in steps.

    ``stall_timeout``: TCP alone survives a cut, but it tries again after 200 ms at the earliest and each time after
    twice as long, so what waits notices the link's return late, by up to as long as the cut (InfiniBand's hardware
    tries again at one interval, 7 times as a rule, and then breaks the connection).
    """

    dtype: Annotated[Dtype, Field(strict=False)] = Field(
        default=Dtype.FP32, description="Type of the elements, in flight and where they are added."
    )
    size: StepBytes = Field(
        default=2 * 1024 * 1024,
        description=(
            "Size of a step, S of nccl-tests: in an allreduce, the bytes that each rank, or GPU, contributes. Larger "
            "steps come closer to the steady state, and take longer."
        ),
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


def piece_faults(key: str, piece_bytes: int, size_bytes: int, size_key: str = "size") -> Iterator[str]:
    """Yield that a piece, in which a collective is sent, is more than all that it sends, if that is anything: nothing
    would be pipelined; or so little that a rank could not keep account of all."""
    if piece_bytes > size_bytes > 0:
        piece, size = format_apart(piece_bytes, size_bytes, format_size)
        yield f"{key}: {piece} exceeds {size_key}, {size}; lower it"
    pieces = -(-size_bytes // piece_bytes)
    if pieces > MOST_PIECES:
        least = format_size(-(-size_bytes // MOST_PIECES))
        yield (
            f"{size_key}: {format_size(size_bytes)} are {pieces:,} pieces of {format_size(piece_bytes)} ({key}), and a "
            f"rank keeps account of {MOST_PIECES:,} in a step; lower it, or raise {key} to {least}"
        )


def step_timeout_s(config: CollectiveConfig, ideal_s: float) -> float:
    """Return what a step may take: as configured, or 60 s and 20 times the ideal step time."""
    if config.step_timeout is not None:
        return config.step_timeout
    return BASE_STEP_TIMEOUT_S + IDEAL_STEPS_TIMEOUT * ideal_s


AddressOf = Callable[[NodeId], str]
AddressesOf = Callable[[NodeId], tuple[str, ...]]
"""Gives a node's addresses: its connections of channel c have number c modulo as many as there are."""


def one_address(stage: Stage, nodes: Sequence[NodeId], address_of: AddressOf | None = None) -> AddressesOf:
    """Return that all channels of a node have one address: by default one for all NICs that the job uses."""
    found = address_of or stage.addresses_on(nodes)
    return lambda node: (found(node),)


def zones_of(fabric: Fabric, nodes: Sequence[NodeId]) -> list[int]:
    """Return the zone of each node's first NIC."""
    return [fabric.nics_of[node][0].zone for node in nodes]


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
class StepCounts:
    """How many steps of a size are played: some that no row tells of, then those that count."""

    warm_up: int
    counted: int


@dataclass(frozen=True)
class _Data:
    """The data of the ranks, and the directory that it is in."""

    files: tempfile.TemporaryDirectory[str]
    dataset: Dataset


class CollectiveJob(SteppedJob):
    """A job that repeats a collective over ``ranks``. ``addresses_of`` gives a node's addresses on the fabric."""

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
        timeout_s = step_timeout_s(config, planned.ideal_step_s)
        limits = StepLimits(planned.title, planned.ideal_step_s, timeout_s, config.stall_timeout)
        super().__init__(stage, planned.level, name or planned.level.label, ranks, limits)
        self._planned = planned
        self._config = config
        self._addresses_of = addresses_of
        self._data: _Data | None = None
        self._shape: StepShape | None = None

    def _prepare(self) -> None:
        files = tempfile.TemporaryDirectory(prefix=f"{self.level.label}-")
        config, planned = self._config, self._planned
        elements = config.elements_of(config.size)
        shape = DatasetShape(len(self.ranks), planned.buffers_per_rank, elements, config.dtype)
        dataset = Dataset.write(Path(files.name), shape, self._stage.seed, planned.schedule.longest_piece)
        guest_calls.hand_out(*dataset.files)
        self._data = _Data(files, dataset)

    def _ranks_to_start(self) -> StartedRanks:
        starts = {rank: self._start_of(rank) for rank in range(len(self.ranks))}
        return StartedRanks(run_rank, starts, self._config.ranks_per_process)

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

    def run_sizes(self, sizes: Sequence[int], counts: StepCounts, phase: str = "", in_place: bool = False) -> Records:
        """Carry out steps of several sizes in bytes, none larger than the config's, and return the rows of all but
        those that warm up. ``in_place``: a result takes the place of its input. Raises TrafficError as :meth:`halt`."""
        if in_place and (not self._planned.collective.in_place or self._planned.buffers_per_rank > 1):
            raise TrafficError(f"{self._planned.title}: {self._planned.collective.name} has no result in place here")
        self._begin(phase)
        try:
            for size in sizes:
                self._shape = StepShape(self._config.elements_of(size), in_place)
                for _ in range(counts.warm_up):
                    self._order_step()
                for _ in range(counts.counted):
                    self._step()
        finally:
            self._shape = None
        return self._finish()

    def _order_of(self, number: int, warms_up: bool) -> StepOrder:
        return ShapedStepOrder(number, warms_up, self._shape)

    def _step_records(self, phase: str, done: Sequence[StepDone]) -> Records:
        if self._planned.collective.synchronises:
            self._verify_synchronised(done)
        of_job = {"phase": phase, "service_level": self.level.label}
        common = {**of_job, "step": done[0].step}
        step = {
            **of_job,
            "collective": self._planned.collective.name,
            "step": done[0].step,
            "ranks": self._counted_ranks,
            "size_bytes": self._size_bytes,
            "started_s": min(message.started for message in done),
            "ended_s": max(message.ended for message in done),
        }
        ranks = [
            {**common, "host": node.name, "started_s": message.started, "ended_s": message.ended}
            for node, message in zip(self.ranks, done, strict=True)
        ]
        return Records(steps=[step], rank_steps=ranks)

    @property
    def _counted_ranks(self) -> int:
        """How many ranks nccl-tests would count: GPUs, where a node with an inside adds up what its own have."""
        per_node = self._planned.buffers_per_rank if self._planned.node_of is not None else 1
        return len(self.ranks) * per_node

    @property
    def _size_bytes(self) -> int:
        """The size of a step."""
        if self._shape is None:
            return self._config.size
        return self._shape.elements * self._config.dtype.size_bytes

    def _verify_synchronised(self, done: Sequence[StepDone]) -> None:
        """Raise TrafficError if a rank ended the step before another began it."""
        last = max(range(len(done)), key=lambda rank: done[rank].started)
        first = min(range(len(done)), key=lambda rank: done[rank].ended)
        if done[first].ended < done[last].started:
            raise TrafficError(
                f"{self._planned.title}: step {done[0].step}: rank {first} ended the {self._planned.collective.name} "
                f"{format_time(done[last].started - done[first].ended)} before rank {last} began it"
            )

    def _remove(self) -> None:
        if self._data is not None:
            self._data.files.cleanup()
