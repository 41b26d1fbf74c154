"""How does training scale with GPUs, and what binds?

Pieces of communication are played in packets, each alone; a schedule on paper puts them together with computing, whose
time is the paper's smallest run less its own communication here. Where a case says so, its pipeline is played in
packets, too, and that step stands beside the schedule's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from experiments.training_scaling.config import CaseConfig, TrainingScalingConfig
from experiments.training_scaling.playing import HFREDUCE, NCCL, play_collectives, play_messages, play_pipeline
from experiments.training_scaling.prediction import Point, fitted_forward_s, point_of
from fabric.measures import Better, Measure
from fabric.metrics import Metric
from fabric.records.cells import Cell, count_of, joined, quantity
from fabric.records.figure_forms import Bands, Looks, Number
from fabric.records.palette import GREY, series
from fabric.records.summary_table import SummaryTable
from fabric.units import format_change
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.session import Session
from runs.study import Found, Outcome, Study
from traffic.work.composition import Durations, Line, Pieces, Prediction, predicted
from traffic.work.generators.plan import ACTIVATION_BYTES
from traffic.work.models.transformer import Transformer

_DEFAULT_MESSAGE_BYTES = 2**24
_SECONDS = ".3f in s"
MEASURES = (
    Measure(
        "step_s",
        "time of a step on paper, of pieces that were played, with collectives at the rates of ours",
        Better.LESS,
    ),
    Measure("step_with_nccl_s", "time of a step on paper with NCCL's collectives", Better.LESS),
    Measure(
        "step_at_once_s", "time of a step on paper if gradients are reduced only once all are computed", Better.LESS
    ),
    Measure("compute_s", "time that a rank computes in a step"),
    Measure("gradients_s", "time that the gradients of the first stage take", Better.LESS),
    Measure("played_step_s", "time of a step that was played in packets", Better.LESS),
    Measure(
        "played_step_at_once_s",
        "time of a step that was played in packets, with gradients reduced only at its end",
        Better.LESS,
    ),
    Measure("played_again_step_s", "time of a step by a shorter one that was played in packets", Better.LESS),
    Measure("published_step_s", "time of a step as it was published"),
    Measure("error_fraction", "difference of the step's time from the published one, over that"),
)


@dataclass(frozen=True)
class Run(Case, name="{case}_{gpus}", title="{case}, {gpus} GPUs"):
    """A training job on a number of GPUs, which is put together of the phases of its pieces."""

    case: CaseConfig = axis(name=attrgetter("name"), words=attrgetter("name"))
    gpus: int = axis()


def cases(config: TrainingScalingConfig) -> tuple[Run, ...]:
    """Return every case's numbers of GPUs, the smallest first."""
    return tuple(Run(case, one.gpus) for case in config.cases for one in case.points)


# Steps ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A step of a run: on paper with HFReduce, with NCCL, and without staggering; in packets, if its pipeline was
    played. ``forward_s``: the time of a micro-batch's forward pass that was fitted, or None."""

    point: Point
    forward_s: float | None
    paper: Prediction
    with_nccl: Prediction
    at_once: Prediction
    played_s: float | None = None
    played_at_once_s: float | None = None
    played_again_s: float | None = None
    """The same as ``played_s``, by more micro-batches."""

    @property
    def run(self) -> Run:
        """The run that it is of."""
        return Run(self.point.case, self.point.gpus)

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


def run_training_scaling(session: Session, config: TrainingScalingConfig) -> dict[str, Any]:
    """Play the pieces, put them together, and return the summary."""
    session.use_queueing(config.queueing)
    points = [point_of(one.case, one.gpus, None) for one in cases(config)]
    message, burst = play_messages(session, config, message_bytes(config))
    pieces = Pieces(play_collectives(session, config, points), message, burst)
    steps = []
    for case in config.cases:
        found = steps_of(case, pieces)
        steps += with_packets(session, config, found, pieces) if case.in_packets else found
    return summarize(session, config, pieces, steps)


def summarize(session: Session, config: TrainingScalingConfig, pieces: Pieces, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the summary of steps, whose tables show the pieces, too."""
    by_name = {one.run.name: one for one in steps}
    study = replace(STUDY, tables=lambda found: [*_tables(found, by_name), _pieces_table(config, pieces)])
    counted = {name: step.numbers for name, step in by_name.items()}
    return study.summarize(session, config, [one.run for one in steps], counted)


def message_bytes(config: TrainingScalingConfig) -> int:
    """Return the size of a message between stages of the first case that has any."""
    for case in config.cases:
        model = case.training.shapes
        if case.training.layout.pipeline > 1 and isinstance(model, Transformer):
            return ACTIVATION_BYTES * case.training.micro_batch * model.sequence * model.hidden
    return _DEFAULT_MESSAGE_BYTES


def steps_of(case: CaseConfig, pieces: Pieces) -> list[Step]:
    """Return what pieces and a schedule say of a case (pure)."""
    staggered = case.training.pipeline.stagger
    forward_s = fitted_forward_s(case, pieces, HFREDUCE, burst=not staggered)
    found = []
    for one in case.points:
        point = point_of(case, one.gpus, forward_s)
        off = without_staggering(point)
        found.append(
            Step(
                point,
                forward_s,
                predicted(point.training, Durations(pieces, point.nodes, HFREDUCE, burst=not staggered)),
                predicted(point.training, Durations(pieces, point.nodes, NCCL, burst=not staggered)),
                predicted(off.training, Durations(pieces, off.nodes, HFREDUCE, burst=True)),
            )
        )
    return found


def without_staggering(point: Point) -> Point:
    """Return the same point with all copies of a stage in step."""
    pipeline = point.training.pipeline.model_copy(update={"stagger": False})
    return replace(point, training=point.training.model_copy(update={"pipeline": pipeline}))


def with_packets(session: Session, config: TrainingScalingConfig, steps: Sequence[Step], pieces: Pieces) -> list[Step]:
    """Play the pipeline of a case's smallest point, and put the other points together from the same steady part: they
    have other numbers of micro-batches, and other gradients, behind the last of them."""
    first = steps[0]
    case = first.point.case

    def whole_s(point: Point) -> list[float]:
        end_s, period_s = play_pipeline(session, config, case, point, pieces)
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


# What is said of them -------------------------------------------------------------------------------------------------

RunOutcome = Outcome[Run]
Runs = Found[Run, TrainingScalingConfig]


def _aside(found: Runs, one: RunOutcome) -> dict[str, float]:
    """Return how efficient a run is beside the case's smallest: how many times as fast, by how many times the GPUs; of
    weak scaling, the smallest one's time / its own."""
    case, first = one.case.case, next(base for base in found.outcomes if base.case.case == one.case.case)
    grown = one.case.gpus / first.case.gpus if case.batch is not None else 1.0
    times = {"efficiency": "step_s", "played_efficiency": "played_step_s", "nccl_efficiency": "step_with_nccl_s"}
    shares = {name: first["step_s"] / one[time] / grown for name, time in times.items() if time in one.values}
    published = published_efficiency(case, one.case.gpus)
    return shares | ({} if published is None else {"published_efficiency": published})


def published_efficiency(case: CaseConfig, gpus: int) -> float | None:
    """Return the published efficiency at a number of GPUs: as it is, or by the steps' times; None if neither was."""
    first, here = case.points[0], next(one for one in case.points if one.gpus == gpus)
    if here.efficiency is not None or first.step is None or here.step is None:
        return here.efficiency
    grown = gpus / first.gpus if case.batch is not None else 1.0
    return first.step / here.step / grown


def _answer(found: Runs) -> str:
    last = {one.case.case.name: one for one in found.outcomes}
    told = []
    for name, one in last.items():
        if "error_fraction" in one.values:
            step_s, off = one.values.get("played_step_s", one["step_s"]), format_change(one["error_fraction"])
            told.append(f"{name} {step_s:.3f} s at {one.case.gpus} GPUs ({off} of the published)")
        else:
            told.append(f"{name} {one['efficiency']:.0%} efficient at {one.case.gpus} GPUs")
    return f"Computing fitted on each smallest run alone: {'; '.join(told)}."


def _seconds(head: str, name: str) -> Column:
    return Column(head, name, _SECONDS)


_OF_RUN = (Column("case", "case"), Column("GPUs", "gpus"))


def _tables(found: Runs, steps: Mapping[str, Step]) -> Iterator[SummaryTable]:
    yield case_table(
        "Time of a step, s",
        found.outcomes,
        (
            *_OF_RUN,
            _seconds("published", "published_step_s"),
            _seconds("schedule", "step_s"),
            _seconds("in packets", "played_step_s"),
            Column("error", "error_fraction", "+.1%"),
            Column("efficiency", "efficiency", ".1%"),
            Column("published efficiency", "published_efficiency", ".1%"),
            _seconds("all at once, schedule", "step_at_once_s"),
            _seconds("all at once, in packets", "played_step_at_once_s"),
            _seconds("with NCCL", "step_with_nccl_s"),
        ),
        "computing is fitted on the smallest run of each case, if that was published, and nothing else; "
        "schedule: on paper, communications as long as they took alone; in packets: a steady part of the "
        "pipeline was played, too; all at once: copies on a node are not staggered",
    )

    def by(count: int | None, step_s: float) -> Cell:
        return count_of(count), ": ", quantity(step_s, ".4f in s")

    def played(one: RunOutcome) -> int:
        return steps[one.case.name].point.training.steady.played

    yield case_table(
        "Time of a step in packets by more micro-batches, s",
        [one for one in found.outcomes if "played_again_step_s" in one.values],
        (
            *_OF_RUN,
            Column("by micro-batches", lambda one: by(played(one), one["played_step_s"])),
            Column("by more", lambda one: by(one.case.case.played_again, one["played_again_step_s"])),
            Column("difference", lambda one: one["played_again_step_s"] / one["played_step_s"] - 1, "+.3%"),
        ),
    )

    def waits(one: RunOutcome) -> Cell:
        exposed_s = steps[one.case.name].paper.exposed_s
        return joined((f"{kind} ", quantity(seconds, _SECONDS)) for kind, seconds in exposed_s.items()) or "nothing"

    def part(one: RunOutcome) -> Cell:
        steady = steps[one.case.name].point.training.steady
        return count_of(steady.played), " of ", count_of(steady.micro_batches)

    yield case_table(
        "What a rank of the last stage does, s",
        found.outcomes,
        (
            *_OF_RUN,
            Column("micro-batches played", part),
            _seconds("computes", "compute_s"),
            Column("idle / computing", "bubble_fraction", ".1%"),
            Column("waits for", waits),
            _seconds("gradients", "gradients_s"),
            Column("over nodes", lambda one: steps[one.case.name].point.nodes),
        ),
        "waits for: in the micro-batches that are played; pipeline: the other stages' computing in it",
    )


def _pieces_table(config: TrainingScalingConfig, pieces: Pieces) -> SummaryTable:
    lines: list[tuple[str, int, Line]] = [(what, nodes, line) for (what, nodes), line in pieces.collectives.items()]
    lines += [("message, alone", 2, pieces.message), ("message, all GPUs at once", 2, pieces.burst)]
    return case_table(
        "Pieces that were played",
        lines,
        (
            Column("what", lambda row: row[0]),
            Column("nodes", lambda row: row[1]),
            Column("GB/s", lambda row: row[2].bytes_per_s, ".3g in GB/s"),
            Column("and us", lambda row: row[2].base_s, ".0f in us"),
        ),
        f"points over other numbers of nodes take the nearest of {', '.join(map(str, config.nodes))}",
    )


STUDY = Study(
    title="Training on growing numbers of GPUs",
    cases=cases,
    measure=lambda played: [Metric(played.case.name, "", *one) for one in played.counted.items()],
    measures=MEASURES,
    aside=_aside,
    answer=_answer,
    tables=lambda found: (),
    figures=(
        Bands(
            "scaling",
            "Efficiency by number of GPUs: by the schedule, in packets, with NCCL in place of HFReduce, and published.",
            "Efficiency by number of GPUs",
            numbers=(
                Number("efficiency", "schedule"),
                Number("nccl_efficiency", "with NCCL"),
                Number("played_efficiency", "in packets", marker="s", colour=series(5), size=5.0),
                Number("published_efficiency", "published", marker="x", colour=GREY, size=8.0),
            ),
            x="{gpus}",
            panels="{case}",
            labels=("number of GPUs", "speed kept per GPU, of the smallest's by the schedule"),
            looks=Looks(12.0, 3.8, percent_y=True),
        ),
    ),
)
