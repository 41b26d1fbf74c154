"""How does training scale with GPUs, and what binds?

Pieces of communication are played in packets, each alone; a schedule on paper puts them together with computing, whose
time is the paper's smallest run less its own communication here. Where a case says so, its pipeline is played in
packets, too, and that step stands beside the schedule's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from experiments.training_scaling.config import CaseConfig, TrainingScalingConfig
from experiments.training_scaling.playing import HFREDUCE, NCCL, play_collectives, play_messages, play_pipeline
from experiments.training_scaling.prediction import (
    Durations,
    Pieces,
    Point,
    Prediction,
    fitted_forward_s,
    point_of,
    predicted,
)
from fabric.metrics import Metric
from fabric.records.cells import Quantity, Row, count_of, joined, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_change
from runs.session import Session
from traffic.work.generators.plan import ACTIVATION_BYTES
from traffic.work.models.transformer import Transformer

_DEFAULT_MESSAGE_BYTES = 2**24


@dataclass(frozen=True)
class Outcome:
    """What was found of a case at a number of GPUs: on paper with HFReduce, with NCCL, and without staggering; in
    packets, if its pipeline was played."""

    point: Point
    paper: Prediction
    with_nccl: Prediction
    at_once: Prediction
    played_s: float | None = None
    played_at_once_s: float | None = None
    played_again_s: float | None = None
    """The same as ``played_s``, by more micro-batches."""

    @property
    def published_s(self) -> float | None:
        """The published time of a step."""
        return next(one.step for one in self.point.case.points if one.gpus == self.point.gpus)


@dataclass(frozen=True)
class CaseOutcome:
    """What was found of a case. ``forward_s``: the time of a micro-batch's forward pass that was fitted, or None."""

    case: CaseConfig
    forward_s: float | None
    points: list[Outcome] = field(default_factory=list)


def run_training_scaling(session: Session, config: TrainingScalingConfig) -> dict[str, Any]:
    """Play the pieces, put them together, and return the summary."""
    session.use_queueing(config.queueing)
    points = [point_of(case, one.gpus, None) for case in config.cases for one in case.points]
    message, burst = play_messages(session, config, message_bytes(config))
    pieces = Pieces(play_collectives(session, config, points), message, burst)
    found = [outcome_of(case, pieces) for case in config.cases]
    found = [_with_packets(session, config, one, pieces) if one.case.in_packets else one for one in found]
    return summarize(config, pieces, found)


def message_bytes(config: TrainingScalingConfig) -> int:
    """Return the size of a message between stages of the first case that has any."""
    for case in config.cases:
        model = case.training.shapes
        if case.training.layout.pipeline > 1 and isinstance(model, Transformer):
            return ACTIVATION_BYTES * case.training.micro_batch * model.sequence * model.hidden
    return _DEFAULT_MESSAGE_BYTES


def outcome_of(case: CaseConfig, pieces: Pieces) -> CaseOutcome:
    """Return what pieces and a schedule say of a case (pure)."""
    staggered = case.training.pipeline.stagger
    forward_s = fitted_forward_s(case, pieces, HFREDUCE, burst=not staggered)
    found = CaseOutcome(case, forward_s)
    for one in case.points:
        point = point_of(case, one.gpus, forward_s)
        off = without_staggering(point)
        found.points.append(
            Outcome(
                point,
                predicted(point, Durations(pieces, point, HFREDUCE, burst=not staggered)),
                predicted(point, Durations(pieces, point, NCCL, burst=not staggered)),
                predicted(off, Durations(pieces, off, HFREDUCE, burst=True)),
            )
        )
    return found


def without_staggering(point: Point) -> Point:
    """Return the same point with all copies of a stage in step."""
    pipeline = point.training.pipeline.model_copy(update={"stagger": False})
    return replace(point, training=point.training.model_copy(update={"pipeline": pipeline}))


def _with_packets(session: Session, config: TrainingScalingConfig, found: CaseOutcome, pieces: Pieces) -> CaseOutcome:
    """Play the pipeline of a case's smallest point, and put the other points together from the same steady part: they
    have other numbers of micro-batches, and other gradients, behind the last of them."""
    first = found.points[0]

    def whole_s(point: Point) -> list[float]:
        end_s, period_s = play_pipeline(session, config, found.case, point, pieces)
        return [_whole_s(one, first, point, end_s, period_s) for one in found.points]

    played_s, at_once_s = whole_s(first.point), whole_s(without_staggering(first.point))
    again_s: list[float | None] = [None] * len(played_s)
    if (more := found.case.played_again) is not None:
        training = first.point.training.model_copy(update={"played": more})
        again_s = [*whole_s(replace(first.point, training=training))]
    points = [
        replace(one, played_s=on, played_at_once_s=off, played_again_s=again)
        for one, on, off, again in zip(found.points, played_s, at_once_s, again_s, strict=True)
    ]
    return CaseOutcome(found.case, found.forward_s, points)


def _whole_s(one: Outcome, first: Outcome, played: Point, end_s: float, period_s: float) -> float:
    """Return the time of a point's step by a part of the smallest point's that was played: with its own number of
    micro-batches, and its own gradients behind the last."""
    part = replace(one.point.training.steady, played=played.training.steady.played)
    return part.step_s(end_s, period_s) + one.paper.gradients_s - first.paper.gradients_s


def summarize(config: TrainingScalingConfig, pieces: Pieces, found: list[CaseOutcome]) -> dict[str, Any]:
    """Return the summary."""
    return {
        "title": "Training on growing numbers of GPUs",
        "answer": _answer(found),
        "metrics": [metric for one in found for outcome in one.points for metric in _metrics(one.case.name, outcome)],
        "tables": [_steps_table(found), *_again_table(found), _waits_table(found), _pieces_table(config, pieces)],
        "scaling": [_described(one) for one in found],
    }


def error_of(outcome: Outcome) -> float | None:
    """Return the relative error of a prediction, in packets if they were played; None if nothing was published."""
    if outcome.published_s is None:
        return None
    return (outcome.played_s or outcome.paper.step_s) / outcome.published_s - 1


def _answer(found: list[CaseOutcome]) -> str:
    told = []
    for one in found:
        last = one.points[-1]
        error = error_of(last)
        if error is None:
            told.append(f"{one.case.name} {efficiency_of(one, last):.0%} efficient at {last.point.gpus} GPUs")
        else:
            step_s = last.played_s or last.paper.step_s
            off = format_change(error)
            told.append(f"{one.case.name} {step_s:.3f} s at {last.point.gpus} GPUs ({off} of the published)")
    return f"Computing fitted on each smallest run alone: {'; '.join(told)}."


def efficiency_of(found: CaseOutcome, outcome: Outcome) -> float:
    """Return how efficient a point is beside the case's smallest: how many times as fast, by how many times the GPUs;
    of weak scaling, the smallest one's time / its own."""
    first = found.points[0]
    grown = outcome.point.gpus / first.point.gpus if found.case.batch is not None else 1.0
    return first.paper.step_s / outcome.paper.step_s / grown


def published_efficiency(case: CaseConfig, gpus: int) -> float | None:
    """Return the published efficiency at a number of GPUs: as it is, or by the steps' times; None if neither was."""
    first, here = case.points[0], next(one for one in case.points if one.gpus == gpus)
    if here.efficiency is not None or first.step is None or here.step is None:
        return here.efficiency
    grown = gpus / first.gpus if case.batch is not None else 1.0
    return first.step / here.step / grown


def _metrics(case: str, one: Outcome) -> list[Metric]:
    phase = f"{case}_{one.point.gpus}"
    numbers = {
        "step_s": one.paper.step_s,
        "step_with_nccl_s": one.with_nccl.step_s,
        "step_at_once_s": one.at_once.step_s,
        "compute_s": one.paper.compute_s,
        "bubble_fraction": one.paper.bubble,
        "gradients_s": one.paper.gradients_s,
        "played_step_s": one.played_s,
        "played_step_at_once_s": one.played_at_once_s,
        "played_again_step_s": one.played_again_s,
        "published_step_s": one.published_s,
        "error_fraction": error_of(one),
    }
    return [Metric(phase, "", name, value) for name, value in numbers.items() if value is not None]


def _seconds(value_s: float | None) -> Quantity:
    return quantity(value_s, ".3f in s")


def _steps_table(found: list[CaseOutcome]) -> SummaryTable:
    rows: list[Row] = []
    for case in found:
        for one in case.points:
            error = error_of(one)
            published = published_efficiency(case.case, one.point.gpus)
            rows.append(
                [
                    case.case.name,
                    count_of(one.point.gpus),
                    _seconds(one.published_s),
                    _seconds(one.paper.step_s),
                    _seconds(one.played_s),
                    quantity(error, "+.1%"),
                    quantity(efficiency_of(case, one), ".1%"),
                    quantity(published, ".1%"),
                    _seconds(one.at_once.step_s),
                    _seconds(one.played_at_once_s),
                    _seconds(one.with_nccl.step_s),
                ]
            )
    return SummaryTable(
        title="Time of a step, s",
        columns=["case", "GPUs", "published", "schedule", "in packets", "error", "efficiency", "published efficiency",
                 "all at once, schedule", "all at once, in packets", "with NCCL"],
        rows=rows,
        note="computing is fitted on the smallest run of each case, if that was published, and nothing else; "
        "schedule: on paper, communications as long as they took alone; in packets: a steady part of the "
        "pipeline was played, too; all at once: copies on a node are not staggered",
    )  # fmt: skip


def _again_table(found: list[CaseOutcome]) -> list[SummaryTable]:
    """Return what more micro-batches say, if some case played them."""
    rows: list[Row] = [
        [
            case.case.name,
            count_of(one.point.gpus),
            (count_of(one.point.training.steady.played), ": ", quantity(one.played_s, ".4f in s")),
            (count_of(case.case.played_again), ": ", quantity(one.played_again_s, ".4f in s")),
            quantity(one.played_again_s / one.played_s - 1, "+.3%"),
        ]
        for case in found
        for one in case.points
        if one.played_again_s is not None and one.played_s is not None
    ]
    columns = ["case", "GPUs", "by micro-batches", "by more", "difference"]
    return [SummaryTable("Time of a step in packets by more micro-batches, s", columns, rows)] if rows else []


def _waits_table(found: list[CaseOutcome]) -> SummaryTable:
    rows: list[Row] = []
    for case in found:
        for one in case.points:
            steady = one.point.training.steady
            waits = joined((f"{kind} ", _seconds(seconds)) for kind, seconds in one.paper.exposed_s.items())
            rows.append(
                [
                    case.case.name,
                    count_of(one.point.gpus),
                    (count_of(steady.played), " of ", count_of(steady.micro_batches)),
                    _seconds(one.paper.compute_s),
                    quantity(one.paper.bubble, ".1%"),
                    waits or "nothing",
                    _seconds(one.paper.gradients_s),
                    count_of(one.point.nodes),
                ]
            )
    return SummaryTable(
        title="What a rank of the last stage does, s",
        columns=[
            "case",
            "GPUs",
            "micro-batches played",
            "computes",
            "idle / computing",
            "waits for",
            "gradients",
            "over nodes",
        ],
        rows=rows,
        note="waits for: in the micro-batches that are played; pipeline: the other stages' computing in it",
    )


def _pieces_table(config: TrainingScalingConfig, pieces: Pieces) -> SummaryTable:
    rows: list[Row] = [
        [what, count_of(nodes), quantity(line.bytes_per_s, ".3g in GB/s"), quantity(line.base_s, ".0f in us")]
        for (what, nodes), line in pieces.collectives.items()
    ]
    rows += [
        [what, count_of(2), quantity(line.bytes_per_s, ".3g in GB/s"), quantity(line.base_s, ".0f in us")]
        for what, line in (("message, alone", pieces.message), ("message, all GPUs at once", pieces.burst))
    ]
    return SummaryTable(
        title="Pieces that were played",
        columns=["what", "nodes", "GB/s", "and us"],
        rows=rows,
        note=f"points over other numbers of nodes take the nearest of {', '.join(map(str, config.nodes))}",
    )


def _described(found: CaseOutcome) -> dict[str, Any]:
    return {
        "case": found.case.name,
        "forward_s": found.forward_s,
        "is_strong": found.case.batch is not None,
        "points": [
            {
                "gpus": one.point.gpus,
                "published_s": one.published_s,
                "published_efficiency": published_efficiency(found.case, one.point.gpus),
                "step_s": one.paper.step_s,
                "played_s": one.played_s,
                "nccl_s": one.with_nccl.step_s,
                "compute_s": one.paper.compute_s,
                "exposed_s": dict(one.paper.exposed_s),
            }
            for one in found.points
        ],
    }
