"""Graphs of work as jobs: their config, and the run's side, which places ranks, makes data and orders steps.

Ranks are programs (:mod:`traffic.work.player.rank`). A step is the whole graph, played once.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from fabric.config import SizeBytes, TimeS
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.inside import cpu_of
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.world.programs import guest_calls
from traffic.collectives.dataset import Dataset, DatasetShape
from traffic.collectives.elements import Dtype
from traffic.collectives.gpu_copies import NodeParts
from traffic.collectives.hfreduce import HFReduceConfig, node_parts
from traffic.collectives.node_allreduce import NodeAllreduce
from traffic.collectives.operations.all_to_all_v import Counts
from traffic.collectives.orders import RankListening
from traffic.collectives.schedule import DEFAULT_SLOTS
from traffic.job import Records, Stage
from traffic.program_group import RanksTogether
from traffic.stepped_job import StartedRanks, StepLimits, SteppedJob
from traffic.work.checks import require_playable
from traffic.work.files import (
    FileAccess,
    FilesConfig,
    FileServices,
    file_faults,
    hosts_of,
    ranks_with_files,
    sizes_of,
)
from traffic.work.graph import WorkGraph
from traffic.work.loading import load_graph
from traffic.work.operations import ANY, MOST_FLOPS_PER_S, CollectiveCall, Operation, Receive, Send
from traffic.work.placement import Placement, addresses_of, placed, ranks_per_node, relays, unknown_places
from traffic.work.player.communicator import DataKey, SharedDataset
from traffic.work.player.loop import Patience
from traffic.work.player.orders import PlayDone, Reach, Recording, WorkArguments, WorkOfRank, WorkWiring
from traffic.work.player.rank import run_work_rank
from traffic.work.schedules import RankPlaces, ScheduleChoice, known_algorithms, without_counts
from traffic.work.volumes import Pair, computed_s, sent_between
from traffic.work.warm_up import warm_up_of
from traffic.work.words import described

BASE_STEP_TIMEOUT_S = 60.0
"""What a step may take beyond its share of the network: link cuts and TCP's retransmission timeouts."""
IDEAL_STEPS_TIMEOUT = 20
WHEN_RECEIVED = "when_received"
MOST_TAGS = 1024
"""Of messages from one rank to another, if those of each have a connection of their own."""
MOST_OPERATIONS = 20_000_000
"""Of all ranks and steps in a row: more would not fit into memory."""
MOST_RECORDED = 2_000_000
"""Rows of operations that a phase may have: some 200 MB in a result's making."""


def _path(value: str) -> str:
    """Return an absolute path: the run may play elsewhere."""
    return str(Path(value).absolute())


def _known(algorithms: dict[str, str]) -> dict[str, str]:
    known = known_algorithms()
    for collective, algorithm in algorithms.items():
        if collective not in known:
            raise ValueError(f"{collective!r} is not a collective; use one of {', '.join(known)}")
        if algorithm not in known[collective]:
            raise ValueError(
                f"{algorithm!r} is not an algorithm of {collective}; use one of {', '.join(known[collective])}"
            )
    return algorithms


class PlacedRanks(RanksTogether):
    """Which ranks are where."""

    ranks_per_node: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description=(
            "Ranks on each node. Without it one, or, of nodes with an inside, one per GPU. Ranks of one node that is a "
            "point talk to each other in no time."
        ),
    )
    placement: Annotated[Placement, Field(strict=False)] | Annotated[list[str], Field(max_length=65_536)] = Field(
        default=Placement.PACKED,
        description=(
            "Which rank is where: ranks fill a node after the other (packed), go from leaf to leaf (spread), are dealt "
            "at random, or are where a list says, a name for each rank."
        ),
    )
    placement_seed: Annotated[int, Field(ge=0, le=2**31)] = Field(default=1, description="Seed of a random placement.")


class PlayConfig(PlacedRanks):
    """How a graph is played, whichever it is."""

    slice: Annotated[SizeBytes, Field(ge=1024, le=2**26)] = Field(
        default=128 * 1024,
        description="Size of the pieces in which messages and collectives travel. Smaller costs more per byte.",
    )
    slots: Annotated[int, Field(ge=2, le=4096)] = Field(
        default=DEFAULT_SLOTS,
        description="Pieces of a collective that a rank holds between taking them in and sending them on.",
    )
    algorithms: Annotated[dict[str, str], Field(max_length=64), AfterValidator(_known)] = Field(
        default_factory=dict,
        description="Algorithm of each collective, for calls that name none, e.g. `{allreduce: tree}`.",
    )
    step_timeout: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description="Longest time that a step may take before the run fails. Without it, derived from the graph.",
    )
    stall_timeout: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None,
        description=(
            "A rank without a byte for this long, while it computes nothing, fails its job, which begins again from "
            "that step with new connections; longer than a step takes. Without it, the run ends."
        ),
    )
    files: FilesConfig = Field(
        default=FilesConfig(), description="Storage of the files that the graph reads and writes, if it has any."
    )
    reads: Literal["at_once", "when_received"] = Field(
        default="at_once",
        description=(
            "When ranks take what comes: at any time, or once its receive has started, as programs read; then TCP "
            "holds the sender back, and messages of each tag have a connection of their own, as those of recordings do."
        ),
    )
    steps_in_a_row: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1,
        description=(
            "Steps that ranks play one after the other, each rank as soon as its own part of the step before has "
            "ended. After this many steps, by default after each, all ranks wait for each other."
        ),
    )
    recorded_steps: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=0, description="Number of first steps of each phase whose operations are rows."
    )
    recorded_ranks: Annotated[list[Annotated[int, Field(ge=0, le=65_535)]], Field(max_length=65_536)] | None = Field(
        default=None, description="Ranks whose operations are rows. Without it, all."
    )

    def loaded(self) -> WorkGraph:
        """Return the graph, with durations. Raises ConfigError if there is none, or it cannot be played to its end."""
        raise ConfigError("work", ["graph: is missing; give the job a graph or name its file"])


class WorkConfig(PlayConfig):
    """A graph of work, played again and again."""

    graph: Annotated[str, Field(min_length=1), AfterValidator(_path)] = Field(
        description="Path of the graph: a file of JSON lines, or of another format that is known."
    )
    flops_per_s: Annotated[float, Field(gt=0, le=MOST_FLOPS_PER_S)] | None = Field(
        default=None, description="FLOP/s of a rank, for operations whose graph gives FLOP and no time."
    )

    def loaded(self) -> WorkGraph:
        """Return the graph, with durations. Raises ConfigError if it cannot be read, or played to its end."""
        path = Path(self.graph)
        load_graph(path)  # Which says what is wrong with a path.
        return _playable(path, path.stat().st_mtime_ns, self.flops_per_s)


@lru_cache(maxsize=4)
def _playable(path: Path, _: int, flops_per_s: float | None) -> WorkGraph:
    """Return the graph of a file, of the time at which it was changed, with durations: several ask for it."""
    graph = load_graph(path)
    timed = graph if flops_per_s is None else graph.timed(flops_per_s)
    require_playable(timed)
    return timed


def work_faults(config: PlayConfig, fabric: Fabric, key: str = "graph") -> list[str]:
    """Return what of a config cannot be played on any fabric. ``key``: that of its graph, which is in front of the
    graph's faults; empty: it has none, and names what the graph is made of by itself."""
    before = f"{key}: " if key else ""
    try:
        graph = config.loaded()
    except ConfigError as error:  # Of one of several files, perhaps.
        return [f"{before}{error.source}: {fault}" for fault in error.faults]
    try:
        _require_few_rows(graph, config)
    except ConfigError as error:
        return [f"{before}{fault}" for fault in error.faults]
    if many := _too_many_in_a_row(graph, config.steps_in_a_row):
        return [many]
    if config.reads == WHEN_RECEIVED and (fault := _fault_of_tags(graph)) is not None:
        return [fault]
    faults = [f"{before}{fault}" for fault in file_faults(graph, config.files.chunk_size)]
    if sizes_of(graph) and not fabric.storages:
        faults.append(f"{before}has files, and {fabric.name} has no storage nodes; give it some (topology.storage)")
    if not isinstance(config.placement, Placement):
        faults += unknown_places(fabric, config.placement, graph.ranks)
    return faults


def _fault_of_tags(graph: WorkGraph) -> str | None:
    """Return why messages of each tag cannot have a connection of their own; None if they can."""
    tags: dict[Pair, set[int]] = {}
    for rank, place, one in graph.all_operations():
        if isinstance(one, Receive) and ANY in (one.peer, one.tag):
            what = "is decided by who comes first, so that no connection is its own"
            return f"reads: when_received: {described(rank, place, one)} {what}; use at_once"
        if isinstance(one, Send):
            tags.setdefault((rank, one.peer), set()).add(one.tag)
    for (source, target), own in tags.items():
        if len(own) > MOST_TAGS:
            what = f"messages from rank {source} to {target} have {len(own):,} tags, each with a connection of its own"
            return f"reads: when_received: {what}, and {MOST_TAGS:,} is the most; use at_once"
    return None


def _require_few_rows(graph: WorkGraph, config: PlayConfig) -> None:
    ranks = range(graph.ranks) if config.recorded_ranks is None else config.recorded_ranks
    if unknown := [rank for rank in ranks if rank >= graph.ranks]:
        raise ConfigError(graph.name, [f"recorded_ranks: {unknown[0]}: ranks are 0 to {graph.ranks - 1}"])
    rows = config.recorded_steps * sum(len(graph.operations[rank]) for rank in ranks)
    if rows > MOST_RECORDED:
        raise ConfigError(
            graph.name,
            [f"recorded_steps: {rows:,} rows of operations; at most {MOST_RECORDED:,}, so lower it or recorded_ranks"],
        )


def schedule_choice(config: PlayConfig, fabric: Fabric, ranks: Sequence[NodeId]) -> ScheduleChoice:
    """Return what schedules of collectives are made by, over ranks that are there."""
    numbers = {host: number for number, host in enumerate(dict.fromkeys(rank.host for rank in ranks))}
    nodes = tuple(numbers[rank.host] for rank in ranks)
    zones = tuple(fabric.nics_of[rank.host][0].zone for rank in ranks)
    gpus = 0 if fabric.inside is None else fabric.inside.gpus
    return ScheduleChoice(config.slice, RankPlaces(nodes, zones), config.slots, config.algorithms, gpus)


@dataclass(frozen=True)
class _Data:
    """The data of collectives, and the directory that it is in."""

    files: tempfile.TemporaryDirectory[str]
    sets: dict[DataKey, Dataset]


@dataclass
class _Storage:
    """The services of a graph's files, and the ranks that have clients: each that is started has a number of its own,
    so that services take no write for an earlier one's."""

    services: FileServices
    ranks: frozenset[int]
    started: int = 0

    def access(self, rank: int, places: Sequence[NodeId]) -> FileAccess | None:
        """Return what the client of a rank needs to know that is started now; None if it has none."""
        if rank not in self.ranks:
            return None
        self.started += 1
        return self.services.access(places[rank].host, self.started)


class WorkJob(SteppedJob):
    """A job that plays a graph step after step, on ``nodes``. ``graph``: what is played; without it, what the config
    names. Raises ConfigError for a graph that it cannot play."""

    def __init__(
        self,
        stage: Stage,
        config: PlayConfig,
        nodes: Sequence[NodeId],
        *,
        level: ServiceLevel,
        name: str,
        graph: WorkGraph | None = None,
    ) -> None:
        self._config = config
        self.graph = config.loaded() if graph is None else graph
        in_a_row = _in_a_row(self.graph, config.steps_in_a_row)
        if graph is not None or config.steps_in_a_row > 1:
            require_playable(in_a_row)
        self._in_a_row = in_a_row
        if config.reads == WHEN_RECEIVED and (fault := _fault_of_tags(self.graph)) is not None:
            raise ConfigError(f"graph {self.graph.name}", [fault])
        if faults := list(file_faults(self.graph, config.files.chunk_size)):
            raise ConfigError(f"graph {self.graph.name}", faults)
        fabric = stage.fabric
        ranks = places_of(config, fabric, nodes, self.graph.ranks)
        self._choice = schedule_choice(config, fabric, ranks)
        self._sent = sent_between(self.graph, self._choice)
        self._groups = _groups_called(self.graph)
        self._warm_up = warm_up_of(self.graph, by_tag=config.reads == WHEN_RECEIVED)
        self._counts = _counts_of(in_a_row)
        self._address_of = stage.addresses_on(sorted({rank.host for rank in ranks}))
        self._data: _Data | None = None
        self._storage = self._storage_on(stage, ranks)
        ideal_s = config.steps_in_a_row * _ideal_step_s(self.graph, self._sent, fabric.nic_rate_bps)
        timeout_s = config.step_timeout or BASE_STEP_TIMEOUT_S + IDEAL_STEPS_TIMEOUT * ideal_s
        super().__init__(stage, level, name, ranks, StepLimits(name, ideal_s, timeout_s, config.stall_timeout))

    def _storage_on(self, stage: Stage, ranks: Sequence[NodeId]) -> _Storage | None:
        """Return the services of the graph's files; None if it has none."""
        with_files = ranks_with_files(self.graph)
        if not with_files:
            return None
        clients, sizes = hosts_of(with_files, ranks), sizes_of(self.graph)
        services = FileServices(stage, self._config.files.storage(), clients, sizes=sizes)
        return _Storage(services, frozenset(with_files))

    def _prepare(self) -> None:
        if self._storage is not None:
            self._storage.services.start()
        files = tempfile.TemporaryDirectory(prefix=f"{self.name}-")
        sets: dict[DataKey, Dataset] = {}
        for key, (elements, piece) in _data_needed(self.graph, self._choice).items():
            ranks, dtype = key
            folder = Path(files.name) / f"{ranks}-{dtype}"
            folder.mkdir()
            shape = DatasetShape(ranks, 1, elements, Dtype(dtype))
            sets[key] = SharedDataset.write(folder, shape, self._stage.seed, piece)
            guest_calls.hand_out(*sets[key].files)
        self._data = _Data(files, sets)

    def _ranks_to_start(self) -> StartedRanks:
        senders: dict[int, set[int]] = {rank: set() for rank in range(self.graph.ranks)}
        for source, _, one in self.graph.all_operations():
            if isinstance(one, Send):
                senders[one.peer].add(source)
        starts = {
            rank: (f"{self.name} rank {rank}", node, self._arguments(rank, tuple(sorted(senders[rank]))))
            for rank, node in enumerate(self.ranks)
        }
        return StartedRanks(run_work_rank, starts, self._config.ranks_per_process)

    def _arguments(self, rank: int, senders: tuple[int, ...]) -> WorkArguments:
        assert self._data is not None, "start() has written it"
        recorded = self._config.recorded_ranks
        is_recorded = recorded is None or rank in recorded
        groups = {name: one for name, one in self._groups.items() if rank in one[1]}
        work = WorkOfRank(
            self._in_a_row.operations[rank],
            self._config.steps_in_a_row,
            self._warm_up.operations[rank],
            groups,
            self._counts.get(rank, {}),
            senders,
            self._config.reads == WHEN_RECEIVED,
        )
        peers = {other for _, members in groups.values() for other in members}
        peers |= {one.peer for one in work.operations if isinstance(one, Send)}
        needed = {(len(members), one.dtype) for _, members in groups.values() for one in _calls(work.operations)}
        return WorkArguments(
            job=self.name,
            rank=rank,
            hosts=tuple(str(node) for node in self.ranks),
            reach=Reach(
                self._addresses_of(rank),
                relays(self._stage.fabric, rank, self.ranks, peers),
                self._node_of(rank) if self._adds_in_nodes else None,
            ),
            transport=self._stage.transport(self.level),
            work=work,
            choice=self._choice,
            data={key: one for key, one in self._data.sets.items() if key in needed},
            patience=Patience(self.step_timeout_s, self._config.stall_timeout or self.step_timeout_s),
            recording=Recording(self._config.recorded_steps if is_recorded else 0),
            files=None if self._storage is None else self._storage.access(rank, self.ranks),
        )

    def _addresses_of(self, rank: int) -> tuple[str, ...]:
        """Return a rank's addresses, the last for ranks of its own node."""
        place = self.ranks[rank]
        if not place.is_inside:
            return (self._address_of(place),)
        return tuple(map(self._stage.address_of, self._addresses_inside(place)))

    def _addresses_inside(self, place: NodeId) -> tuple[str, ...]:
        found = addresses_of(self._stage.fabric, place)
        return (*found, self._stage.fabric.address_inside(cpu_of(place.host))) if self._adds_in_nodes else found

    def _node_of(self, rank: int) -> NodeParts:
        return node_parts(self._stage.fabric, self.ranks[rank].host, HFReduceConfig())

    @cached_property
    def _adds_in_nodes(self) -> bool:
        """Whether CPUs of nodes add up for their ranks, in some collective."""
        if not self._choice.gpus:
            return False
        calls = {
            (one.group, one.algorithm): one
            for operations in self.graph.operations
            for one in _calls(operations)
            if one.collective == "allreduce" and len(self.graph.members(one.group)) > 1
        }
        planned = (self._choice.planned(one, self.graph.members(one.group)) for one in calls.values())
        return any(isinstance(one.schedule, NodeAllreduce) for one in planned)

    def _wiring(self, listening: Sequence[RankListening]) -> WorkWiring:
        return WorkWiring(tuple(one.endpoints for one in listening))

    def _step_records(self, phase: str, done: Sequence[PlayDone]) -> Records:
        sent: Counter[int] = Counter()
        for (source, _), size_bytes in self._sent.items():
            sent[source] += size_bytes
        rows = [
            {
                "phase": phase,
                "service_level": self.level.label,
                "host": str(self.ranks[rank]),
                "rank": rank,
                "step": one.step * self._config.steps_in_a_row + number,
                "play": one.step,
                "sent_bytes": sent[rank],
                "started_s": started,
                "ended_s": ended,
            }
            for rank, one in enumerate(done)
            for number, (started, ended) in enumerate(one.spans)
        ]
        return Records(work_steps=rows)

    def _begin(self, phase: str) -> None:
        super()._begin(phase)
        if self._storage is not None:
            self._storage.services.play(phase)

    def _finish(self) -> Records:
        records = super()._finish()
        if self._storage is not None:
            records.extend(self._storage.services.halt())
        return records

    def _remove(self) -> None:
        if self._storage is not None:
            self._storage.services.close()
        if self._data is not None:
            self._data.files.cleanup()


def _in_a_row(graph: WorkGraph, steps: int) -> WorkGraph:
    """Return so many steps of a graph. Raises ConfigError if they do not fit into memory."""
    if fault := _too_many_in_a_row(graph, steps):
        raise ConfigError(f"graph {graph.name}", [fault])
    return graph.repeated(steps) if steps > 1 else graph


def _too_many_in_a_row(graph: WorkGraph, steps: int) -> str:
    """Return that so many steps do not fit into memory; nothing if they do. It does not make them to find out."""
    many = steps * sum(map(len, graph.operations))
    if steps == 1 or many <= MOST_OPERATIONS:
        return ""
    return f"steps_in_a_row: {steps} steps are {many:,} operations, and {MOST_OPERATIONS:,} is the most; lower it"


def places_of(config: PlayConfig, fabric: Fabric, nodes: Sequence[NodeId], ranks: int) -> tuple[NodeId, ...]:
    """Return where each rank of a job is. Raises ConfigError."""
    per_node = ranks_per_node(fabric, config.ranks_per_node)
    return placed(fabric, nodes, ranks, per_node, config.placement, config.placement_seed)


def _groups_called(graph: WorkGraph) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return the number, from 1 on, and the ranks of each group that is called."""
    called = sorted({one.group for _, _, one in graph.all_operations() if isinstance(one, CollectiveCall)})
    return {name: (number, graph.members(name)) for number, name in enumerate(called, start=1)}


def _calls(operations: Sequence[Operation]) -> list[CollectiveCall]:
    return [one for one in operations if isinstance(one, CollectiveCall)]


def _counts_of(graph: WorkGraph) -> dict[int, dict[int, Counts]]:
    """Return, by rank and place, the elements from each rank to each of the all-to-all-v's that say what they send."""
    calls: dict[tuple[str, int], list[tuple[int, int, CollectiveCall]]] = {}
    numbers: Counter[tuple[str, int]] = Counter()
    for rank, place, one in graph.all_operations():
        if isinstance(one, CollectiveCall):
            if one.sent_bytes:
                calls.setdefault((one.group, numbers[one.group, rank]), []).append((rank, place, one))
            numbers[one.group, rank] += 1
    found: dict[int, dict[int, Counts]] = {}
    for (group, _), met in calls.items():
        members = graph.members(group)
        rows = sorted(met, key=lambda call: members.index(call[0]))
        counts = tuple(tuple(size // Dtype(one.dtype).size_bytes for size in one.sent_bytes) for _, _, one in rows)
        for rank, place, _ in met:
            found.setdefault(rank, {})[place] = counts
    return found


def _data_needed(graph: WorkGraph, choice: ScheduleChoice) -> dict[DataKey, tuple[int, int]]:
    """Return which data sets there must be: of how many elements, to be read in pieces of how many."""
    found: dict[DataKey, tuple[int, int]] = {}
    seen = set()
    for _, _, one in graph.all_operations():
        if not isinstance(one, CollectiveCall):
            continue
        members = graph.members(one.group)
        most_bytes = max(one.size_bytes, len(members) * max(one.sent_bytes, default=0))
        alike = (len(members), one.collective, most_bytes, one.algorithm, one.dtype)
        if len(members) > 1 and alike not in seen:
            seen.add(alike)
            schedule = choice.planned(without_counts(one), members).schedule
            elements, piece = found.get((len(members), one.dtype), (1, 1))
            longest = max(piece, schedule.longest_piece, choice.piece_bytes)
            most = max(elements, schedule.elements, most_bytes // Dtype(one.dtype).size_bytes)
            found[len(members), one.dtype] = (most, longest)
    return found


def _ideal_step_s(graph: WorkGraph, sent: Counter[Pair], nic_bps: float) -> float:
    """Return no less than what a step takes on an idle fabric, if nothing overlaps: for timeouts."""
    by_rank: Counter[int] = Counter()
    for (source, target), size_bytes in sent.items():
        by_rank[source] += size_bytes
        by_rank[target] += size_bytes
    return max((one + by_rank[rank] * 8 / nic_bps for rank, one in enumerate(computed_s(graph))), default=0.0)
