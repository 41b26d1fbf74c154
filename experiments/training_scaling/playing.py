"""What is played of training in packets: collectives over nodes, messages between stages, and a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.training_scaling.config import CaseConfig, TrainingScalingConfig
from experiments.training_scaling.prediction import Point
from fabric.model.lanes import ServiceLevel
from fabric.units import format_size
from runs.jobs import ordered_ranks
from runs.placement import nodes_over_zones, ranks_of, zones_of_nodes
from runs.session import Session
from runs.study import play_steps
from traffic.collectives.hfreduce import HFReduceConfig, HFReduceJob, TreeKind, trees_of
from traffic.collectives.nccl import NcclConfig, NcclJob, nccl_flows
from traffic.collectives.trees import tree_flows
from traffic.work.composition import Durations, Line, Pieces, line_through, with_gradients_as_time
from traffic.work.generators.config import training_graph
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.job import PlayConfig, WorkJob
from traffic.work.metrics import period_s
from traffic.work.operations import Compute, Receive, Send

HFREDUCE, NCCL = "hfreduce", "nccl"
SHARDED = ("all_gather", "reduce_scatter")
_APART = 4.0
"""Messages that are to be alone begin so many times as far apart as each would take at a GPU's share of the NIC."""


def play_collectives(
    session: Session, config: TrainingScalingConfig, points: Sequence[Point]
) -> dict[tuple[str, int], Line]:
    """Play allreduces by HFReduce and NCCL over numbers of nodes, and gathers of FSDP if there are any."""
    lines: dict[tuple[str, int], Line] = {}
    for count in needed_nodes(config, points):
        times = []
        for size in config.sizes:
            phase = f"{HFREDUCE}_n{count}_{format_size(size).replace(' ', '')}"
            play_steps(
                session, phase, f"HFReduce, {count} nodes, {format_size(size)}", hfreduce(session, config, count, size)
            )
            times.append((int(size), collective_s(session, phase)))
        lines[HFREDUCE, count] = line_through(times)
    for collective, count in needed_of_nccl(config, points):
        name = NCCL if collective == "allreduce" else collective
        phase = f"{name}_n{count}"
        title = f"NCCL's {collective}, {count} nodes, {format_size(config.nccl_size)}"
        play_steps(session, phase, title, nccl(session, config, collective, count))
        lines[name, count] = line_through([(int(config.nccl_size), collective_s(session, phase))])
    return lines


def needed_nodes(config: TrainingScalingConfig, points: Sequence[Point]) -> list[int]:
    """Return over how many nodes allreduces are played: of those that there are, the nearest to what points need."""
    return sorted({_nearest(config.nodes, point.nodes) for point in points if not _is_sharded(point)})


def needed_of_nccl(config: TrainingScalingConfig, points: Sequence[Point]) -> list[tuple[str, int]]:
    """Return which of NCCL's collectives are played over how many nodes."""
    sharded = sorted({_nearest(config.nodes, point.nodes) for point in points if _is_sharded(point)})
    whole = [("allreduce", count) for count in needed_nodes(config, points)]
    return whole + [(collective, count) for collective in SHARDED for count in sharded]


def _is_sharded(point: Point) -> bool:
    return point.training.data_parallel.strategy != "ddp"


def _nearest(counts: Sequence[int], wanted: int) -> int:
    return min(counts, key=lambda count: (abs(count - wanted), count))


def hfreduce(session: Session, config: TrainingScalingConfig, count: int, size: int) -> HFReduceJob:
    """Return an allreduce by HFReduce."""
    made = HFReduceConfig(size=size, chunk=config.chunk, copies_ahead=config.copies_ahead)
    nodes = nodes_over_zones(session.live.fabric, count)
    flows = tree_flows(trees_of(TreeKind.ZONE_AWARE, zones_of_nodes(session.live.fabric, nodes)))
    return HFReduceJob(session.stage, made, ordered_ranks(session, config.rank_order, nodes, flows))


def nccl(session: Session, config: TrainingScalingConfig, collective: str, count: int) -> NcclJob:
    """Return a collective of NCCL over all GPUs of so many nodes, its ring in the order of the nodes."""
    fabric = session.live.fabric
    assert fabric.inside is not None
    nodes = nodes_over_zones(fabric, count)
    ranks = ordered_ranks(session, config.rank_order, nodes, nccl_flows("ring", len(nodes)))
    made = NcclConfig(size=config.nccl_size, slice=config.slice, collective=collective)
    return NcclJob(session.stage, made, ranks_of(fabric, ranks), fabric.address_inside)


def collective_s(session: Session, phase: str) -> float:
    """Return how long the step of a phase took: from its first rank's start to its last one's end."""
    steps = session.table("steps")
    of_phase = steps[steps["phase"] == phase]
    return float(of_phase["ended_s"].max() - of_phase["started_s"].min())


def play_messages(session: Session, config: TrainingScalingConfig, size_bytes: int) -> tuple[Line, Line]:
    """Play messages between two nodes, from each GPU to its like: each alone, then all at once. Return how long one
    takes, as lines through zero."""
    fabric = session.live.fabric
    assert fabric.inside is not None
    gpus = fabric.inside.gpus
    apart_s = _APART * size_bytes * gpus * 8 / fabric.nic_rate_bps
    found = []
    for phase, title, wait_s in (
        ("messages", "messages, each alone", apart_s),
        ("burst", "messages, all at once", 0.0),
    ):
        graph = messages_graph(gpus, size_bytes, wait_s)
        rows = _play_graph(session, config, phase, f"{title}, {format_size(size_bytes)}", graph)
        found.append(Line(0.0, size_bytes / _message_s(rows)))
    return found[0], found[1]


def messages_graph(gpus: int, size_bytes: int, apart_s: float) -> WorkGraph:
    """Return a message from each of a node's GPUs to its like on the next node, the next so much later."""
    works = [RankWork() for _ in range(2 * gpus)]
    for rank in range(gpus):
        wait = works[rank].add(Compute(duration_s=rank * apart_s, stream="compute", name="wait"))
        works[rank].add(Send(peer=gpus + rank, size_bytes=size_bytes, after=(wait,), name=f"message {rank}"))
        works[gpus + rank].add(Receive(peer=rank, size_bytes=size_bytes, name=f"message {rank}"))
    return graph_of("messages", works)


def _message_s(rows: pd.DataFrame) -> float:
    """Return the mean time from a send's start to its receive's end."""
    sends, receives = (rows[rows["kind"] == kind].set_index("name") for kind in ("send", "receive"))
    return float((receives["ended_s"] - sends["started_s"]).mean())


def play_pipeline(
    session: Session, config: TrainingScalingConfig, case: CaseConfig, point: Point, pieces: Pieces
) -> tuple[float, float]:
    """Play a point's pipeline with copies of one node per stage, whose gradients take the time that their allreduce
    took over all nodes. Return how long it took, and what a micro-batch takes in the steady part."""
    staggered = point.training.pipeline.stagger
    duration = Durations(pieces, point.nodes, HFREDUCE, burst=not staggered)
    graph = with_gradients_as_time(training_graph(point.training), duration)
    kind = "staggered" if staggered else "at_once"
    phase = f"{case.name}_{kind}_{point.training.steady.played}"
    title = f"{case.name}, {point.training.steady.played} micro-batches, {kind.replace('_', ' ')}"
    return pipeline_times(_play_graph(session, config, phase, title, graph), point)


def pipeline_times(operations: pd.DataFrame, point: Point) -> tuple[float, float]:
    """Return how long a pipeline took, and the period of its steady part, in s: that of the slowest copy, as a step
    ends with the last one. ``operations``: the rows of all ranks."""
    lasted_s = float(operations["ended_s"].max() - operations["started_s"].min())
    last_ranks = [pipeline[-1] for pipeline in point.training.layout.groups("pp")]
    return lasted_s, max(period_s(operations, point.training.steady, rank) for rank in last_ranks)


def _play_graph(
    session: Session, config: TrainingScalingConfig, phase: str, title: str, graph: WorkGraph
) -> pd.DataFrame:
    """Play a graph once, eight ranks on each of as many nodes as it needs, and return the rows of its operations."""
    fabric = session.live.fabric
    assert fabric.inside is not None
    nodes = nodes_over_zones(fabric, graph.ranks // fabric.inside.gpus)
    made = PlayConfig(slice=config.slice, recorded_steps=1)
    job = WorkJob(session.stage, made, nodes, level=ServiceLevel.NCCL, name="pipeline", graph=graph)
    play_steps(session, phase, title, job)
    rows = session.table("work_operations")
    return rows[rows["phase"] == phase]
