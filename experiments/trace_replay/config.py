"""The config of a replay of traces: which files, how many ranks, where they are."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fabric.config import SizeBytes, Strict, TimeS
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.world.engines import current_engine
from runs.config import QueueingConfig
from runs.job_config import Name
from runs.phase_lengths import PhaseLengths
from traffic.work.checks import require_playable
from traffic.work.formats.files import Sources, paths_named, read_sources
from traffic.work.formats.playing import work_of
from traffic.work.formats.recognise import read_traces
from traffic.work.formats.trace import Asked, Trace, TraceFile
from traffic.work.graph import WorkGraph
from traffic.work.operations import MOST_FLOPS_PER_S, Receive
from traffic.work.placement import nodes_needed, ranks_per_node
from traffic.work.volumes import busiest_s
from traffic.work.words import size_of

MOST_RANKS = 65_536
WANTED_SAMPLES = 200
"""Of a short replay: figures have so many points."""
_LEAST_PERIOD_S, _LEAST_IN_REAL_TIME_S = 10e-6, 0.01


def _absolute(value: str) -> str:
    """Return an absolute path: the run may play elsewhere."""
    return str(Path(value).absolute())


Rank = Annotated[int, Field(ge=0, le=10**6)]


class TraceConfig(Strict):
    """A trace, played as a job."""

    name: Name = Field(description="Name of the job, which distinguishes its rows.")
    files: list[Annotated[str, Field(min_length=1), AfterValidator(_absolute)]] = Field(
        default_factory=list,
        description="Paths of its files, one per rank or one for all; `fabric replay` writes them.",
    )
    text: str | None = Field(default=None, description="The trace itself, instead of files, in a format that is text.")
    ranks: Annotated[int, Field(ge=1, le=MOST_RANKS)] | None = Field(
        default=None,
        description="How many ranks play, where one rank's trace stands for all. Without it, what the trace says.",
    )
    groups: dict[str, list[Rank]] = Field(
        default_factory=dict, description="Ranks of the groups that the trace names, by their ids."
    )
    size: Annotated[SizeBytes, Field(gt=0)] | None = Field(
        default=None, description="Size of an algorithm's data (MSCCL), which has none of its own. Without it, 1 MiB."
    )
    start: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="When it begins, counted from the start of the phase."
    )

    def read(self) -> Trace:
        """Return the trace. Raises ConfigError."""
        asked = Asked(self.ranks, {name: tuple(ranks) for name, ranks in self.groups.items()}, self.size)
        if (self.text is None) == (not self.files):
            raise ConfigError(self.name, ["needs either files or text"])
        if self.text is not None:
            sources = [Sources(self.name, (TraceFile(self.name, self.text.encode()),))]
        else:
            sources = read_sources(paths_named(self.files))
        found = read_traces(sources, asked)
        if len(found) != 1:
            raise ConfigError(
                self.name, [f"files hold {len(found)} traces, and a job plays one; name the files of one"]
            )
        return found[0]


class Spot(str, Enum):
    """On which hosts ranks are: the next ones, from leaf to leaf, or any, by the run's seed."""

    PACKED = "packed"
    SPREAD = "spread"
    RANDOM = "random"


class TraceReplayConfig(QueueingConfig):
    """Traces that play together, and where their ranks are."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS, description="Queueing in which the traces play."
    )
    sample_period: Annotated[TimeS, Field(gt=0, le=0.05)] = Field(
        default=0.05,
        description=(
            "Longest time between two samples of every queue. Replays that are shorter by an estimate, busiest rank by "
            f"busiest rank, are sampled {WANTED_SAMPLES} times, in real time at most every 10 ms."
        ),
    )
    traces: Annotated[list[TraceConfig], Field(min_length=1, max_length=64)] = Field(
        description="The traces: each is a job with hosts of its own."
    )
    placement: Annotated[Spot, Field(strict=False)] | Annotated[list[str], Field(max_length=MOST_RANKS)] = Field(
        default=Spot.PACKED,
        description=(
            "On which hosts ranks are, trace after trace: the next ones (packed), dealt from leaf to leaf (spread), "
            "any (random), or the name of a host or GPU for each rank."
        ),
    )
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="Ranks on each node. Without it one, or, of nodes with an inside, one per GPU."
    )
    flops_per_s: Annotated[float, Field(gt=0, le=MOST_FLOPS_PER_S, strict=False)] | None = Field(
        default=None,
        description="FLOP/s of a rank, for operations whose trace gives FLOP and no time.",
    )
    time_scale: Annotated[float, Field(gt=0, le=1e9, strict=False)] | None = Field(
        default=None,
        description="Multiplies all computing. Without it, by how much slower the fabric is than what it stands for.",
    )
    steps: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="How often each trace is played, one time after the other."
    )
    reads: Literal["at_once", "when_received"] = Field(
        default="at_once",
        description=(
            "When ranks take what comes: at any time, or once its receive has started, as recorded programs read; then "
            "TCP holds the sender back, and messages of each tag have a connection of their own."
        ),
    )
    step_timeout: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, description="Longest time that a step may take. Without it, derived from the trace."
    )

    def sampled_on(self, fabric: Fabric) -> float:
        """Return the sample period, shorter for a short replay. Raises ConfigError."""
        least_s = _LEAST_PERIOD_S if current_engine().is_exact else _LEAST_IN_REAL_TIME_S
        lengths = [one.start + self.steps * least_step_s(graph, fabric) for one, _, graph in self.work(fabric)]
        return min(self.sampled_every_s, max(least_s, max(lengths) / WANTED_SAMPLES))

    def scale_on(self, fabric: Fabric) -> float:
        """Return by how much computing is multiplied."""
        return fabric.scale if self.time_scale is None else self.time_scale

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as the steps of the traces take."""
        return PhaseLengths(until="all steps are done")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        for name, count in Counter(one.name for one in self.traces).items():
            if count > 1:
                yield f"traces: {name}: {count} have this name, which distinguishes their rows; give each its own"
        try:
            traces = [one.read() for one in self.traces]
            for trace in traces:
                require_playable(work_of(trace, self.flops_per_s, self.scale_on(fabric)))
            self.places(fabric, [trace.ranks for trace in traces])
        except ConfigError as error:
            yield from (f"{error.source}: {fault}" for fault in error.faults)

    def work(self, fabric: Fabric) -> list[tuple[TraceConfig, Trace, WorkGraph]]:
        """Return what plays. Raises ConfigError."""
        traces = [(one, one.read()) for one in self.traces]
        return [(one, trace, work_of(trace, self.flops_per_s, self.scale_on(fabric))) for one, trace in traces]

    def places(self, fabric: Fabric, ranks: list[int]) -> list[tuple[tuple[NodeId, ...], list[str] | None]]:
        """Return the nodes of each trace, and the places of its ranks by name if the config says them. Raises
        ConfigError if there are not enough."""
        per_node = ranks_per_node(fabric, self.ranks_per_node)
        if not isinstance(self.placement, Spot):
            return _as_named(fabric, self.placement, ranks)
        nodes = iter(_in_order(fabric, self.placement, self.seed))
        wanted = [nodes_needed(count, per_node) for count in ranks]
        if sum(wanted) > len(fabric.computes):
            what = f"{sum(ranks):,} ranks, {per_node} per node, need {sum(wanted):,} compute nodes"
            have = f"{fabric.name} has {len(fabric.computes):,}"
            raise ConfigError("traces", [f"{what}, and {have}; use a larger topology, or raise ranks_per_node"])
        return [(tuple(next(nodes) for _ in range(count)), None) for count in wanted]


def least_step_s(graph: WorkGraph, fabric: Fabric) -> float:
    """Return no more than a step of a graph takes, roughly: the most that a rank computes on a stream, or sends or
    calls collectives of at the rate of a NIC."""
    sizes = (sum(size_of(one) for one in operations if not isinstance(one, Receive)) for operations in graph.operations)
    return max(*busiest_s(graph), *(size * 8 / fabric.nic_rate_bps for size in sizes), 0.0)


def _in_order(fabric: Fabric, spot: Spot, seed: int) -> list[NodeId]:
    nodes = list(fabric.computes)
    if spot is Spot.RANDOM:
        random.Random(seed).shuffle(nodes)
    if spot is not Spot.SPREAD:
        return nodes
    by_leaf: dict[NodeId, list[NodeId]] = {}
    for node in nodes:
        by_leaf.setdefault(fabric.leaf_of(fabric.nics_of[node][0]), []).append(node)
    longest = max(map(len, by_leaf.values()))
    return [of_leaf[turn] for turn in range(longest) for of_leaf in by_leaf.values() if turn < len(of_leaf)]


def _as_named(fabric: Fabric, names: list[str], ranks: list[int]) -> list[tuple[tuple[NodeId, ...], list[str] | None]]:
    if len(names) != sum(ranks):
        raise ConfigError("placement", [f"names {len(names):,} places for {sum(ranks):,} ranks; name one for each"])
    known = {str(node): node for node in fabric.computes}
    found: list[tuple[tuple[NodeId, ...], list[str] | None]] = []
    faults = []
    begin = 0
    for count in ranks:
        mine = names[begin : begin + count]
        begin += count
        hosts = dict.fromkeys(name.partition(".")[0] for name in mine)
        faults += [f"{name}: no compute node of {fabric.name}" for name in hosts if name not in known]
        found.append((tuple(known[name] for name in hosts if name in known), mine))
    if faults:
        raise ConfigError("placement", faults[:5])
    return found
