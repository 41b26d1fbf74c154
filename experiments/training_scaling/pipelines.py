"""What is played of training in packets: messages between stages, and a pipeline."""

from __future__ import annotations

import pandas as pd

from experiments.training_scaling.config import CaseConfig, TrainingScalingConfig
from experiments.training_scaling.playing import HFREDUCE
from experiments.training_scaling.prediction import Point
from fabric.model.lanes import ServiceLevel
from fabric.units import format_size
from runs.placement import nodes_over_zones
from runs.session import Session
from runs.study import play_steps
from traffic.work.composition import Durations, Line, Pieces, with_gradients_as_time
from traffic.work.generators.config import training_graph
from traffic.work.generators.plan import ACTIVATION_BYTES
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.job import PlayConfig, WorkJob
from traffic.work.metrics import period_s
from traffic.work.models.transformer import Transformer
from traffic.work.operations import Compute, Receive, Send

_DEFAULT_MESSAGE_BYTES = 2**24
_APART = 4.0
"""Messages that are to be alone begin so many times as far apart as each would take at a GPU's share of the NIC."""


def message_bytes(config: TrainingScalingConfig) -> int:
    """Return the size of a message between stages of the first case that has any."""
    for case in config.cases:
        model = case.training.shapes
        if case.training.layout.pipeline > 1 and isinstance(model, Transformer):
            return ACTIVATION_BYTES * case.training.micro_batch * model.sequence * model.hidden
    return _DEFAULT_MESSAGE_BYTES


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
