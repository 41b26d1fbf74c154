"""What is played of training in packets: collectives over nodes."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.training_scaling.config import TrainingScalingConfig
from experiments.training_scaling.prediction import Point
from fabric.units import format_size
from runs.jobs import collective_job, hfreduce_ranks, ordered_ranks
from runs.placement import nodes_over_zones, ranks_of
from runs.session import Session
from runs.study import play_steps
from traffic.collectives.hfreduce import HFReduceConfig
from traffic.collectives.job import CollectiveJob
from traffic.collectives.nccl import NcclConfig, nccl_flows
from traffic.work.composition import Line, line_through

HFREDUCE, NCCL = "hfreduce", "nccl"
SHARDED = ("all_gather", "reduce_scatter")


def play_collectives(
    session: Session, config: TrainingScalingConfig, points: Sequence[Point]
) -> dict[tuple[str, int], Line]:
    """Play allreduces by HFReduce and NCCL over numbers of nodes, and gathers of FSDP if there are any."""
    lines: dict[tuple[str, int], Line] = {}
    for count in needed_nodes(config, points):
        times = []
        for size in config.sizes:
            phase = f"{HFREDUCE}_n{count}_{format_size(size).replace(' ', '')}"
            title = f"HFReduce, {count} nodes, {format_size(size)}"
            play_steps(session, phase, title, hfreduce(session, config, count, size))
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


def hfreduce(session: Session, config: TrainingScalingConfig, count: int, size: int) -> CollectiveJob:
    """Return an allreduce by HFReduce."""
    nodes = nodes_over_zones(session.live.fabric, count)
    made = HFReduceConfig(size=size, chunk=config.chunk, copies_ahead=config.copies_ahead)
    return collective_job(session, made, hfreduce_ranks(session, made, config.rank_order, nodes))


def nccl(session: Session, config: TrainingScalingConfig, collective: str, count: int) -> CollectiveJob:
    """Return a collective of NCCL over all GPUs of so many nodes, its ring in the order of the nodes."""
    nodes = nodes_over_zones(session.live.fabric, count)
    ranks = ordered_ranks(session, config.rank_order, nodes, nccl_flows("ring", len(nodes)))
    made = NcclConfig(size=config.nccl_size, slice=config.slice, collective=collective)
    return collective_job(session, made, ranks_of(session.live.fabric, ranks))


def collective_s(session: Session, phase: str) -> float:
    """Return how long the step of a phase took: from its first rank's start to its last one's end."""
    steps = session.table("steps")
    of_phase = steps[steps["phase"] == phase]
    return float(of_phase["ended_s"].max() - of_phase["started_s"].min())
