"""How soon are gradients of the largest size added up, by each algorithm of an allreduce and by parameter servers?"""

from __future__ import annotations

from experiments.collectives.cases import Play
from experiments.collectives.closed_forms import REACHED
from experiments.collectives.config import CollectivesConfig
from experiments.collectives.sizes import sizes_of
from fabric.records.figure_forms import Bars, Looks, Number, Places
from fabric.records.palette import INK
from fabric.units import format_size
from runs.case_tables import CaseTable, Column
from runs.study import Found, Outcome, Point, Question
from traffic.metrics import payload_fraction

AnyFound = Found[Play, CollectivesConfig]


def _ways(found: AnyFound) -> list[Outcome[Play]]:
    """Return the ways to add them up, the fastest in closed form first; none if there is only one."""
    payload_Bps = found.fabric.nic_rate_bps / 8 * payload_fraction(found.fabric.mtu_bytes)  # noqa: N806 - bytes, not bits
    sums = [one for one in found.outcomes if REACHED in one.values and one.case.is_sum]
    busiest = [Point(numbers={"nic_sizes": payload_Bps / one["ideal_algbw_Bps"]}) for one in sums]
    ways = [one.at(sizes_of(found, one)[-1]).at(nic) for one, nic in zip(sums, busiest, strict=True)]
    return sorted(ways, key=lambda one: (one.case.ranks, one["ideal_s"])) if len(ways) > 1 else []


def _points(found: AnyFound, outcome: Outcome[Play]) -> list[Point]:
    mine = [one for one in _ways(found) if one.case == outcome.case]
    return [Point(numbers={"sum_s": one["time_s"], "ideal_s": one["ideal_s"]}) for one in mine]


GRADIENTS = Question[Play, CollectivesConfig](
    points=_points,
    tables=(
        CaseTable(
            lambda of: f"Adding up {format_size(of.config.sizes[-1])} of gradients",
            (
                Column("ranks with gradients", "ranks"),
                Column("by", "{collective}, {algorithm}{servers}"),
                "hosts {all_ranks}, busiest NIC / S {nic_sizes|.3f}, time {time_s}, closed form {ideal_s}, "
                "share {of_closed_form_fraction}",
            ),
            "busiest NIC / S: what it sends or receives as a multiple of the size, in closed form",
            rows=_ways,
        ),
    ),
    figures=(
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
