"""What ``checkpoints`` plays: its keys, and the phases that they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, Field

from cluster.checkpoints.config import CheckpointsConfig
from cluster.checkpoints.rates import GIB, Setup
from fabric.config import SizeBytes, Strict, TimeS
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import Choices, QueueingsConfig, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.metrics import payload_fraction
from traffic.storage.chains import place_chains
from traffic.work.checks import require_playable
from traffic.work.graph import ALL_RANKS, RankWork, WorkGraph, graph_of
from traffic.work.job import PlayConfig
from traffic.work.operations import CollectiveCall, Compute

WANTED_BPS = 10 * GIB
"""What the paper says of a node: more than 10 GiB/s (arXiv 2408.14158, VII-A)."""
Time = Annotated[TimeS, Field(gt=0)]
_COMPUTE, _SEND = "compute", "gradients"
StepTime = Annotated[TimeS, Field(gt=0, le=3600)]


class StepConfig(PlayConfig):
    """A step as DDP has it, of a rank on each node, which stands for all of its GPUs."""

    ranks: Annotated[int, Field(ge=2, le=65_536)] = Field(
        default=4, description="Nodes that train; they are the first ones, and write the checkpoints."
    )
    layers: Annotated[int, Field(ge=1, le=1000)] = Field(default=8, description="Layers, each with an allreduce.")
    gradients: Annotated[SizeBytes, Field(ge=1024, le=1 << 34)] = Field(
        default=2 << 20, description="Bytes of gradients of a step, of all layers."
    )
    forward: StepTime = Field(default=200e-6, description="Computing forward.")
    backward: StepTime = Field(default=400e-6, description="Computing backward, all layers.")
    update: StepTime = Field(default=50e-6, description="Computing new parameters, once all gradients are there.")

    def loaded(self) -> WorkGraph:
        """Return the graph of a step."""
        return _step(self.ranks, self.layers, self.gradients, (self.forward, self.backward, self.update))


@lru_cache(maxsize=8)
def _step(ranks: int, layers: int, size_bytes: int, times_s: tuple[float, float, float]) -> WorkGraph:
    forward_s, backward_s, update_s = times_s
    each = max(4, size_bytes // layers // 4 * 4)
    work = RankWork()
    work.add(Compute(duration_s=forward_s, stream=_COMPUTE, name="forward"))
    sums = []
    for layer in reversed(range(layers)):
        computed = work.add(Compute(duration_s=backward_s / layers, stream=_COMPUTE, name=f"backward {layer}"))
        call = CollectiveCall(
            collective="allreduce", size_bytes=each, group=ALL_RANKS, after=(computed,), stream=_SEND, name=f"{layer}"
        )
        sums.append(work.add(call))
    work.add(Compute(duration_s=update_s, after=tuple(sums), stream=_COMPUTE, name="update"))
    graph = graph_of(f"a data-parallel step on {ranks} ranks", [work] * ranks)
    require_playable(graph)
    return graph


class WriteSetup(Strict):
    """How many nodes write, to how many replicas."""

    writers: Annotated[int, Field(ge=1, le=65_536)] = Field(description="Nodes that write, the first ones.")
    replicas: Annotated[int, Field(ge=1, le=16)] = Field(description="Replicas of each chunk.")

    @property
    def name(self) -> str:
        """The name of its phase."""
        return f"alone_{self.writers}_nodes_{self.replicas}_replicas"

    @property
    def words(self) -> str:
        """It in words."""
        return f"{self.writers} nodes write, {self.replicas} replica{'' if self.replicas == 1 else 's'}"


def _each_once(value: list[WriteSetup]) -> list[WriteSetup]:
    names = [one.name for one in value]
    if len(set(names)) < len(names):
        raise ValueError("there is the same setup twice; name each once")
    return value


class CheckpointsRunConfig(QueueingsConfig):
    """Checkpoints alone, by numbers of writers and replicas, with restores; then beside steps of training, in each of
    ``queueings``."""

    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.LOSSLESS_LANES, Queueing.LOSSLESS],
        description="Queueings in which training plays alone and beside checkpoints; the first one has the rest, too.",
    )
    setups: Annotated[list[WriteSetup], Field(max_length=32), AfterValidator(_each_once)] = Field(
        default=[],
        description="Further numbers of writers and replicas, beside those of `training` and `checkpoints`.",
    )
    checkpoints: CheckpointsConfig = Field(
        default_factory=lambda: CheckpointsConfig(count=1), description="The file system, and what is written to it."
    )
    training: StepConfig = Field(default_factory=StepConfig, description="A step of training.")
    training_time: Time = Field(default=0.01, description="Length of the phases in which training plays alone.")
    beside_time: Time = Field(default=0.02, description="Length of those in which checkpoints are written beside it.")
    period: Time = Field(
        default=300.0,
        description="From one checkpoint to the next in production, for what they cost of the time; the paper's 5 min.",
    )
    lasts: Time = Field(
        default=5.0, description="How long one is written there; the paper: seconds. The played ones are smaller."
    )

    @property
    def main(self) -> WriteSetup:
        """The nodes that train, and the replicas of the file system."""
        return WriteSetup(writers=self.training.ranks, replicas=self.checkpoints.replicas)

    @property
    def all_setups(self) -> tuple[WriteSetup, ...]:
        """What is played alone, the main one first."""
        return (self.main, *(one for one in self.setups if one != self.main))

    def alone(self, setup: WriteSetup) -> CheckpointsConfig:
        """Return the checkpoints of a setup: the main one's are restored, too, and so its nodes are as many as that
        needs."""
        changed = {"writers": setup.writers, "replicas": setup.replicas, "count": 1}
        if setup != self.main:
            changed["restored_by"] = []  # type: ignore[assignment]
        return self.checkpoints.model_copy(update=changed)

    def nodes_of(self, setup: WriteSetup) -> int:
        """Return how many nodes a setup's job has."""
        return max([setup.writers, *self.alone(setup).restored_by])

    def beside(self) -> CheckpointsConfig:
        """Return the checkpoints that are written beside training."""
        return self.checkpoints.model_copy(update={"writers": None, "restored_by": []})

    def one(self) -> CheckpointsConfig:
        """Return a checkpoint that steps wait for."""
        return self.beside().model_copy(update={"count": 1})

    @property
    def phase_lengths(self) -> PhaseLengths:
        """Those beside training; checkpoints alone take as long as they take."""
        return PhaseLengths.of(self, "training_time", "beside_time", until="all checkpoints are written")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "checkpoints are on them")
        if self.checkpoints.count is None:
            yield "checkpoints.count: checkpoints would not end; give it, e.g. 3"
        if self.checkpoints.writers is not None:
            yield "checkpoints.writers: training's nodes write; leave it out, and name others in setups"
        for setup in self.all_setups:
            if (needed := self.nodes_of(setup)) > len(fabric.computes):
                yield f"{setup.name}: {needed} nodes, but {fabric.name} has {len(fabric.computes)}; lower it"
            if fabric.storages:
                yield from self._chain_faults(fabric, setup)

    def _chain_faults(self, fabric: Fabric, setup: WriteSetup) -> Iterator[str]:
        config = self.alone(setup)
        try:
            place_chains(fabric.storages, config.disks_per_node, config.chains_per_target, config.replicas)
        except ConfigError as error:
            yield from (f"{setup.name}: {fault}" for fault in error.faults)


def setup_on(fabric: Fabric, nodes: Sequence[NodeId], replicas: int, copy_bps: float | None) -> Setup:
    """Return a setup for closed forms, of the zone that has the most writers for each NIC of storage: storage serves a
    node by its NICs in the node's own zone."""
    writers = Counter(fabric.nics_of[node][0].zone for node in nodes)
    nics = {zone: sum(fabric.nic_in_zone(node, zone) is not None for node in fabric.storages) for zone in writers}
    zone = max(writers, key=lambda one: writers[one] / nics[one])
    nic_Bps = fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)  # noqa: N806 - bytes, not bits
    return Setup(writers[zone], nics[zone], replicas, nic_Bps, None if copy_bps is None else copy_bps / 8)
