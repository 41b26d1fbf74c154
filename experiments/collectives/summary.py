"""What ``collectives`` says of a run: nccl-tests' columns, busbw beside the closed form, and what adds up gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from experiments.collectives.measures import BUSBW, IN_PLACE, TIME
from experiments.collectives.plays import CollectivesConfig, Play
from fabric.metrics import Metric
from fabric.model.network import Fabric
from fabric.records.cells import Cell, Quantity, Row, count_of, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_size
from runs.session import Session
from runs.true_scale import true_rate
from traffic import metrics

NEAR = 0.95
"""A share of the closed form above which it is called reached."""
NOT_PLAYED = "N/A"


@dataclass(frozen=True)
class Played:
    """A play with what is known of it beforehand: the closed form of its algbw in bytes per second (None: nothing
    crosses the network), and how much more than the busiest NIC the busiest link carries by static routes."""

    play: Play
    ideal_algbw_Bps: float | None  # noqa: N815 - its unit
    crowding: float


@dataclass(frozen=True)
class SizeFigures:
    """What a size took in seconds, on average over its steps, out of place and in place (None: not played)."""

    size_bytes: int
    time_s: float
    in_place_s: float | None

    def algbw_Bps(self, time_s: float) -> float:  # noqa: N802 - its unit
        """Return the size over a time."""
        return self.size_bytes / time_s


Figures = dict[str, list[SizeFigures]]
"""By phase, the sizes of a play from the smallest on."""


def summarize(session: Session, config: CollectivesConfig, played: Sequence[Played]) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    fabric = session.live.fabric
    figures = figures_of(session.table("steps"), played)
    tables = [
        *_size_tables(config, played, figures),
        _closed_forms(fabric, played, figures),
        _sums(fabric, played, figures),
    ]
    return {
        "title": f"Collectives over sizes, {format_size(config.begin)} to {format_size(config.end)}",
        "answer": _answer(played, figures),
        "metrics": list(_metrics(played, figures)),
        "tables": [table for table in tables if table is not None],
        "collectives": [_described(one, figures) for one in played if one.play.phase in figures],
    }


def figures_of(steps: pd.DataFrame, played: Sequence[Played]) -> Figures:
    """Return what each play's sizes took, from rows of ``steps``."""
    rows = steps.assign(time_s=steps["ended_s"] - steps["started_s"])
    means: dict[tuple[str, int], float] = {}
    for key, of_size in rows.groupby(["phase", "size_bytes"], observed=True):
        phase, size = cast("tuple[str, int]", key)
        means[str(phase), int(size)] = float(of_size["time_s"].mean())
    found: Figures = {}
    for one in played:
        sizes = sorted(size for phase, size in means if phase == one.play.phase)
        in_place = {size: means.get((one.play.phase_in_place, size)) for size in sizes}
        found[one.play.phase] = [SizeFigures(size, means[one.play.phase, size], in_place[size]) for size in sizes]
    return {phase: sizes for phase, sizes in found.items() if sizes}


# nccl-tests' columns -------------------------------------------------------------------------------------------------


def _size_tables(config: CollectivesConfig, played: Sequence[Played], figures: Figures) -> Iterator[SummaryTable]:
    for name in dict.fromkeys(one.play.collective for one in played):
        rows = [
            row
            for one in played
            if one.play.collective == name
            for row in _rows(config, one.play, figures.get(one.play.phase, []))
        ]
        kinds = ["time us", "algbw GB/s", "busbw GB/s", "#wrong"]
        in_place = [f"in place: {kind}" for kind in kinds]
        yield SummaryTable(
            title=name,
            columns=["algorithm", "ranks", "size B", "count", "type", "redop", "root", *kinds, *in_place],
            rows=rows,
            note="as nccl-tests, but sizes are not rounded: blocks of ranks differ by an element at most, and count is "
            "that of the root, or of rank 0; every element of every step was checked",
        )


def _rows(config: CollectivesConfig, play: Play, sizes: Sequence[SizeFigures]) -> Iterator[Row]:
    collective = play.planned
    for one in sizes:
        count = collective.count(play.ranks, one.size_bytes // config.dtype.size_bytes)
        root = -1 if collective.root is None else collective.root
        yield [
            play.label,
            count_of(play.ranks),
            count_of(one.size_bytes),
            count_of(count),
            config.dtype.nccl_name,
            "sum" if collective.reduces else "none",
            count_of(root),
            *_cells(play, one, one.time_s),
            *_cells(play, one, one.in_place_s),
        ]


def _cells(play: Play, one: SizeFigures, time_s: float | None) -> Row:
    if time_s is None:
        return [NOT_PLAYED] * 4
    algbw = one.algbw_Bps(time_s)
    return [
        quantity(time_s, ".2f in us"),
        quantity(algbw, ".3f in GB/s"),
        quantity(algbw * _factor(play), ".3f in GB/s"),
        "0",
    ]


def _factor(play: Play) -> float:
    return play.planned.busbw_factor(play.ranks)


# Beside closed forms -------------------------------------------------------------------------------------------------


def reached(one: Played, figures: Figures) -> float | None:
    """Return which part of the closed form the largest size reached; None if there is none."""
    sizes = figures.get(one.play.phase)
    if not sizes or one.ideal_algbw_Bps is None:
        return None
    return sizes[-1].algbw_Bps(sizes[-1].time_s) / one.ideal_algbw_Bps


def _closed_forms(fabric: Fabric, played: Sequence[Played], figures: Figures) -> SummaryTable | None:
    rows: list[Row] = []
    for one in played:
        share = reached(one, figures)
        if share is None or one.ideal_algbw_Bps is None:
            continue
        last, factor = figures[one.play.phase][-1], _factor(one.play)
        busbw = last.algbw_Bps(last.time_s) * factor
        ideal = one.ideal_algbw_Bps * factor
        cells = (count_of(one.play.ranks), quantity(last.size_bytes, "size"))
        rates = (_gigabytes(true_rate(fabric, one)) for one in (busbw, ideal))
        shares = (quantity(share, ".1%"), quantity(one.crowding, ".2f"))
        rows.append([one.play.collective, one.play.label, *cells, *rates, *shares, _binding(one, share)])
    if not rows:
        return None
    columns = ["collective", "algorithm", "ranks", "size", "busbw", "closed form", "share", "busiest link", "binds"]
    payload = metrics.payload_fraction(fabric.mtu_bytes)
    return SummaryTable(
        title="busbw of the largest size beside the closed form, GB/s",
        columns=columns,
        rows=rows,
        note="closed form: the busiest host's NIC is full of what it sends or receives, of which headers leave "
        f"{payload:.1%}; busiest link: its load by static routes over that of the busiest NIC, over the whole "
        "step; time to fill: a larger size divides it by more bytes; peers in turn: links that flows share for a while",
    )


def _binding(one: Played, share: float) -> Cell:
    """Return what keeps a play from its closed form, as far as that is known: links that flows share; or the time until
    pipelines are full, which a larger size divides by more bytes, and ranks that talk to one peer after the other."""
    if share >= NEAR:
        return "NIC"
    if one.crowding > 1 / NEAR:
        return ("a link that flows share: ", quantity(1 / one.crowding, ".0%"))
    return "time to fill, or peers in turn"


def _sums(fabric: Fabric, played: Sequence[Played], figures: Figures) -> SummaryTable | None:
    """Return the ways to add up gradients beside each other, the fastest in closed form first."""
    sums = [one for one in played if one.play.is_sum and reached(one, figures) is not None]
    if len(sums) < 2:
        return None
    rows: list[Row] = []
    for one in sorted(sums, key=lambda one: (one.play.ranks, -(one.ideal_algbw_Bps or 0.0))):
        assert one.ideal_algbw_Bps is not None, "reached() is None without it"
        last = figures[one.play.phase][-1]
        ideal_s = last.size_bytes / one.ideal_algbw_Bps
        sent = fabric.nic_rate_bps / 8 * metrics.payload_fraction(fabric.mtu_bytes) / one.ideal_algbw_Bps
        times = [quantity(last.time_s, "time"), quantity(ideal_s, "time"), quantity(ideal_s / last.time_s, ".1%")]
        rows.append(
            [count_of(one.play.ranks), _name(one.play), count_of(one.play.all_ranks), quantity(sent, ".3f"), *times]
        )
    return SummaryTable(
        title=f"Adding up {format_size(figures[sums[0].play.phase][-1].size_bytes)} of gradients",
        columns=["ranks with gradients", "by", "hosts", "busiest NIC / S", "time", "closed form", "share"],
        rows=rows,
        note="busiest NIC / S: what it sends or receives as a multiple of the size, in closed form",
    )


def _name(play: Play) -> str:
    return f"{play.collective.replace('_', ' ')}, {play.label}"


def _gigabytes(rate_Bps: float) -> Quantity:  # noqa: N803 - bytes, not bits
    return quantity(rate_Bps, ".4g in GB/s")


def _answer(played: Sequence[Played], figures: Figures) -> str:
    shares = {one.play.title: share for one in played if (share := reached(one, figures)) is not None}
    if not shares:
        return "Nothing crossed the network."
    short = {title: share for title, share in shares.items() if share < NEAR}
    whole = f"{len(shares) - len(short)} of {len(shares)} reach {NEAR:.0%} of their closed form at the largest size"
    if not short:
        return f"{whole}."
    worst = min(short, key=lambda title: short[title])
    return f"{whole}; the farthest from it is {worst}: {short[worst]:.0%}."


def _metrics(played: Sequence[Played], figures: Figures) -> Iterator[Metric]:
    for one in played:
        sizes, factor = figures.get(one.play.phase, []), _factor(one.play)
        for place in sizes:
            size = place.size_bytes
            yield Metric(one.play.phase, "", TIME.of(size), place.time_s)
            yield Metric(one.play.phase, "", BUSBW.of(size), place.algbw_Bps(place.time_s) * factor)
            if place.in_place_s is not None:
                yield Metric(one.play.phase, "", IN_PLACE.of(size), place.in_place_s)
        if one.ideal_algbw_Bps is not None:
            yield Metric(one.play.phase, "", "ideal_busbw_Bps", one.ideal_algbw_Bps * factor)
        share = reached(one, figures)
        if share is not None:
            yield Metric(one.play.phase, "", "of_closed_form_fraction", share)
        yield Metric(one.play.phase, "", "busiest_link_of_nic", one.crowding)


def _described(one: Played, figures: Figures) -> dict[str, Any]:
    """Return a play for figures: bandwidths in bytes per second, times in seconds."""
    sizes, factor = figures[one.play.phase], _factor(one.play)
    return {
        "collective": one.play.collective,
        "label": one.play.label,
        "name": _name(one.play),
        "is_sum": one.play.is_sum,
        "ranks": one.play.ranks,
        "sizes": [size.size_bytes for size in sizes],
        "times_s": [size.time_s for size in sizes],
        "busbw_Bps": [size.algbw_Bps(size.time_s) * factor for size in sizes],
        "ideal_busbw_Bps": None if one.ideal_algbw_Bps is None else one.ideal_algbw_Bps * factor,
        "ideal_algbw_Bps": one.ideal_algbw_Bps,
    }
