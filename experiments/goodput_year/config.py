"""What the experiment is told: the events that are played, how many of each, and the year that is composed of them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from cluster.checkpoints.config import CheckpointsConfig
from cluster.faults.classes import DAY_S
from cluster.faults.published import NAMES, published
from cluster.health.config import HealthConfig
from cluster.platform.timers import Timers
from cluster.simulation.measured import GivenCosts, MachineFacts
from controllers.routing import Repair, Routing
from experiments.goodput_year.places import leaf_faults, leaf_names, spines_above
from fabric.config import Strict, TimeS
from fabric.errors import FabricError
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import LongPhasesConfig, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.storage.config import ClusterManagerConfig, DataloaderConfig, StorageConfig
from traffic.storage.load_config import EpochsConfig

Duration = Annotated[TimeS, Field(gt=0, le=3600)]
Pause = Annotated[TimeS, Field(ge=0, le=3600)]
Draws = Annotated[int, Field(ge=0, le=200)]
MOST_VALIDATION_S = 3600.0
"""What a validation may take on the fabric."""
START_S = 20.0
"""How long a job may take from the loss of its node being noticed until it makes steps again."""


class Kind(str, Enum):
    """What fails."""

    KILLED = "killed"
    """The agent of a node and its rank get SIGKILL, and the agent is started again: what a GPU's error does."""
    SILENT = "silent"
    """A host is cut off and stands still; it returns after a while."""
    LEAF = "leaf"
    """The leaf switch of a node fails: the node runs on, and nobody hears it."""
    CUT = "cut"
    """The link of a node's NIC is cut, and heals before anybody misses the node."""

    @property
    def restarts(self) -> bool:
        """Whether a job must begin again after it."""
        return self is not Kind.CUT


class ProgramConfig(Strict):
    """The job that fails: ranks that step together and write checkpoints."""

    step: Duration = Field(default=2.0, description="How long a step computes.")
    interval: Duration = Field(
        default=300.0, description="Steps from one checkpoint to the next, as time; a multiple of `step`."
    )
    stall: Pause = Field(default=1.0, description="How long steps stand still for a checkpoint.")
    durable: Pause = Field(default=5.0, description="Time from then until the checkpoint counts.")
    save: Pause = Field(default=3.0, description="How long saving takes before a suspend.")

    @property
    def every(self) -> int:
        """Steps from one checkpoint to the next."""
        return round(self.interval / self.step)

    @model_validator(mode="after")
    def _verify(self) -> ProgramConfig:
        if self.every < 1 or abs(self.every * self.step - self.interval) > 1e-9:
            raise ValueError(f"interval {self.interval:g} s is not a multiple of step, {self.step:g} s; change one")
        return self


class DrawsConfig(Strict):
    """How many failures of each kind there are."""

    killed: Draws = Field(default=8, description="Agents that are killed with their ranks, and started again.")
    silent: Draws = Field(default=8, description="Hosts that are cut off and stand still for a while.")
    leaf: Draws = Field(default=4, description="Leaf switches that fail for a while, each under one node of the job.")
    cut: Draws = Field(default=4, description="Links of NICs that are cut and heal before the node is missed.")

    @property
    def counts(self) -> dict[Kind, int]:
        """The same by kind."""
        return {kind: int(getattr(self, kind.value)) for kind in Kind}


class EventsConfig(Strict):
    """Failures at random moments, one after another, each once the job makes steps again."""

    nodes: Annotated[tuple[str, ...], Field(strict=False, min_length=4, max_length=1000)] = Field(
        description="The platform's nodes: the first has the scheduler, and of the others all but one are the job's."
    )
    timers: Timers = Field(default_factory=Timers, description="How long scheduler and agents wait for each other.")
    program: ProgramConfig = Field(default_factory=ProgramConfig, description="The job that fails.")
    draws: DrawsConfig = Field(default_factory=DrawsConfig, description="How many failures of each kind.")
    again: Duration = Field(default=1.0, description="When an agent that was killed is started again.")
    away: Duration = Field(default=90.0, description="How long a silent host is away, and a leaf switch is down.")
    cut: Duration = Field(default=10.0, description="How long the link of a NIC is cut.")
    suspensions: Draws = Field(default=6, description="How many times a job of higher priority takes the nodes.")

    @model_validator(mode="after")
    def _verify(self) -> EventsConfig:
        noticed_s = self.timers.failed_after + self.timers.beat + START_S
        if (self.draws.silent or self.draws.leaf) and self.away < noticed_s:
            raise ValueError(
                f"away: {self.away:g} s is less than {noticed_s:g} s, in which the job goes on without the node; "
                "raise it"
            )
        if self.cut + self.timers.beat > self.timers.failed_after:
            raise ValueError(f"cut: a node that is cut off for {self.cut:g} s may be taken out; lower it")
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError("nodes: names one more than once; name each once")
        return self


class StormsConfig(Strict):
    """Reads and writes of a checkpoint by all compute nodes at once."""

    storage: StorageConfig = Field(
        default_factory=lambda: StorageConfig(cluster_manager=ClusterManagerConfig()),
        description="The storage service; `restore` and `checkpoint` say how much each node reads and writes.",
    )
    write_time: Duration = Field(default=10.0, description="How long all nodes write checkpoints, one after another.")
    storm_time: Annotated[TimeS, Field(ge=1, le=3600)] = Field(
        default=5.0, description="From one restore to the next while a storage node is brought up to date."
    )
    patience: Duration = Field(default=300.0, description="How long that may take until all targets serve.")


class SlowConfig(Strict):
    """An allreduce over the job's nodes, whole and with a slow NIC."""

    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce.")
    rate: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.5, description="Part of its rate that the NIC keeps.")
    time: Duration = Field(default=5.0, description="How long each of the two plays.")


class SpineConfig(Strict):
    """An allreduce over all compute nodes, from under which a spine switch is taken."""

    hfreduce: HFReduceConfig = Field(default_factory=HFReduceConfig, description="The allreduce.")
    time: Duration = Field(default=15.0, description="How long it plays with the switch, and how long without.")
    routing: Routing = Field(
        default_factory=lambda: Routing(repair=Repair.REROUTE, sweep_delay=0.1),
        description="Routing of this phase: routes must avoid the switch, or the allreduce never goes on.",
    )

    @model_validator(mode="after")
    def _verify(self) -> SpineConfig:
        if self.routing.repair is Repair.WAIT:
            raise ValueError("routing.repair: wait: an allreduce never goes on without the switch; use reroute")
        return self


class LeafConfig(Strict):
    """Leaf switches that fail and take several nodes of a job along, each in a phase of its own."""

    nodes: Annotated[tuple[str, ...], Field(strict=False, min_length=4, max_length=1000)] = Field(
        description="A platform's nodes; the first has the scheduler, on a leaf that no other one has."
    )
    job: Annotated[int, Field(ge=2, le=1000)] = Field(description="Nodes of the job, on as few leaves as can be.")
    draws: Annotated[int, Field(ge=1, le=50)] = Field(default=3, description="How many leaves fail.")


class StorageLossConfig(Strict):
    """A training whose nodes read batches, and a storage node that falls silent and comes back with empty disks."""

    at: Duration = Field(default=20.0, description="When it falls silent, from the first batch on.")
    away: Duration = Field(default=75.0, description="For how long: longer than it takes to be missed.")
    after: Duration = Field(default=12.0, description="How long nodes read on once all targets serve.")
    dataloader: DataloaderConfig = Field(
        default_factory=lambda: DataloaderConfig(epochs=EpochsConfig(compute=2.0)),
        description="What nodes read, with `epochs` that have no end.",
    )

    @model_validator(mode="after")
    def _verify(self) -> StorageLossConfig:
        epochs = self.dataloader.epochs
        if epochs is None or epochs.count is not None or not epochs.compute:
            raise ValueError(
                "dataloader.epochs: nodes compute between batches, and read until they are stopped; give "
                "`epochs: {compute: 2 s}`, without count"
            )
        return self


class WrongConfig(Strict):
    """Wrong data: of one storage node's disks in a restore, and in a checkpoint's only chunk of all copies."""

    chunks: Annotated[int, Field(ge=1, le=10**6)] = Field(
        default=10**6, description="Chunks of each of the storage node's disks that get a wrong bit; or all it has."
    )
    checkpoints: CheckpointsConfig = Field(
        default_factory=lambda: CheckpointsConfig(count=2),
        description="Checkpoints; the last one is wrong.",
    )

    @model_validator(mode="after")
    def _verify(self) -> WrongConfig:
        if self.checkpoints.count is None or not 2 <= self.checkpoints.count <= self.checkpoints.keep:
            raise ValueError(
                f"checkpoints: count {self.checkpoints.count} and keep {self.checkpoints.keep}; the one before the "
                "last must be there: set count to 2 or more, and keep to as many"
            )
        if self.checkpoints.restored_by:
            raise ValueError("checkpoints.restored_by: all nodes restore here; leave it out")
        return self


class ValidationConfig(Strict):
    """A validation of all nodes of a job before it starts."""

    health: HealthConfig = Field(
        default_factory=lambda: HealthConfig.model_validate({"validate": {"before_job": True}}),
        description="The platform's health; `validate.before_job` must be set.",
    )
    time: Duration = Field(default=60.0, description="How long it may take.")

    @model_validator(mode="after")
    def _verify(self) -> ValidationConfig:
        if not self.health.validation.before_job:
            raise ValueError("health.validate.before_job: nodes are validated before the job here; set it")
        return self


class UncountedConfig(Strict):
    """How often those fail that no table of these machines counts: given, per 1,000 of them and day."""

    storage_nodes: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=0.2,
        description="Storage nodes. As compute nodes without their GPUs: 0.24 by Fire-Flyer 2's errors of main memory, "
        "0.19 by Llama 3's hosts (NIC, SSD, power supply, chassis, I/O board, CPU, memory).",
    )
    switches: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=0.0168,
        description="Switches: 0.051 % of leaf switches per month (Alibaba HPN, SIGCOMM 2024). Azure: 2 % of all in 3 "
        "months, half of them for less than 6 min (CCR 51(2), 2021): 13 times as often.",
    )
    corruption: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=0.0543,
        description="Compute nodes that compute wrong, where the table does not count them: 6 in 54 days on 2,048 "
        "nodes (Llama 3, Table 5).",
    )
    switch_repair: Annotated[TimeS, Field(ge=0)] = Field(
        default=DAY_S, description="How long a switch is away; tables do not say it."
    )


class SweepsConfig(Strict):
    """What of the year is swept."""

    sweep_days: Annotated[float, Field(gt=0, le=3650)] = Field(
        default=60.0, description="How long it is for each point of the sweeps."
    )
    intervals: Annotated[list[Duration], Field(max_length=50)] = Field(
        default_factory=lambda: [30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0],
        description="Intervals between checkpoints to sweep, asynchronous and synchronous ones.",
    )
    spares: Annotated[list[Annotated[int, Field(ge=0, le=10_000)]], Field(max_length=50)] = Field(
        default_factory=lambda: [0, 2, 5, 10, 20, 40], description="Numbers of spare nodes to sweep."
    )
    validations: Annotated[list[Annotated[float, Field(gt=0, le=3650)]], Field(max_length=50)] = Field(
        default_factory=lambda: [1.0, 3.0, 7.0, 14.0, 28.0], description="Days from one validation to the next."
    )


class YearConfig(SweepsConfig):
    """The year that is composed of what was measured."""

    days: Annotated[float, Field(gt=0, le=3650)] = Field(default=365.0, description="How long it is.")
    seeds: Annotated[int, Field(ge=1, le=100)] = Field(default=6, description="How many years are drawn.")
    spare: Annotated[int, Field(ge=0, le=10_000)] = Field(default=20, description="Nodes beside those of the job.")
    interval: Duration = Field(default=300.0, description="Steps from one checkpoint to the next, as time.")
    given: GivenCosts = Field(default_factory=GivenCosts, description="What was not measured.")
    machines: Annotated[dict[str, MachineFacts], Field(min_length=1, max_length=10)] = Field(
        description="Machines by the names of their tables of faults."
    )
    slow_nics: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=0.1, description="NICs that become slow, per 1,000 node-days; no table counts them, so this is given."
    )
    uncounted: UncountedConfig = Field(
        default_factory=UncountedConfig, description="What no table counts, with the rates that are given for it."
    )
    validated: Annotated[float, Field(gt=0, le=3650)] | None = Field(
        default=7.0, description="Days from one validation of all nodes to the next (Fire-Flyer 2: weekly); null: none."
    )
    validates: Duration = Field(
        default=600.0,
        description="How long a validator computes on all nodes (GEMM, memory, NVLink): given. What it does on the "
        "fabric is measured, and added to it.",
    )

    @model_validator(mode="after")
    def _verify(self) -> YearConfig:
        if unknown := sorted(self.machines.keys() - set(NAMES)):
            raise ValueError(f"machines: {', '.join(unknown)}: no such table of faults; use some of {', '.join(NAMES)}")
        periods = [*self.validations, *([] if self.validated is None else [self.validated])]
        if short := [days for days in periods if days * DAY_S <= self.validates + MOST_VALIDATION_S]:
            raise ValueError(
                f"validations: {short[0]:g} days are not more than validates, {self.validates:g} s, and an hour on the "
                "fabric; raise them"
            )
        for name, one in self.machines.items():
            if one.leaves > published(name).nodes:
                raise ValueError(f"machines.{name}.leaves: {one.leaves} for {published(name).nodes} nodes; lower it")
        return self


class GoodputYearConfig(LongPhasesConfig):
    """Events one by one with packets; then years composed of what they cost."""

    periods_per_sample: ClassVar[int] = 160

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    events: EventsConfig = Field(description="Failures and suspensions of a job on the platform.")
    storms: StormsConfig = Field(
        default_factory=StormsConfig, description="Restores and checkpoints by all compute nodes at once."
    )
    slow: SlowConfig = Field(default_factory=SlowConfig, description="What a slow NIC costs.")
    leaves: LeafConfig | None = Field(
        default=None, description="Leaf switches with several nodes of a job. Without it, none is played."
    )
    spine: SpineConfig | None = Field(default=None, description="A spine switch that fails; likewise.")
    storage_loss: StorageLossConfig | None = Field(
        default=None, description="A storage node that is lost under a training that reads; likewise."
    )
    wrong: WrongConfig | None = Field(default=None, description="Wrong data; likewise.")
    validation: ValidationConfig | None = Field(default=None, description="A validation of all nodes; likewise.")
    year: YearConfig = Field(description="The year that is composed.")

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """That of the run, and the one of the phase with a spine switch."""
        return (self.routing, *([] if self.spine is None else [self.spine.routing]))

    @property
    def cuts_links(self) -> bool:
        """It does, by itself."""
        return True

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as what is drawn takes."""
        return PhaseLengths(until="all that is drawn has happened")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "all nodes restore from them")
        storage = self.storms.storage
        if self.failures:
            yield f"failures: {self.experiment} lets nodes fail by itself; remove them"
        if storage.cluster_manager is None:
            yield "storms.storage.cluster_manager: without it no storage node comes back; write `cluster_manager: {}`"
        for key, share in (("restore", storage.restore.share), ("checkpoint", storage.checkpoint.share)):
            if share != 1:
                yield f"storms.storage.{key}.share: {share:g}, but all nodes do that here; set it to 1"
        yield from (f"events.{fault}" for fault in self._node_faults(fabric))
        if self.leaves is not None:
            yield from (f"leaves.{fault}" for fault in leaf_faults(fabric, self.leaves.nodes, self.leaves.job))
        if self.spine is not None and len(spines_above(fabric, fabric.computes[0])) < 2:
            yield f"spine: {fabric.name} has no second spine switch for {fabric.computes[0]}; leave it out"
        if self.wrong is not None:
            computes = len(fabric.computes)
            yield from (f"wrong.checkpoints.{fault}" for fault in self.wrong.checkpoints.node_faults(computes))
        if self.validation is not None:
            yield from (f"validation.health.{fault}" for fault in self.validation.health.faults(fabric))

    def _node_faults(self, fabric: Fabric) -> Iterator[str]:
        try:
            nodes = [fabric.host_named(name) for name in self.events.nodes]
        except FabricError as error:
            yield f"nodes: {error}"
            return
        if wrong := [node.name for node in nodes if node not in fabric.computes]:
            yield f"nodes: {', '.join(wrong)}: no compute node; choose others"
        elif self.events.draws.leaf and not list(leaf_names(fabric, self.events.nodes)):
            yield "draws.leaf: no node of the job has a leaf for itself; name nodes that share none, or draw none"
