"""How fast is each collective by each algorithm over sizes, beside its closed form?

Each has the idle fabric to itself, in a job that plays one size after another, as nccl-tests does: some steps that open
TCP's windows, then those that count; then all again with results in the place of inputs. Every rank checks every
element of every step, and a wrong one ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from experiments.collectives.cases import Play, plays
from experiments.collectives.config import CollectivesConfig
from fabric.measures import Better, Measure
from fabric.metrics import Metric, Numbers, metrics_of
from fabric.model.identity import NodeId
from fabric.records.cells import Cell, quantity
from fabric.records.figure_forms import Bars, Level, Lines, Looks, Number, Places
from fabric.records.palette import GREY, INK
from fabric.records.summary_table import SummaryTable
from fabric.units import format_size
from runs.case_tables import Column, case_table
from runs.jobs import started
from runs.placement import RankOrder, crowding_of, ideal_algbw_Bps, order_ranks, ranks_of
from runs.session import Session
from runs.study import Found, Outcome, Played, Point, Study
from runs.true_scale import true_rate
from traffic import metrics
from traffic.collectives.collective import Flows
from traffic.collectives.job import CollectiveJob
from traffic.stepped_job import FiniteSteps

NEAR = 0.95
"""A share of the closed form above which it is called reached."""
NOT_PLAYED = "N/A"
TIME = Measure("size_<bytes>.time_s", "time of a collective of so many bytes, out of place, mean", Better.LESS)
BUSBW = Measure("size_<bytes>.busbw_Bps", "its algbw times the factor of nccl-tests", Better.MORE)
IN_PLACE = Measure("size_<bytes>.in_place.time_s", "time of a collective of so many bytes, in place, mean", Better.LESS)
REACHED, IDEAL, CROWDING = "of_closed_form_fraction", "ideal_busbw_Bps", "busiest_link_of_nic"
AnyFound = Found[Play, CollectivesConfig]


# What is played -------------------------------------------------------------------------------------------------------


def _play(session: Session, config: CollectivesConfig, case: Play) -> dict[str, float]:
    """Play a case, in place too where that is possible; return what is known of it by its ranks' order."""
    session.use_queueing(config.queueing)
    session.tell(case.title)
    fabric = session.live.fabric
    ranks, flows = _placed(session, config, case)
    job = case.job(session, config, ranks)
    with started(session, [job]):
        session.warm_up(job)
        session.run_phase(case.name, case.title, [sized(job, case, config, in_place=False)], 0.0)
        if config.in_place and case.planned.in_place:
            steps = [sized(job, case, config, in_place=True)]
            session.run_phase(case.name_in_place, f"{case.title}, in place", steps, 0.0)
    crowding = crowding_of(fabric, session.live.plan, ranks, flows)
    ideal_Bps = ideal_algbw_Bps(fabric, ranks, flows)  # noqa: N806 - bytes, not bits
    return {CROWDING: crowding, **({} if ideal_Bps is None else {"ideal_algbw_Bps": ideal_Bps})}


def sized(job: CollectiveJob, case: Play, config: CollectivesConfig, in_place: bool) -> FiniteSteps:
    """Return a started collective as a job of a phase: it plays each size a number of times."""
    sizes = case.sizes(config)
    return FiniteSteps(job, lambda phase: job.run_sizes(sizes, config.counts, phase, in_place))


def _placed(session: Session, config: CollectivesConfig, case: Play) -> tuple[tuple[NodeId, ...], Flows]:
    """Return the ranks, in order, and what they send each other."""
    fabric = session.live.fabric
    ranks = ranks_of(fabric, fabric.computes)[: case.all_ranks]
    flows = case.flows(config, fabric, ranks)
    if config.rank_order is RankOrder.ROUTES and fabric.inside is None and flows:
        ranks = order_ranks(fabric, session.live.plan, ranks, flows)
    return ranks, flows


# What is measured -----------------------------------------------------------------------------------------------------


def _measure(played: Played[Play, CollectivesConfig]) -> list[Metric]:
    """Return what each size took, and the closed form beside the largest."""
    case, ideal_Bps = played.case, played.counted.get("ideal_algbw_Bps")  # noqa: N806 - bytes, not bits
    factor, steps = _factor(case), played.session.table("steps")
    times, in_place = (_times_s(steps, name) for name in (case.name, case.name_in_place))
    values: dict[str, float] = {}
    for size, time_s in times.items():
        values |= {TIME.of(size): time_s, BUSBW.of(size): size / time_s * factor}
        values |= {IN_PLACE.of(size): in_place[size]} if size in in_place else {}
    if ideal_Bps is not None:
        values[IDEAL] = ideal_Bps * factor
        values |= {REACHED: max(times) / times[max(times)] / ideal_Bps} if times else {}
    return metrics_of(case.name, "", {**values, CROWDING: played.counted[CROWDING]})


def _times_s(steps: pd.DataFrame, phase: str) -> dict[int, float]:
    """Return what the steps of each size took on average, from the smallest size on."""
    rows = steps[steps["phase"] == phase]
    means = (rows["ended_s"] - rows["started_s"]).groupby(rows["size_bytes"]).mean()
    return {int(size): float(time_s) for size, time_s in means.items()}  # type: ignore[call-overload] # A number.


def _factor(case: Play) -> float:
    return case.planned.busbw_factor(case.ranks)


_NAMES = {
    TIME: ("time_s", "algbw_Bps", "busbw_Bps"),
    IN_PLACE: ("in_place.time_s", "in_place.algbw_Bps", "in_place.busbw_Bps"),
}
"""The numbers of a size without it in their names: its time, and what follows from that."""


@dataclass(frozen=True)
class Sized:
    """One of the sizes that a case played."""

    outcome: Outcome[Play]
    size_bytes: int

    @property
    def case(self) -> Play:
        """The case."""
        return self.outcome.case

    @property
    def values(self) -> Numbers:
        """The numbers of the case, and those of the size by names without it."""
        found = dict(self.outcome.values)
        for metric, names in _NAMES.items():
            if (time_s := self.outcome.values.get(metric.of(self.size_bytes))) is not None:
                rate_Bps = self.size_bytes / time_s  # noqa: N806 - bytes, not bits
                found |= zip(names, (time_s, rate_Bps, rate_Bps * _factor(self.case)), strict=True)
        if ideal_Bps := found.get("ideal_algbw_Bps"):  # noqa: N806 - bytes, not bits
            found["ideal_s"] = self.size_bytes / ideal_Bps
        return Numbers(found)

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def _sizes(found: AnyFound, one: Outcome[Play]) -> list[Sized]:
    return [Sized(one, size) for size in one.case.sizes(found.config) if TIME.of(size) in one.values]


def _largest(found: AnyFound) -> list[Sized]:
    """Return the largest size of each case that has a closed form."""
    return [_sizes(found, one)[-1] for one in found.outcomes if REACHED in one.values]


def _sums(found: AnyFound) -> list[Sized]:
    """Return the ways to add up gradients, the fastest in closed form first; none if there is only one."""
    sums = [one for one in _largest(found) if one.case.is_sum]
    return sorted(sums, key=lambda one: (one.case.ranks, one["ideal_s"])) if len(sums) > 1 else []


def _points(found: AnyFound, outcome: Outcome[Play]) -> list[Point]:
    """Return a point per size for figures; those of the largest show the ways to add up gradients, too."""
    sums, points = _sums(found), []
    for one in _sizes(found, outcome) if IDEAL in outcome.values else ():
        rates = {"busbw_Bps": one["busbw_Bps"], "closed_form_Bps": one[IDEAL]}
        numbers = {name: true_rate(found.fabric, rate) for name, rate in rates.items()}
        numbers |= {"sum_s": one["time_s"], "ideal_s": one["ideal_s"]} if one in sums else {}
        points.append(Point({"size": str(one.size_bytes)}, numbers))
    return points


# What is said ---------------------------------------------------------------------------------------------------------


def _answer(found: AnyFound) -> str:
    shares = {one.case.title: one[REACHED] for one in found.outcomes if REACHED in one.values}
    if not shares:
        return "Nothing crossed the network."
    short = {title: share for title, share in shares.items() if share < NEAR}
    whole = f"{len(shares) - len(short)} of {len(shares)} reach {NEAR:.0%} of their closed form at the largest size"
    if not short:
        return f"{whole}."
    worst = min(short, key=lambda title: short[title])
    return f"{whole}; the farthest from it is {worst}: {short[worst]:.0%}."


def _tables(found: AnyFound) -> Iterator[SummaryTable]:
    for name in dict.fromkeys(one.case.collective for one in found.outcomes):
        yield _nccl_tests_table(name, found)
    yield _closed_forms_table(found)
    yield _sums_table(found)


def _nccl_tests_table(name: str, found: AnyFound) -> SummaryTable:
    """Return a collective's sizes, in the columns of nccl-tests."""
    dtype = found.config.dtype
    units = {"time us": ("time_s", ".2f in us"), "algbw GB/s": ("algbw_Bps", ".3f in GB/s"),
             "busbw GB/s": ("busbw_Bps", ".3f in GB/s")}  # fmt: skip

    def columns(place: str, head: str) -> Iterator[Column]:
        for kind, (number, form) in units.items():
            yield Column(head + kind, lambda one, path=place + number: one.values.get(path, NOT_PLAYED), form)
        yield Column(f"{head}#wrong", lambda one: "0" if f"{place}time_s" in one.values else NOT_PLAYED)

    return case_table(
        name,
        [size for one in found.outcomes if one.case.collective == name for size in _sizes(found, one)],
        (
            Column("algorithm", "label"),
            Column("ranks", "ranks"),
            Column("size B", lambda one: one.size_bytes, ".0f"),
            Column(
                "count", lambda one: one.case.planned.count(one.case.ranks, one.size_bytes // dtype.size_bytes), ".0f"
            ),
            Column("type", lambda _: dtype.nccl_name),
            Column("redop", lambda one: "sum" if one.case.planned.reduces else "none"),
            Column("root", lambda one: -1 if one.case.planned.root is None else one.case.planned.root, ".0f"),
            *columns("", ""),
            *columns("in_place.", "in place: "),
        ),
        "as nccl-tests, but sizes are not rounded: blocks of ranks differ by an element at most, and count is "
        "that of the root, or of rank 0; every element of every step was checked",
    )


def _closed_forms_table(found: AnyFound) -> SummaryTable:
    fabric = found.fabric
    return case_table(
        "busbw of the largest size beside the closed form, GB/s",
        _largest(found),
        (
            Column("collective", lambda one: one.case.collective),
            Column("algorithm", "label"),
            Column("ranks", "ranks"),
            Column("size", lambda one: one.size_bytes, "size"),
            Column("busbw", lambda one: true_rate(fabric, one["busbw_Bps"]), ".4g in GB/s"),
            Column("closed form", lambda one: true_rate(fabric, one[IDEAL]), ".4g in GB/s"),
            Column("share", REACHED, ".1%"),
            Column("busiest link", CROWDING, ".2f"),
            Column("binds", _binding),
        ),
        "closed form: the busiest host's NIC is full of what it sends or receives, of which headers leave "
        f"{metrics.payload_fraction(fabric.mtu_bytes):.1%}; busiest link: its load by static routes over that of the "
        "busiest NIC, over the whole step; time to fill: a larger size divides it by more bytes; peers in turn: links "
        "that flows share for a while",
    )


def _binding(one: Sized) -> Cell:
    """Return what keeps a play from its closed form, as far as that is known: links that flows share; or the time until
    pipelines are full, which a larger size divides by more bytes, and ranks that talk to one peer after the other."""
    if one[REACHED] >= NEAR:
        return "NIC"
    if one[CROWDING] > 1 / NEAR:
        return ("a link that flows share: ", quantity(1 / one[CROWDING], ".0%"))
    return "time to fill, or peers in turn"


def _sums_table(found: AnyFound) -> SummaryTable:
    sums, fabric = _sums(found), found.fabric
    payload_Bps = fabric.nic_rate_bps / 8 * metrics.payload_fraction(fabric.mtu_bytes)  # noqa: N806 - bytes, not bits
    return case_table(
        f"Adding up {format_size(sums[0].size_bytes if sums else 0)} of gradients",
        sums,
        (
            Column("ranks with gradients", "ranks"),
            Column("by", lambda one: one.case.format("{collective}, {label}")),
            Column("hosts", "all_ranks"),
            Column("busiest NIC / S", lambda one: payload_Bps / one["ideal_algbw_Bps"], ".3f"),
            Column("time", "time_s"),
            Column("closed form", "ideal_s"),
            Column("share", REACHED, ".1%"),
        ),
        "busiest NIC / S: what it sends or receives as a multiple of the size, in closed form",
    )


STUDY = Study(
    title=lambda found: (
        f"Collectives over sizes, {format_size(found.config.begin)} to {format_size(found.config.end)}"
    ),
    cases=plays,
    play=_play,
    measure=_measure,
    measures=(
        TIME,
        BUSBW,
        IN_PLACE,
        Measure(IDEAL, "busbw of the closed form"),
        Measure(REACHED, "busbw at the largest size over that of the closed form", Better.MORE),
        Measure(
            CROWDING, "load of the busiest link over that of the busiest NIC, by the routes as planned", Better.LESS
        ),
    ),
    points=_points,
    answer=_answer,
    tables=_tables,
    figures=(
        Lines(
            "busbw",
            "busbw over sizes, a panel per collective and a line per algorithm, at the scale of the system that the "
            "fabric stands for. Dashed: closed forms, in which the busiest host's NIC is full, less headers.",
            "busbw over sizes, beside closed forms",
            numbers=(Number("busbw_Bps", "busbw (GB/s)", 1e-9),),
            x="{size}",
            line="{algorithm}{servers}, {ranks} ranks",
            rows="{collective}",
            dash="{algorithm}",
            labels=("size of a step", "busbw (GB/s)"),
            levels=(Level(Number("closed_form_Bps", "closed form", 1e-9, colour=GREY), "--", words="{:.3g}"),),
            looks=Looks(13.6, 3.4, legend=6, log2_x=True, log_y=True, x_form="size", columns=3),
        ),
        Bars(
            "sums",
            "How long the largest size takes to be added up, by each algorithm of an allreduce and by parameter "
            "servers, beside closed forms.",
            "Adding up gradients of the largest size",
            numbers=(Number("sum_s", "here", 1e3),),
            x="{collective}, {algorithm}{servers}, {ranks} ranks",
            marks=(Number("ideal_s", "closed form", 1e3, colour=INK, size=15),),
            labels=("time of a step (ms)", ""),
            looks=Looks(
                9.4,
                1.6,
                horizontal=True,
                places=Places(0.3, by="ideal_s"),
                bar_words="{:.3g} ms, {of_closed_form_fraction:.1%} of closed form",
            ),
        ),
    ),
)
