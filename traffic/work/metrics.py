"""What training is measured by, from rows of ``work_steps`` and ``work_operations`` (pure).

Rows are those of one job and phase; times are in seconds. What is exposed, idle and slack in a step is said of its
timeline (:mod:`traffic.work.step_metrics`), whether it was played or is on paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median

import pandas as pd

from traffic.work.generators.steady import SteadyPart
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Timeline
from traffic.work.measures import EXPOSED
from traffic.work.operation_names import forward_number
from traffic.work.step_metrics import bubble, compute_s, exposed_s


def step_times(steps: pd.DataFrame) -> pd.Series[float]:
    """Return how long each play of a graph took per step of it, by its number: from when its first rank began until its
    last one ended, over the steps that ranks played in a row (one, as a rule)."""
    plays = steps.groupby("play").agg({"started_s": "min", "ended_s": "max", "step": "nunique"})
    return ((plays["ended_s"] - plays["started_s"]) / plays["step"]).rename("step_s")


def timelines(graph: WorkGraph, operations: pd.DataFrame) -> list[Timeline]:
    """Return the steps that were played as timelines. Rows of all ranks of the graph are needed."""
    found = []
    for _, rows in operations.sort_values(["rank", "operation"], kind="stable").groupby("step"):
        began_s = rows["started_s"].min()
        ranks = {int(one["rank"].iloc[0]): one for _, one in rows.groupby("rank")}
        times = [_times(ranks.get(rank), began_s) for rank in range(graph.ranks)]
        found.append(Timeline(graph, tuple(one[0] for one in times), tuple(one[1] for one in times)))
    return found


def _times(rows: pd.DataFrame | None, began_s: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return when a rank's operations started and ended; nothing of a rank that has none."""
    if rows is None:
        return (), ()
    starts, ends = (tuple((rows[key] - began_s).tolist()) for key in ("started_s", "ended_s"))
    return starts, ends


def of_timelines(played: Sequence[Timeline]) -> dict[str, float]:
    """Return what steps have by their timelines, medians over them: ``bubble_fraction``, a mean over the ranks that
    compute, and ``exposed_s`` of all kinds and ``exposed.KIND_s`` of each, of the rank with the most of all."""
    found: dict[str, list[float]] = {}
    for one in played:
        ranks = [rank for rank in range(one.graph.ranks) if compute_s(one, rank)]
        if not ranks:
            continue
        waits = max((exposed_s(one, rank) for rank in ranks), key=lambda kinds: sum(kinds.values()))
        numbers = {"bubble_fraction": mean(bubble(one, rank) for rank in ranks), "exposed_s": sum(waits.values())}
        numbers |= {EXPOSED.of(kind): value for kind, value in sorted(waits.items())}
        for name, value in numbers.items():
            found.setdefault(name, []).append(value)
    return {name: median(values) for name, values in found.items()}


def whole_step_s(operations: pd.DataFrame, part: SteadyPart, last_ranks: Sequence[int]) -> float:
    """Return the time of a whole step of which ``part`` was played, by the rows of one: the slowest copy of the
    pipeline says how long a micro-batch takes. ``last_ranks``: ranks of the last stage that have rows."""
    played_s = float(operations["ended_s"].max()) - float(operations["started_s"].min())
    if part.uneven:
        others = sorted({int(rank) for rank in operations["rank"].unique()} - {*last_ranks})
        return part.uneven_step_s(played_s, [_forward_starts(operations, rank) for rank in (*others, *last_ranks)])
    return part.step_s(played_s, max(period_s(operations, part, rank) for rank in last_ranks))


def period_s(operations: pd.DataFrame, part: SteadyPart, last_rank: int) -> float:
    """Return the time that a micro-batch takes in the steady part of a played step, by the rows of a rank of the last
    stage."""
    return part.period_s(_forward_starts(operations, last_rank))


def _forward_starts(operations: pd.DataFrame, rank: int) -> dict[int, float]:
    """Return when a rank's first chunk began each micro-batch's forward pass, by its rows."""
    computing = operations[(operations["stream"] == "compute") & (operations["rank"] == rank)]
    starts: dict[int, float] = {}
    for name, started_s in zip(computing["name"].astype(str), computing["started_s"], strict=True):
        number = forward_number(name)
        if number is not None:
            starts[number] = min(float(started_s), starts.get(number, math.inf))
    return starts


# Training as a whole -------------------------------------------------------------------------------------------------


def scale_factor(ranks: int, per_s: float, alone_per_s: float) -> float:
    """Return the throughput of so many ranks over that of as many single ones; 1 is linear. Raises ValueError."""
    if ranks < 1 or alone_per_s <= 0:
        raise ValueError(f"{ranks} ranks, {alone_per_s} per second alone: a scale factor needs one of each or more")
    return per_s / (ranks * alone_per_s)


def tokens_per_s(tokens_per_step: float, step_s: float) -> float:
    """Return how many tokens a job trains on per second. Raises ValueError if a step takes no time."""
    if step_s <= 0:
        raise ValueError(f"a step of {step_s} s has no throughput; measure one that takes time")
    return tokens_per_step / step_s


def model_flops_utilisation(flops_per_step: float, step_s: float, ranks: int, peak_flops: float) -> float:
    """Return MFU: what a step computes by the model over what ranks could compute in its time. ``peak_flops``: of a
    rank, per second. Raises ValueError as :func:`tokens_per_s`, and without ranks or a peak."""
    if ranks < 1 or peak_flops <= 0:
        raise ValueError(f"{ranks} ranks of {peak_flops:g} FLOP/s compute nothing; give at least one, and its peak")
    return tokens_per_s(flops_per_step, step_s) / (ranks * peak_flops)


def end_to_end_s(samples: float, samples_per_step: float, step_s: float) -> float:
    """Return how long training on so many samples takes: whole steps, times the time of one."""
    return math.ceil(samples / samples_per_step) * step_s


def time_to_accuracy_s(
    steps: Callable[[Mapping[str, float]], float], setting: Mapping[str, float], step_s: float
) -> float:
    """Return how long training takes: the steps that it needs in a setting (batch size, staleness, ...), which the user
    knows (:mod:`traffic.work.accuracy`), times the time of a step."""
    return steps(setting) * step_s
