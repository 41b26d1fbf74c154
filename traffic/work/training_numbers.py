"""What a training job comes to, by the time of a step that was played."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from traffic.work.list_schedule import Timeline
from traffic.work.models.transformer import Transformer
from traffic.work.step_metrics import compute_s, staleness
from traffic.work.training_job import PlayedTrainingConfig, recorded_last_ranks

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and pandas is large.
    import pandas as pd


def training_numbers(
    config: PlayedTrainingConfig, played_s: float, operations: pd.DataFrame, timelines: Sequence[Timeline]
) -> dict[str, float]:
    """Return what follows from the median time of a played graph: the time of a whole step (``whole_step_s``), samples
    and tokens per second, MFU if the peak is known, and what ``goal`` asks for. ``operations``: the rows of those that
    were recorded; ``timelines``: of steps of which all were."""
    from traffic.work import metrics

    step_s = played_s / config.steps_per_graph
    if config.steady.played < config.micro_batches:
        steps = [rows for _, rows in operations.groupby("step")]
        if not steps:
            return {}
        step_s = mean(metrics.whole_step_s(rows, config.steady, recorded_last_ranks(config)) for rows in steps)
    if step_s <= 0:
        return {}
    samples, shapes, ranks = config.samples_per_step, config.shapes, config.layout.ranks
    found = {"whole_step_s": step_s, "samples_per_s": samples / step_s}
    if config.steady.played < config.micro_batches and timelines:
        found["bubble_fraction"] = _whole_bubble(config, step_s, timelines)
    tokens = samples * shapes.sequence if isinstance(shapes, Transformer) else 0
    if tokens:
        found["tokens_per_s"] = metrics.tokens_per_s(tokens, step_s)
    if (peak := config.compute.peak_flops_per_s) is not None:
        found["mfu_fraction"] = metrics.model_flops_utilisation(config.flops_per_step, step_s, ranks, peak)
    if config.goal.samples is not None:
        found["end_to_end_s"] = metrics.end_to_end_s(config.goal.samples, samples, step_s)
    if (steps_of := config.goal.steps_function) is not None:
        setting = {"batch": samples, "tokens": tokens, "ranks": ranks, "staleness": _staleness(config, timelines)}
        found["steps_to_accuracy"] = steps_of(setting)
        found["time_to_accuracy_s"] = metrics.time_to_accuracy_s(steps_of, setting, step_s)
    return found


def _whole_bubble(config: PlayedTrainingConfig, step_s: float, timelines: Sequence[Timeline]) -> float:
    """Return the time in which ranks compute nothing / that in which they compute, of a whole step by the part of it
    that was played: on average over ranks and steps."""
    times = config.micro_batches / config.steady.played
    computed = [compute_s(one, rank) * times for one in timelines for rank in range(one.graph.ranks)]
    return mean(step_s / one - 1 for one in computed if one)


def _staleness(config: PlayedTrainingConfig, timelines: Sequence[Timeline]) -> float:
    """Return how many pushes of others a gradient missed, on average over workers and steps but their first; 0 where
    all wait for all."""
    if config.is_synchronous or not timelines:
        return 0.0
    of_workers = [steps for one in timelines for steps in staleness(one, config.layout.data).values()]
    missed = [one for steps in of_workers for one in steps[1:]]
    return mean(missed) if missed else 0.0
