"""How long is a step, and how efficient are more GPUs, beside what was published?"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from experiments.training_scaling.config import CaseConfig, TrainingScalingConfig
from experiments.training_scaling.steps import Step
from fabric.records.figure_forms import Bands, Looks, Number
from fabric.records.palette import GREY, series
from fabric.units import format_change
from runs.case_tables import CaseTable
from runs.cases import Case, axis
from runs.study import Found, Outcome, Question


@dataclass(frozen=True)
class Run(Case, name="{case}_{gpus}", title="{case}, {gpus} GPUs"):
    """A training job on a number of GPUs, which is put together of the phases of its pieces."""

    case: CaseConfig = axis(name=attrgetter("name"), words=attrgetter("name"))
    gpus: int = axis()
    step: Step | None = None

    @property
    def played(self) -> Step:
        """Its step, once its pieces were played."""
        assert self.step is not None
        return self.step


Runs = Found[Run, TrainingScalingConfig]


def _aside(found: Runs, one: Outcome[Run]) -> dict[str, float]:
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


SCALING = Question[Run, TrainingScalingConfig](
    aside=_aside,
    answer=_answer,
    tables=(
        CaseTable(
            "Time of a step, s",
            "case {case}, GPUs {gpus}, published {published_step_s|.3f in s}, schedule {step_s|.3f in s}, "
            "in packets {played_step_s|.3f in s}, error {error_fraction|+.1%}, efficiency {efficiency|.1%}, "
            "published efficiency {published_efficiency|.1%}, all at once, schedule {step_at_once_s|.3f in s}, "
            "all at once, in packets {played_step_at_once_s|.3f in s}, with NCCL {step_with_nccl_s|.3f in s}",
            "computing is fitted on the smallest run of each case, if that was published, and nothing else; "
            "schedule: on paper, communications as long as they took alone; in packets: a steady part of the "
            "pipeline was played, too; all at once: copies on a node are not staggered",
        ),
    ),
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
