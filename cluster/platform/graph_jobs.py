"""Training graphs and collectives as jobs of users: their keys, and what of them cannot be.

A job's steps are those of a graph of work (:mod:`traffic.work`), which its ranks play
(:mod:`cluster.platform.graph_steps`); a collective is a graph of calls. What this makes of a config is the command that
ranks run, so that a scheduler, a journal or Slurm have nothing to know of graphs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from cluster.checkpoints.manager import DEVICE_TO_HOST_BPS
from cluster.platform.gang import LANE_BYTES
from cluster.platform.training_saves import ModelSize
from cluster.platform.training_steps import MOST_STEPS, MOST_VALUES
from fabric.config import SizeBytes, Strict, TimeS, checked, parse_yaml, read_yaml
from fabric.errors import ConfigError, TrafficError
from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_apart, format_size, parse_size_bytes
from traffic.collectives.elements import Dtype
from traffic.collectives.job import ElementsBytes, growing_sizes, piece_faults
from traffic.collectives.listing import DEFAULT_COLLECTIVE
from traffic.collectives.schedule import DEFAULT_SLOTS
from traffic.storage.config import OptionalRate
from traffic.work.checks import require_playable
from traffic.work.files import sizes_of
from traffic.work.graph import ALL_RANKS, RankWork, WorkGraph, graph_of
from traffic.work.job import PlayConfig, WorkConfig, places_of, schedule_choice, work_faults
from traffic.work.models.listing import is_path
from traffic.work.operations import CollectiveCall
from traffic.work.placement import Placement, nodes_needed, ranks_per_node
from traffic.work.schedules import HFREDUCE, known_algorithms
from traffic.work.training_job import PlayedTrainingConfig, training_faults
from traffic.work.volumes import sent_between

PROGRAM = "cluster.platform.graph_steps"
SAMPLES = 1024
"""Of a step's sum, divided among the nodes: as many as a graph's job may have."""
_LEAST_STATE, _MOST_STATE = 8 * LANE_BYTES, MOST_VALUES * LANE_BYTES
_OF_RUNS: Mapping[str, str] = MappingProxyType(
    {
        "ranks_per_process": "ranks of a node share a process",
        "files": "its steps read and write no files",
        "steps_in_a_row": "all ranks end each step together",
        "recorded_steps": "the platform has no rows of operations",
        "recorded_ranks": "the platform has no rows of operations",
        "stall_timeout": "`silent` says how long ranks wait",
        "goal": "the platform does not measure training",
        "played": "the platform plays whole steps",
    }
)
"""Keys of jobs that a run plays by itself, and why those of a platform have none."""


class ModelCheckpoint(Strict):
    """What a job's checkpoints have beside its vector: the state of a model, of which each node has an even part."""

    size: Annotated[SizeBytes, Field(ge=1024, le=1 << 40)] = Field(
        description=(
            "Bytes of all nodes together, such as 14 for each parameter (a weight of 2 B, three values of the "
            "optimizer of 4 B)."
        )
    )
    tensors: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=16, description="Tensors that it has, all of a size."
    )
    device_to_host: OptionalRate = Field(
        default=int(DEVICE_TO_HOST_BPS * 8),
        description=(
            "How fast a node's part comes from its GPUs, for which steps wait (27 GB/s by arXiv 2408.14158, IV-D); "
            "`off`: at once."
        ),
    )

    @model_validator(mode="after")
    def _has_values(self) -> ModelCheckpoint:
        if self.size < 2 * self.tensors:
            raise ValueError(f"size: {self.size} B are fewer than a value for each of {self.tensors} tensors; raise it")
        return self


class CheckpointKeys(Strict):
    """When a job's checkpoints are due, what they have, and where they are."""

    every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = Field(
        default=0, description="Steps from one checkpoint to the next; 0: not by steps."
    )
    every_time: Annotated[TimeS, Field(ge=0, le=86_400)] = Field(
        default=0.0, description="Time from one checkpoint to the next; 0: not by time."
    )
    synchronous: bool = Field(default=False, description="Whether steps wait until a checkpoint is complete.")
    state: Annotated[SizeBytes, Field(ge=_LEAST_STATE, le=_MOST_STATE)] = Field(
        default=512,
        description=(
            "Size of what a checkpoint has: a vector that all nodes add up after each step, by which a step is known "
            "to be made once; multiples of 8 bytes."
        ),
    )
    checkpoint: ModelCheckpoint | None = Field(
        default=None,
        description="What a checkpoint has beside `state`, in the file system of `files`. Without it, nothing.",
    )
    files: Annotated[str, Field(max_length=100)] = Field(
        default="", description="Job of kind `files` whose file system has the checkpoints. Without it, a folder each."
    )
    path: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="Directory there, or the folder, of the checkpoints. Without it, one of the job's own."
    )
    keep: Annotated[int, Field(ge=1, le=1000)] = Field(default=2, description="How many checkpoints are kept.")

    @field_validator("state")
    @classmethod
    def _of_values(cls, size_bytes: int) -> int:
        if size_bytes % LANE_BYTES:
            raise ValueError(f"{size_bytes} bytes are not whole values; use a multiple of {LANE_BYTES}")
        return size_bytes

    @model_validator(mode="after")
    def _has_storage(self) -> CheckpointKeys:
        if self.checkpoint is not None and not self.files:
            raise ValueError(
                "checkpoint: the parts of all nodes need storage that all of them reach, and files names none; name a "
                "job of kind files, or leave checkpoint out"
            )
        return self

    @property
    def model(self) -> ModelSize | None:
        """What a checkpoint has beside the vector."""
        if self.checkpoint is None:
            return None
        rate_bps = self.checkpoint.device_to_host
        return ModelSize(self.checkpoint.size, self.checkpoint.tensors, None if rate_bps is None else rate_bps / 8)

    @property
    def values(self) -> int:
        """Values of the vector."""
        return self.state // LANE_BYTES


class SteppedGraph(CheckpointKeys):
    """How often a job plays its step, and its checkpoints."""

    kind: ClassVar[str]

    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = Field(
        description=(
            "Steps of the whole job. One that is under way when the job is to suspend is ended first, and must be "
            "within `timers.save`."
        )
    )
    gather: Annotated[TimeS, Field(ge=0.1, le=86_400)] = Field(
        default=60.0, description="Within how long all nodes must be there, or the job begins again."
    )
    silent: Annotated[TimeS, Field(ge=0.1, le=86_400)] = Field(
        default=30.0,
        description="How long nothing may come from a rank that is waited for, beyond a step's time on an idle fabric.",
    )
    service_level: Literal["nccl", "hfreduce"] | None = Field(
        default=None, description="Service level of its data. Without it nccl, of a collective by hfreduce that."
    )

    @property
    def level(self) -> ServiceLevel:
        """The service level of its data."""
        label = self.service_level or self._usual_level()
        return next(level for level in SERVICE_LEVELS if level.label == label)

    def _usual_level(self) -> str:
        return ServiceLevel.NCCL.label

    @property
    def title(self) -> str:
        """What it is called without a name of its own."""
        raise NotImplementedError

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that its nodes read."""
        return ()

    @property
    def command(self) -> tuple[str, ...]:
        """What each of its nodes runs."""
        keys = json.loads(self.model_dump_json(exclude_defaults=True, by_alias=True))
        return ("python3", "-m", PROGRAM, json.dumps({self.kind: keys}, separators=(",", ":")))

    @property
    def play(self) -> PlayConfig:
        """How its step is played."""
        raise NotImplementedError

    def graph_on(self, fabric: Fabric, nodes: int) -> WorkGraph:
        """Return its step on so many nodes. Raises ConfigError if it cannot be played."""
        raise NotImplementedError

    def nodes_on(self, fabric: Fabric) -> int | None:
        """Return how many nodes it takes; None: any number. Raises ConfigError if it cannot be played."""
        raise NotImplementedError

    def faults(self, fabric: Fabric, nodes: int) -> Iterator[str]:
        """Yield what of it cannot be on so many nodes of a fabric, whichever these are."""
        own = list(self._own_faults(fabric))
        yield from own
        if own:
            return
        try:
            needed = self.nodes_on(fabric)
            if needed is not None and needed != nodes:
                yield self._wrong_size(fabric, nodes, needed)
                return
            graph = self.graph_on(fabric, nodes)
            if sizes_of(graph):
                yield "its steps read and write files, and a platform's graphs have none; leave those operations out"
            elif nodes <= len(fabric.computes):
                # Whether its collectives can be carried out over so many ranks; on the first nodes as on any.
                ranks = places_of(self.play, fabric, fabric.computes[:nodes], graph.ranks)
                sent_between(graph, schedule_choice(self.play, fabric, ranks))
        except ConfigError as error:
            yield from (f"{error.source}: {fault}" for fault in error.faults)
        except TrafficError as error:
            yield str(error)

    def _own_faults(self, fabric: Fabric) -> Iterator[str]:
        raise NotImplementedError

    def _wrong_size(self, fabric: Fabric, nodes: int, needed: int) -> str:
        ranks, on_node = self.graph_on(fabric, needed).ranks, ranks_per_node(fabric, self.play.ranks_per_node)
        return (
            f"the job asks for {nodes} nodes, and {ranks} ranks, {on_node} on a node, take {needed}; give nodes: "
            f"{needed}, or change the layout or ranks_per_node"
        )


class GraphConfig(SteppedGraph):
    """A training graph, or another graph of work, as a job."""

    kind: ClassVar[str] = "graph"

    training: PlayedTrainingConfig | None = Field(
        default=None, description="A model and its layout, by the keys of jobs of kind `training`."
    )
    work: WorkConfig | None = Field(
        default=None, description="A graph in a file, such as a trace or GOAL, by the keys of jobs of kind `work`."
    )

    @model_validator(mode="after")
    def _verify(self) -> GraphConfig:
        if (self.training is None) == (self.work is None):
            given = "both are given" if self.work else "neither is given"
            raise ValueError(f"training, work: {given}; give one of them: a model with its layout, or a graph's file")
        key, given_play = ("work", self.work) if self.work else ("training", self.training)
        assert given_play is not None, "one of both is"
        fields = type(given_play).model_fields
        for name, why in _OF_RUNS.items():
            if name in fields and getattr(given_play, name) != fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{key}.{name}: is for jobs that a run plays by itself: {why}; leave it out")
        if not isinstance(given_play.placement, Placement):
            raise ValueError(f"{key}.placement: names nodes, and the scheduler chooses them; use packed or spread")
        return self

    @property
    def title(self) -> str:
        """The model, or the file."""
        return Path(self._source).stem

    @property
    def paths(self) -> tuple[Path, ...]:
        """The graph's file, or the model's."""
        return (Path(self._source),) if self.work is not None or is_path(self._source) else ()

    @property
    def _source(self) -> str:
        if self.training is not None:
            return self.training.model
        assert self.work is not None
        return self.work.graph

    @property
    def play(self) -> PlayConfig:
        """How its step is played."""
        if self.training is not None:
            return self.training.placed_by_node()
        assert self.work is not None
        return self.work

    def graph_on(self, fabric: Fabric, nodes: int) -> WorkGraph:
        """Return its step. Raises ConfigError."""
        return self.play.loaded()

    def nodes_on(self, fabric: Fabric) -> int:
        """Return how many nodes its ranks take. Raises ConfigError."""
        return nodes_needed(self.play.loaded().ranks, ranks_per_node(fabric, self.play.ranks_per_node))

    def _own_faults(self, fabric: Fabric) -> Iterator[str]:
        if self.training is not None:
            yield from (f"training.{fault}" for fault in training_faults(self.training, fabric))
        elif self.work is not None:
            yield from (f"work.{fault}" for fault in work_faults(self.work, fabric))


class CallsConfig(SteppedGraph):
    """A collective as a job: a step is one of each size, as ``fabric run collectives`` plays them."""

    kind: ClassVar[str] = "collective"

    collective: Annotated[str, Field(min_length=1, max_length=40)] = Field(
        default=DEFAULT_COLLECTIVE, description="The collective, by its name."
    )
    algorithm: Annotated[str, Field(min_length=1, max_length=40)] | None = Field(
        default=None, description="Its algorithm; `hfreduce` is one of an allreduce. Without it, the default."
    )
    dtype: Annotated[Dtype, Field(strict=False)] = Field(
        default=Dtype.FP32, description="Type of the elements, in flight and where they are added."
    )
    begin: ElementsBytes = Field(default=2 * 2**20, description="The smallest size of a step (nccl-tests' -b).")
    end: ElementsBytes | None = Field(
        default=None, description="No size is larger (-e). Without it, there is one size, `begin`."
    )
    factor: Annotated[int, Field(ge=2, le=2**20)] = Field(
        default=8, description="By how much each size is larger than the one before (-f)."
    )
    slice: Annotated[SizeBytes, Field(ge=1024, le=2**26)] = Field(
        default=128 * 1024, description="Size of the pieces in which it travels."
    )
    slots: Annotated[int, Field(ge=2, le=4096)] = Field(
        default=DEFAULT_SLOTS, description="Pieces that a rank holds between taking them in and sending them on."
    )
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="Ranks on each node. Without it one, or, of nodes with an inside, one per GPU."
    )

    @model_validator(mode="after")
    def _verify(self) -> CallsConfig:
        known = known_algorithms()
        if self.collective not in known:
            raise ValueError(f"collective: {self.collective!r} is not a collective; use one of {', '.join(known)}")
        if self.algorithm is not None and self.algorithm not in known[self.collective]:
            names = ", ".join(known[self.collective])
            raise ValueError(
                f"algorithm: {self.algorithm!r} is not an algorithm of {self.collective}; use one of {names}"
            )
        if self.end is not None and self.end < self.begin:
            end, begin = format_apart(self.end, self.begin, format_size)
            raise ValueError(f"end: {end} is less than begin, {begin}; raise it")
        for fault in piece_faults("slice", min(self.slice, self.sizes[-1]), self.sizes[-1], "end"):
            raise ValueError(fault)
        return self

    @property
    def title(self) -> str:
        """The collective."""
        return self.collective

    @property
    def sizes(self) -> list[int]:
        """The sizes in bytes."""
        return growing_sizes(self.begin, self.begin if self.end is None else self.end, self.factor)

    def _usual_level(self) -> str:
        return (ServiceLevel.HFREDUCE if self.algorithm == HFREDUCE else ServiceLevel.NCCL).label

    @property
    def play(self) -> PlayConfig:
        """How its step is played."""
        return PlayConfig(ranks_per_node=self.ranks_per_node, slice=self.slice, slots=self.slots)

    def graph_on(self, fabric: Fabric, nodes: int) -> WorkGraph:
        """Return calls of all sizes, one after the other, by all ranks. Raises ConfigError."""
        works = [RankWork() for _ in range(nodes * ranks_per_node(fabric, self.ranks_per_node))]
        if len(works) < 2:
            raise ConfigError("nodes", [f"{nodes} with {len(works)} ranks; a collective is between 2 ranks at least"])
        for work in works:
            for size_bytes in self.sizes:
                work.add(
                    CollectiveCall(
                        collective=self.collective,
                        size_bytes=size_bytes,
                        group=ALL_RANKS,
                        algorithm=self.algorithm,
                        dtype=self.dtype.value,
                        stream="collectives",
                    )
                )
        graph = graph_of(self.collective, works)
        require_playable(graph)
        return graph

    def nodes_on(self, fabric: Fabric) -> None:
        """Return None: it is of any number of nodes."""

    def _own_faults(self, fabric: Fabric) -> Iterator[str]:
        yield from ()


class GraphKeys(Strict):
    """What a job is in place of a program."""

    graph: GraphConfig | None = Field(
        default=None,
        description=(
            "A training graph or a graph of work that its nodes play, step after step, with checkpoints, in place of "
            "`command`."
        ),
    )
    collective: CallsConfig | None = Field(
        default=None, description="A collective that its nodes carry out, likewise, in place of `command`."
    )

    @property
    def stepped(self) -> SteppedGraph | None:
        """Whichever is given."""
        return self.graph if self.graph is not None else self.collective


class GraphFile(GraphKeys):
    """A file of a graph's or a collective's job."""

    @model_validator(mode="after")
    def _is_one(self) -> GraphFile:
        if (self.graph is None) == (self.collective is None):
            given = "both are given" if self.graph else "neither is given"
            raise ValueError(f"graph, collective: {given}; give one of them")
        return self

    @property
    def one(self) -> SteppedGraph:
        """Whichever is given."""
        found = self.stepped
        assert found is not None, "one is"
        return found


GraphFile.model_rebuild()  # Here, where modules are loaded: else each rank, which is forked, would do it.


def graph_job_of(text: str) -> SteppedGraph:
    """Return the job that a text says, or the file that it names: YAML with ``graph:`` or ``collective:``. Raises
    ConfigError with every fault."""
    if not text.lstrip().startswith("{"):
        return checked(GraphFile, read_yaml(Path(text)), text).one
    try:
        return GraphFile.model_validate_json(text).one  # In which keys that are numbers are texts.
    except ValidationError:
        return checked(GraphFile, parse_yaml(text, "job"), "job").one


def values_of(text: str) -> int | None:
    """Return how many values the vector of a job has, by the text that its command has; None if that names a file, or
    is none that this wrote. What the job is of need not be there any more."""
    try:
        (keys,) = json.loads(text).values()
        return parse_size_bytes(keys.get("state", SteppedGraph.model_fields["state"].default)) // LANE_BYTES
    except (AttributeError, TypeError, ValueError):
        return None
