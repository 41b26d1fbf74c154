"""Does a client read stale data from a storage node that has been forgotten, and does a fence prevent it?

Links are cut so that the tail of a chain does not hear its chain and the cluster manager, but clients do hear the tail.
Once the manager has forgotten it, the others take writes without it; clients whose chains are old read the tail still.
A writer and readers keep what they saw, and a checker looks whether that is linearizable.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from experiments.fencing.rows import history_of, windows_of
from experiments.fencing.summary import Seen, summarize
from fabric.config import Strict, TimeS
from fabric.failures.config import failure_faults, failure_line, schedule_failures
from fabric.failures.line import FailureConfig
from fabric.failures.schedule import FailureSchedule
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.config import LongPhasesConfig, each_once, storage_faults
from runs.jobs import started
from runs.phase_lengths import PhaseLengths
from runs.session import Session
from traffic.storage.client.history_client import HistoryLoad
from traffic.storage.config import ClusterManagerConfig, Fence, FenceChoice, StorageConfig
from traffic.storage.history_job import HistoryJob
from traffic.storage.managers.cluster import ManagedCluster

Duration = Annotated[TimeS, Field(gt=0, le=3600)]
Hosts = Annotated[list[str], Field(min_length=1, max_length=10_000)]


class WhoLooks(Strict):
    """Clients, by what they do and what they hear once links are cut."""

    writers: Hosts = Field(description="Compute nodes that write.")
    between: list[str] = Field(
        default_factory=list, description="Compute nodes that read the tail, and hear all in spite of the cuts."
    )
    beside: list[str] = Field(
        default_factory=list,
        description="Compute nodes that read the tail, and do not hear the manager once links are cut.",
    )
    pause: Duration = Field(default=0.5, description="Time from a client's operation to its next one.")
    chunks: Annotated[int, Field(ge=1, le=1000)] = Field(default=2, description="Chunks that are written and read.")


class FencingConfig(LongPhasesConfig):
    """Who is where, what is cut, and for how long all look on."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    fences: Annotated[list[FenceChoice], Field(min_length=1), AfterValidator(each_once)] = Field(
        default_factory=lambda: [Fence.OFF, Fence.HALF],
        description="Whether services stop to answer that the manager has not heard for half of `failed_after`; a "
        "phase for each, repeated.",
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=3, description="How often each is played, with other moments of the cut and of clients' turns."
    )
    servers: Hosts = Field(
        description="Storage nodes that have services. The last one of their first chain is the tail."
    )
    clients: WhoLooks = Field(description="Who writes and who reads, from where.")
    cuts: Annotated[list[str], Field(min_length=1, max_length=1000)] = Field(
        description="Links that are cut all at once, such as `z0l00-z0s01`."
    )
    at: Duration = Field(
        default=12.0, description="When they are cut, counted from when clients play; up to 10 s later, by the seed."
    )
    lasts: Duration = Field(default=120.0, description="How long clients play on, cut off from each other.")
    storage: StorageConfig = Field(
        default_factory=lambda: StorageConfig(cluster_manager=ClusterManagerConfig()),
        description="The storage service, its clients and its cluster manager.",
    )

    @property
    def cuts_links(self) -> bool:
        """It does."""
        return True

    def failure_lines(self, at_s: float) -> list[FailureConfig]:
        """Return its cuts as failures."""
        return [failure_line({"link": link, "at": at_s}) for link in self.cuts]

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as cuts that are drawn, and what they take."""
        return PhaseLengths(until="each cut is over")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "one of them is forgotten here")
        if self.failures:
            yield f"failures: {self.experiment} cuts links by itself (cuts); remove them"
        for fault in failure_faults(self.failure_lines(self.at), fabric, self.seed):
            yield fault.replace("failures.", "cuts.", 1)
        yield from self._host_faults(fabric)
        if self.storage.cluster_manager is None:
            yield "storage.cluster_manager: without it nobody is forgotten; write `cluster_manager: {}`"
        if not self.clients.between and not self.clients.beside:
            yield "clients: between and beside: nobody reads; name compute nodes that hear the tail"
        least = self.storage.chunk_size * self.clients.chunks
        if self.storage.dataloader.file_size < least:
            few = "of the first file, which has fewer; raise storage.dataloader.file_size"
            yield f"clients.chunks: {self.clients.chunks} {few}"

    def _host_faults(self, fabric: Fabric) -> Iterator[str]:
        named = {"servers": (self.servers, fabric.storages)}
        for key in ("writers", "between", "beside"):
            named[f"clients.{key}"] = getattr(self.clients, key), fabric.computes
        used: set[str] = set()
        for key, (wanted, nodes) in named.items():
            names = [node.name for node in nodes]
            for name in wanted:
                if name not in names:
                    yield f"{key}: {name} is not one of {names[0]} to {names[-1]} of {fabric.name}; choose one of them"
                elif name in used:
                    yield f"{key}: {name} is named twice; name each node once"
                used.add(name)


def run_fencing(session: Session, config: FencingConfig) -> dict[str, Any]:
    """Play each fence, as often as it is to be repeated; return the summary."""
    session.use_queueing(config.queueing)
    found = [_phase(session, config, fence, number) for number in range(config.repeats) for fence in config.fences]
    return summarize(found)


@dataclass(frozen=True)
class _Cast:
    """Who does what."""

    servers: tuple[NodeId, ...]
    places: dict[NodeId, str]

    @classmethod
    def of(cls, config: FencingConfig, fabric: Fabric) -> _Cast:
        """Return those that a config names."""
        nodes = {node.name: node for node in (*fabric.storages, *fabric.computes)}
        who = config.clients
        groups = {"writer": who.writers, "between": who.between, "beside": who.beside}
        places = {nodes[name]: place for place, names in groups.items() for name in names}
        return cls(tuple(nodes[name] for name in config.servers), places)


def _phase(session: Session, config: FencingConfig, fence: Fence, number: int) -> Seen:
    fabric = session.live.fabric
    cast = _Cast.of(config, fabric)
    manager = config.storage.cluster_manager
    assert manager is not None, "faults() verified it"
    storage = config.storage.model_copy(update={"cluster_manager": manager.model_copy(update={"fence": fence})})
    name = f"{fence.value}_{number + 1}"
    loads = {
        node: HistoryLoad(place == "writer", config.clients.chunks, config.clients.pause)
        for node, place in cast.places.items()
    }
    # The same moments for each fence.
    stage = replace(session.stage, seed=config.seed + 1000 * number)
    cut_s = config.at + random.Random(f"{config.seed}/cut/{number}").uniform(0, manager.heartbeat)
    job = HistoryJob(stage, storage, tuple(cast.places), servers=cast.servers, loads=loads)
    tail = job.table.chains[0].nodes[-1]
    with started(session, [job]):
        schedule = cuts_at(config, cut_s, fabric)
        outcome = session.run_phase(
            name, f"fence {fence.value}: {tail} is cut off", [job], cut_s + config.lasts, schedule
        )
        cluster = job.cluster
        assert isinstance(cluster, ManagedCluster), "faults() verified it"
        forgotten_s = next(
            (
                one.at_s - session.origin
                for one in cluster.history().transitions
                if tail not in one.chain.routed.written
            ),
            None,
        )
        events = {node: job.events.get(node.name, ()) for node in cast.places}
    history = history_of(name, events, cast.places, session.origin)
    session.keep_frame("history", history)
    operations = session.table("operations")
    failed = operations[(operations["phase"] == name) & (operations["operation"] == "read_failed")]
    windows = windows_of(fence, history, failed, forgotten_s, outcome.began_s + cut_s, outcome.phase.load_s[1])
    session.keep_frame("stale_windows", windows)
    return Seen(name, fence, tail, windows, manager.polled_every)


def cuts_at(config: FencingConfig, at_s: float, fabric: Fabric) -> FailureSchedule:
    """Return what is cut at a time of a phase, until its end."""
    return schedule_failures(config.failure_lines(at_s), fabric, config.seed)
