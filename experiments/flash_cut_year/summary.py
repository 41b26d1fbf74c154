"""The results of a replayed year: tables, metrics and a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.flash_cut_year.goodput import LostWork, overlapping_fraction_in_days
from experiments.link_flap.summary import Rows, failed_table, time_text
from fabric.metrics import Metric, metric_path
from fabric.model.lanes import ServiceLevel
from fabric.records.cells import Row, count_of, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import exact, format_time
from traffic.storage.client.verification import Verification

_YEAR_S = 365 * 86_400.0


@dataclass(frozen=True)
class YearScenario:
    """A year as it was played: under which policy, with cuts how long, in which phase, how long and how compressed."""

    routing: str
    duration_s: float
    phase: str
    length_s: float
    compression: float
    cuts_a_day: tuple[int, ...]


@dataclass(frozen=True)
class PlayedYear:
    """What a year cost. Fractions are of the undisturbed; ``hits`` are pairs of a cut and a job that felt it.

    ``overlapping``: the part of the cuts during which another link was down, too. ``failed``: jobs that gave up.
    """

    played: YearScenario
    cuts: int
    overlapping: float
    training_lost: float
    storage_lost: float
    hits: int
    cuts_felt: int
    jobs: int
    jobs_hit: int
    blackout_s: float
    probe_flows: int
    failed: int

    @property
    def label(self) -> str:
        """How metrics call it."""
        return metric_path(self.played.routing, self.duration)

    @property
    def duration(self) -> str:
        """How long its cuts are, as metrics have it."""
        return f"{exact(round(self.played.duration_s * 1e3, 9))}ms"

    @property
    def lost_per_cut_s(self) -> float:
        """Job-seconds of training lost to a cut."""
        return self.training_lost * self.played.length_s * self.jobs / max(1, self.cuts)

    @property
    def lost_in_a_year_fraction(self) -> float:
        """What part of a year's training its cuts would cost uncompressed, if each cost what it does here."""
        return self.lost_per_cut_s * self.cuts / (self.jobs * _YEAR_S * len(self.played.cuts_a_day) / 365)

    @property
    def metrics(self) -> Iterator[Metric]:
        """Its numbers, those of the years of a routing in one phase."""
        numbers = {
            "cuts": float(self.cuts),
            "training_lost_fraction": self.training_lost,
            "storage_lost_fraction": self.storage_lost,
            "training_lost_per_cut_s": self.lost_per_cut_s,
            "job_hits": float(self.hits),
            "cuts_felt": float(self.cuts_felt),
            "jobs_hit": float(self.jobs_hit),
            "blackout_s": self.blackout_s,
            "jobs_failed": float(self.failed),
            "overlapping_fraction": self.overlapping,
        }
        for name, value in numbers.items():
            job = ServiceLevel.STORAGE.label if name == "storage_lost_fraction" else ""
            yield Metric(self.played.routing, job, metric_path(self.duration, name), value, is_named_by_job=False)


def summarize(
    session: Rows, years: Sequence[PlayedYear], checkpoint_interval_s: float, written: Verification
) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run of ``flash_cut_year``."""
    return {
        "title": "A year of link flash cuts, replayed",
        "answer": _answer(years, checkpoint_interval_s, written),
        "metrics": [metric for year in years for metric in year.metrics],
        "tables": [
            _cost_table(years, checkpoint_interval_s),
            _overlap_table(years),
            failed_table(session, _cut_counts(years), written),
        ],
        "compression": years[0].played.compression,
        "acknowledged_writes": written.counts,
    }


def _cut_counts(years: Sequence[PlayedYear]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for year in years:
        counts[year.played.routing] = counts.get(year.played.routing, 0) + year.cuts
    return counts


def _cost_table(years: Sequence[PlayedYear], checkpoint_interval_s: float) -> SummaryTable:
    rows: list[Row] = []
    for year in years:
        work = LostWork(year.failed, checkpoint_interval_s)
        rows.append(
            [
                year.played.routing,
                quantity(year.played.duration_s, "time"),
                count_of(year.cuts),
                quantity(year.training_lost, ".1%"),
                quantity(year.lost_per_cut_s, "time"),
                quantity(year.storage_lost, ".1%"),
                count_of(year.cuts_felt),
                count_of(year.hits),
                quantity(year.blackout_s, "time"),
                count_of(year.failed),
                quantity(work.expected_s, ".0f s"),
            ]
        )
    return SummaryTable(
        title="What the year cost, compared with the same time without cuts",
        columns=[
            "policy", "cuts last", "cuts", "training lost", "job-time per cut", "storage lost", "cuts felt", "job hits",
            "sum of blackouts", "jobs failed", "work lost",
        ],
        rows=rows,
        note=f"training: steps of {years[0].jobs} jobs; felt: a step was longer than any undisturbed one; "
        f"blackouts: of {years[0].probe_flows} flows that together cross every link between computes; work lost: "
        f"expected, if a failed job returns to its last checkpoint, one per {format_time(checkpoint_interval_s)}",
    )  # fmt: skip


def _overlap_table(years: Sequence[PlayedYear]) -> SummaryTable:
    rows: list[Row] = []
    for duration_s in dict.fromkeys(year.played.duration_s for year in years):
        year = next(one for one in years if one.played.duration_s == duration_s)
        days = year.played.cuts_a_day
        rows.append(
            [
                quantity(duration_s, "time"),
                quantity(year.overlapping, ".1%"),
                quantity(overlapping_fraction_in_days(days, duration_s), ".2g"),
                quantity(overlapping_fraction_in_days(days, duration_s * year.played.compression), ".1%"),
            ]
        )
    return SummaryTable(
        title=f"Overlaps by compression of {years[0].played.compression:,.0f}",
        columns=[
            "cuts last",
            "overlapping cuts, here",
            "in days of 24 h",
            "in days of 24 h, cuts stretched in proportion",
        ],
        rows=rows,
        note="compression shortens days, not cuts: so goodput lost here is not that of a year; the cost of a single "
        "cut carries over, as far as cuts do not overlap",
    )


def _answer(years: Sequence[PlayedYear], checkpoint_interval_s: float, written: Verification) -> str:
    sentences = [
        f"{year.played.routing}, cuts of {format_time(year.played.duration_s)}: {year.training_lost:.1%} of training "
        f"and {year.storage_lost:.1%} of storage lost, {time_text(year.lost_per_cut_s)} of one job's time per cut, "
        f"{year.failed} jobs failed."
        for year in years
    ]
    first, worst = years[0], max(years, key=lambda year: year.lost_per_cut_s)
    sentences.append(
        f"Time is compressed {first.played.compression:,.0f} times, so cuts overlap: in a real year the costliest of "
        f"these ({worst.label}) would cost {worst.lost_in_a_year_fraction:.2g} of the training, in addition to "
        f"{LostWork(worst.failed, checkpoint_interval_s).expected_s:.0f} s of work lost with jobs that failed."
    )
    sentences.append(written.sentence)
    return " ".join(sentences)
