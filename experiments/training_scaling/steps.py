"""Steps of runs put together of pieces that were played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.training_scaling.config import CaseConfig, TrainingScalingConfig
from experiments.training_scaling.pipelines import play_pipeline
from experiments.training_scaling.playing import HFREDUCE, NCCL
from experiments.training_scaling.prediction import Point, fitted_forward_s, point_of
from runs.session import Session
from traffic.work.composition import Durations, Pieces, Prediction, predicted


@dataclass(frozen=True)
class Step:
    """A step of a run, put together of ``pieces``: on paper with HFReduce, with NCCL, and without staggering; in
    packets, if its pipeline was played, and by more micro-batches (``played_again_s``)."""

    point: Point
    pieces: Pieces
    paper: Prediction
    with_nccl: Prediction
    at_once: Prediction
    played_s: float | None = None
    played_at_once_s: float | None = None
    played_again_s: float | None = None

    @property
    def published_s(self) -> float | None:
        """The published time of a step."""
        return next(one.step for one in self.point.case.points if one.gpus == self.point.gpus)

    @property
    def error(self) -> float | None:
        """The relative error of the time, in packets if they were played; None if nothing was published."""
        return None if self.published_s is None else (self.played_s or self.paper.step_s) / self.published_s - 1

    @property
    def numbers(self) -> dict[str, float]:
        """What is known of it, by the names of metrics."""
        found = {
            "step_s": self.paper.step_s,
            "step_with_nccl_s": self.with_nccl.step_s,
            "step_at_once_s": self.at_once.step_s,
            "compute_s": self.paper.compute_s,
            "bubble_fraction": self.paper.bubble,
            "gradients_s": self.paper.gradients_s,
            "played_step_s": self.played_s,
            "played_step_at_once_s": self.played_at_once_s,
            "played_again_step_s": self.played_again_s,
            "published_step_s": self.published_s,
            "error_fraction": self.error,
        }
        return {name: value for name, value in found.items() if value is not None}


def steps_of(case: CaseConfig, pieces: Pieces) -> list[Step]:
    """The numbers of a case that follow from pieces and a schedule (pure)."""
    staggered = case.training.pipeline.stagger
    forward_s = fitted_forward_s(case, pieces, HFREDUCE, burst=not staggered)
    found = []
    for one in case.points:
        point = point_of(case, one.gpus, forward_s)
        off = without_staggering(point)
        ours, theirs = (
            predicted(point.training, Durations(pieces, point.nodes, name, burst=not staggered))
            for name in (HFREDUCE, NCCL)
        )
        at_once = predicted(off.training, Durations(pieces, off.nodes, HFREDUCE, burst=True))
        found.append(Step(point, pieces, ours, theirs, at_once))
    return found


def without_staggering(point: Point) -> Point:
    """Return the same point with all copies of a stage in step."""
    pipeline = point.training.pipeline.model_copy(update={"stagger": False})
    return replace(point, training=point.training.model_copy(update={"pipeline": pipeline}))


def with_packets(session: Session, config: TrainingScalingConfig, steps: Sequence[Step]) -> list[Step]:
    """Play the pipeline of a case's smallest point, and put the other points together from the same steady part: they
    have other numbers of micro-batches, and other gradients, behind the last of them."""
    first = steps[0]
    case = first.point.case

    def whole_s(point: Point) -> list[float]:
        end_s, period_s = play_pipeline(session, config, case, point, first.pieces)
        return [_whole_s(one, first, point, end_s, period_s) for one in steps]

    played_s, at_once_s = whole_s(first.point), whole_s(without_staggering(first.point))
    again_s: list[float | None] = [None] * len(played_s)
    if (more := case.played_again) is not None:
        training = first.point.training.model_copy(update={"played": more})
        again_s = [*whole_s(replace(first.point, training=training))]
    return [
        replace(one, played_s=on, played_at_once_s=off, played_again_s=again)
        for one, on, off, again in zip(steps, played_s, at_once_s, again_s, strict=True)
    ]


def _whole_s(one: Step, first: Step, played: Point, end_s: float, period_s: float) -> float:
    """Return the time of a point's step by a part of the smallest point's that was played: with its own number of
    micro-batches, and its own gradients behind the last."""
    part = replace(one.point.training.steady, played=played.training.steady.played)
    return part.step_s(end_s, period_s) + one.paper.gradients_s - first.paper.gradients_s
