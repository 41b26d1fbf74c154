"""How long does each size take, out of place and in place? In the columns of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.collectives.cases import Play
from experiments.collectives.config import CollectivesConfig
from fabric.metrics import metric_path
from fabric.records.figure_forms import Level, Lines, Looks, Number
from fabric.records.palette import GREY
from fabric.records.summary_table import SummaryTable
from runs.case_tables import CaseTable, Column
from runs.study import Found, Outcome, Played, Point, Question
from runs.true_scale import true_rate
from traffic.collectives.step_numbers import BUSBW, IN_PLACE, TIME, times_by_size

NOT_PLAYED = "N/A"
NOTE = (
    "as nccl-tests, but sizes are not rounded: blocks of ranks differ by an element at most, and count is that of the "
    "root, or of rank 0; every element of every step was checked"
)
IDEAL = "ideal_busbw_Bps"
AnyFound = Found[Play, CollectivesConfig]


def _measure(played: Played[Play, CollectivesConfig]) -> dict[str, float]:
    """Time and busbw of each size."""
    steps, name = played.session.table("steps"), played.case.name
    times_s, in_place = (times_by_size(steps[steps["phase"] == one]) for one in (name, f"{name}_in_place"))
    values: dict[str, float] = {}
    for size, time_s in times_s.items():
        values |= {TIME.of(size): time_s, BUSBW.of(size): size / time_s * played.case.busbw_factor}
        values |= {IN_PLACE.of(size): in_place[size]} if size in in_place else {}
    return values


def sizes_of(found: AnyFound, one: Outcome[Play]) -> list[Point]:
    """Return the sizes of a case, from the smallest on, with their times and rates, out of place and in place."""
    return [_size(found, one, size) for size in one.case.sizes(found.config) if TIME.of(size) in one.values]


def _size(found: AnyFound, one: Outcome[Play], size: int) -> Point:
    numbers: dict[str, float] = {"size_bytes": size}
    for metric, place in ((TIME, ""), (IN_PLACE, "in_place")):
        if (time_s := one.values.get(metric.of(size))) is not None:
            names = (metric_path(place, name) for name in ("time_s", "algbw_Bps", "busbw_Bps"))
            numbers |= zip(names, (time_s, size / time_s, size / time_s * one.case.busbw_factor), strict=True)
    if "ideal_algbw_Bps" in one.values:
        numbers["ideal_s"] = size / one["ideal_algbw_Bps"]
        rates = {"here_Bps": numbers["busbw_Bps"], "closed_form_Bps": one[IDEAL]}
        numbers |= {name: true_rate(found.fabric, rate) for name, rate in rates.items()}
    return Point({"size": str(size)}, numbers)


def _tables(found: AnyFound) -> Iterator[SummaryTable]:
    """Yield a table of each collective, in the columns of nccl-tests."""
    dtype = found.config.dtype

    def times(place: str, head: str) -> Iterator[Column | str]:
        time, algbw, busbw = (metric_path(place, name) for name in ("time_s", "algbw_Bps", "busbw_Bps"))
        yield f"{head}time us {{{time}|.2f in us or {NOT_PLAYED}}}"
        yield f"{head}algbw GB/s {{{algbw}|.3f in GB/s or {NOT_PLAYED}}}"
        yield f"{head}busbw GB/s {{{busbw}|.3f in GB/s or {NOT_PLAYED}}}"
        yield Column(f"{head}#wrong", lambda one: "0" if time in one.values else NOT_PLAYED)

    def count(one: Outcome[Play]) -> int:
        return one.case.planned.count(one.case.ranks, int(one["size_bytes"]) // dtype.size_bytes)

    for name in dict.fromkeys(one.case.collective for one in found.outcomes):
        columns = (
            Column("algorithm", "{algorithm}{servers}"),
            Column("ranks", "ranks"),
            Column("size B", lambda one: one["size_bytes"], ".0f"),
            Column("count", count, ".0f"),
            Column("type", lambda _: dtype.nccl_name),
            Column("redop", lambda one: "sum" if one.case.planned.reduces else "none"),
            Column("root", lambda one: -1 if one.case.planned.root is None else one.case.planned.root, ".0f"),
            *times("", ""),
            *times("in_place", "in place: "),
        )
        yield CaseTable(name, columns, NOTE, partial(_of, name), sizes_of).of(found)


def _of(name: str, found: AnyFound) -> list[Outcome[Play]]:
    return [one for one in found.outcomes if one.case.collective == name]


SIZES = Question[Play, CollectivesConfig](
    measure=_measure,
    measures=(TIME, BUSBW, IN_PLACE),
    points=lambda found, one: sizes_of(found, one) if IDEAL in one.values else (),
    tables=_tables,
    figures=(
        Lines(
            "busbw",
            "busbw over sizes, a panel per collective and a line per algorithm, at the scale of the system that the "
            "fabric stands for. Dashed: closed forms, in which the busiest host's NIC is full, less headers.",
            "busbw over sizes, beside closed forms",
            numbers=(Number("here_Bps", "busbw (GB/s)", 1e-9),),
            x="{size}",
            line="{algorithm}{servers}, {ranks} ranks",
            rows="{collective}",
            dash="{algorithm}",
            labels=("size of a step", "busbw (GB/s)"),
            levels=(Level(Number("closed_form_Bps", "closed form", 1e-9, colour=GREY), "--", words="{:.3g}"),),
            looks=Looks(13.6, 3.4, legend=6, log2_x=True, log_y=True, x_form="size", columns=3),
        ),
    ),
)
