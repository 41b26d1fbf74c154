"""What a run of ``dcqcn_frontier`` says: the claim, a row a point, and the data of the figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from experiments.dcqcn_frontier.claim import (
    MEASURES,
    WORKS,
    Claim,
    Got,
    frontier,
    judge,
    limiting,
    nearest_of,
    worst,
)
from experiments.dcqcn_frontier.points import DcqcnFrontierConfig, Setting
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel, plan_lanes
from fabric.percentiles import Percentile
from fabric.records.cells import Cell, Row, count_of, joined, percentile_cell, quantity
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from fabric.units import format_time
from runs.counted_operations import counted_s, percentile_of, read_metrics
from runs.session import PhaseOutcome, Session
from runs.stall_metrics import stall_metrics

HFREDUCE_ALONE = "hfreduce_alone"
STORAGE_ALONE = "storage_alone"
_NO_CONTROL = "line"
_READ, _ALGBW, _P99 = "read_GBps", "algbw_GBps", "read_p99_s"


@dataclass(frozen=True)
class PlayedPoint:
    """A point, what the programs got, and what the network did meanwhile."""

    point: Setting
    got: Got
    cuts: int
    stalled_fraction: float
    """Of the lane that stood still for the largest part of the phase."""
    stalled_s: float
    """Over all lanes of all ports."""
    marked: int


def summarize(
    session: Session, config: DcqcnFrontierConfig, playing: Sequence[Setting], cuts: Mapping[str, int]
) -> dict[str, Any]:
    """Return the tables and metrics of a run, and keep its points."""
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    found = [_played(session, config, point, outcomes[point.name], cuts[point.name]) for point in playing]
    session.keep_frame("points", points_frame(session, found))
    alone = (
        got_in(session, outcomes[HFREDUCE_ALONE].phase, config.warm_up).algbw_Bps,
        got_in(session, outcomes[STORAGE_ALONE].phase, config.warm_up).read_Bps,
    )
    claims = claims_of(config, found, alone)
    words = " ".join([answer(claims, found, alone), *without_a_program(found, config)])
    return {
        "title": "DCQCN's parameters, and lanes without it: HFReduce and storage together",
        "answer": words,
        "claims": {queueing.value: {**vars(claim), "holds": claim.holds} for queueing, claim in claims.items()},
        "metrics": list(_metrics(found, alone, claims)),
        "tables": [claim_table(claims, found, config), points_table(found, claims, alone)],
        "trade_off": trade_off(found, alone),
    }


def algbw(steps: pd.DataFrame, phase: Phase, warm_up_s: float) -> float:
    """Return HFReduce's bytes per second over the time of its steps after a phase's warm-up; 0: none lies there.

    A step that reaches over an edge counts by the part of its time inside: where a step takes as long as the counted
    time, none need begin in it.
    """
    from_s, until_s = counted_s(phase, warm_up_s)
    rows = steps[steps["phase"] == phase.name]
    overlap_s = (rows["ended_s"].clip(upper=until_s) - rows["started_s"].clip(lower=from_s)).clip(lower=0)
    taken_s = rows["ended_s"] - rows["started_s"]
    counted = float(overlap_s.sum())
    return float((rows["size_bytes"] * overlap_s / taken_s).sum()) / counted if counted else 0.0


def got_in(session: Session, phase: Phase, warm_up_s: float) -> Got:
    """Return what both programs got in a phase after its warm-up."""
    reads = read_metrics(session.table("operations"), phase, warm_up_s)
    p99_s, is_known = percentile_of(reads, "read.p99")
    return Got(
        algbw(session.table("steps"), phase, warm_up_s),
        reads["read.bandwidth_Bps"],
        p99_s or 0.0,
        p99_is_known=is_known,
    )


def _played(
    session: Session, config: DcqcnFrontierConfig, point: Setting, outcome: PhaseOutcome, cuts: int
) -> PlayedPoint:
    phase, ports = outcome.phase, session.table("ports")
    got = got_in(session, phase, config.warm_up)
    stalls = stall_metrics(session.table("stalls"), outcome)
    inside = ports[ports["at_s"].between(phase.started_s, phase.ended_s)]
    marks = inside.groupby(["port", "lane"], observed=True)["marked_packets"]
    marked = int((marks.max() - marks.min()).sum())
    most, total_s = (float(stalls.get(name, 0.0)) for name in ("most_stalled_fraction", "stalled_s"))
    return PlayedPoint(point, got, cuts, most, total_s, marked)


def points_frame(session: Session, found: Sequence[PlayedPoint]) -> pd.DataFrame:
    """Return the rows of the table ``points``."""
    rows = []
    for one in found:
        point, parameters = one.point, one.point.dcqcn.parameters(session.live.fabric)
        marking = point.marking
        nothing = float("nan")
        rows.append(
            {
                "phase": point.name,
                "control": point.control,
                "queueing": point.queueing.value,
                "profile": point.profile,
                "thresholds": point.thresholds,
                "increase": point.increase,
                "kmin_bytes": marking.kmin if marking else nothing,
                "kmax_bytes": marking.kmax if marking else nothing,
                "pmax": marking.pmax if marking else nothing,
                "increase_period_s": parameters.increase_period_s if point.has_dcqcn else nothing,
                "increase_bytes": parameters.increase_bytes if point.has_dcqcn else nothing,
                "additive_step_bps": parameters.additive_step_bps if point.has_dcqcn else nothing,
                "hyper_step_bps": parameters.hyper_step_bps if point.has_dcqcn else nothing,
                "allreduce_bps": 8 * one.got.algbw_Bps,
                "read_bps": 8 * one.got.read_Bps,
                "read_p99_s": one.got.read_p99_s,
                "cuts": one.cuts,
            }
        )
    return pd.DataFrame(rows)


# The claim ------------------------------------------------------------------------------------------------------------


Claims = Mapping[Queueing, Claim]


def claims_of(config: DcqcnFrontierConfig, found: Sequence[PlayedPoint], alone: tuple[float, float]) -> Claims:
    """Return what comes of the claim in each queueing; nothing if no lanes played without congestion control, or a
    program got nothing there or alone."""
    reference = reference_of(found)
    if reference is None or not (reference.got.is_whole and all(alone)):
        return {}
    promised = plan_lanes(config.queues, reference.point.queueing)
    lanes = [promised.lane_of(level).share for level in (ServiceLevel.HFREDUCE, ServiceLevel.STORAGE)]
    stalls = relative_stalls(found)
    return {
        queueing: judge(
            {one.point.name: one.got for one in found if one.point.has_dcqcn and one.point.queueing is queueing},
            stalls, reference.got, alone, lanes, config.suits,
        )
        for queueing in config.queueings
    }  # fmt: skip


def relative_stalls(found: Sequence[PlayedPoint]) -> dict[str, float]:
    """Return for what part of the time without congestion control, in the same queueing, lanes are stalled at a point;
    infinite where nothing without it played, or nothing stalled then."""
    without = {one.point.queueing: one.stalled_s for one in found if one.point.control == _NO_CONTROL}
    return {
        one.point.name: one.stalled_s / without[one.point.queueing] if without.get(one.point.queueing) else math.inf
        for one in found
    }


def reference_of(found: Sequence[PlayedPoint]) -> PlayedPoint | None:
    """Return what played without congestion control in lossless lanes."""
    return next(
        (one for one in found if one.point.control == _NO_CONTROL and one.point.queueing is Queueing.LOSSLESS_LANES),
        None,
    )


def answer(claims: Claims, found: Sequence[PlayedPoint], alone: tuple[float, float]) -> str:
    """Return the finding in words: a part for each queueing."""
    if not claims:
        reference = reference_of(found)
        if reference is None:
            return "Nothing to compare with: play the queueing lossless_lanes, and line among the others."
        lacking = reference.point.title if all(alone) else "the programs alone"
        return (
            f"Nothing to compare with: of {lacking}, no step of HFReduce or no read lies in the part of the phase that "
            "counts, or reads failed; raise phase_time."
        )
    titles = {one.point.name: one.point.title for one in found}
    told = [_answer_in(queueing, claim, titles[claim.nearest]) for queueing, claim in claims.items()]
    do = "give" if next(iter(claims.values())).lanes_do else "do not give"
    return " ".join([*told, f"Lanes without congestion control {do} each program its share of the links."])


def without_a_program(found: Sequence[PlayedPoint], config: DcqcnFrontierConfig) -> list[str]:
    """Return a sentence on the points in which a program got nothing in the time that counts; none if there are
    none."""
    titles = [one.point.title for one in found if not (one.got.algbw_Bps and one.got.read_Bps)]
    if not titles:
        return []
    return [
        f"No step of HFReduce or no read lies in the part of the phase that counts at {len(titles)} of {len(found)} "
        f"points, the first {titles[0]}: they suit nothing; raise phase_time ({format_time(config.phase_time)})."
    ]


def _answer_in(queueing: Queueing, claim: Claim, nearest: str) -> str:
    algbw_share, read_share, p99_share = claim.nearest_shares
    words = "holds" if claim.holds else "does not hold"
    p99 = f"at {1 / p99_share:.2f} times their p99" if p99_share else "at a p99 that is not known, as reads are missing"
    return (
        f"In {queueing.words} the paper's claim {words}: {len(claim.suiting)} of {claim.points} sets of DCQCN's "
        f"parameters suit both programs, and {len(claim.working)} of these keep ports from standing still for half of "
        f"the time or more. The nearest that does, {nearest}, gives {algbw_share:.0%} of the allreduce and "
        f"{read_share:.0%} of the reads of lanes without congestion control, {p99}. "
        f"{what_would_change_it(claim)}"
    )


def what_would_change_it(claim: Claim) -> str:
    """Return what would make the claim fail, or hold."""
    if not claim.lanes_do:
        return "It needs lanes that give each program its share."
    share = worst(claim.nearest_shares)
    if share is None:
        return f"What tolerance would change that is not known, as its {claim.limiting} is not."
    needed = f"{max(0.0, 1 - share):.1%} of {claim.limiting}, not {1 - claim.least:.0%}"
    return (
        f"It would hold with a tolerance below {needed}." if claim.working else f"It would fail with one of {needed}."
    )


def claim_table(claims: Claims, found: Sequence[PlayedPoint], config: DcqcnFrontierConfig) -> SummaryTable:
    """Return how far each kind of point comes."""
    rows = []
    reference = reference_of(found)
    if claims and reference is not None:
        for queueing in config.queueings:
            for control in dict.fromkeys(one.point.control for one in found):
                group = [one for one in found if (one.point.control, one.point.queueing) == (control, queueing)]
                rows.append(_group_row(control, queueing, group, reference.got, claims[queueing]))
    columns = [
        "points",
        "suit both",
        "and work",
        *(f"best {name}" for name in MEASURES),
        "nearest",
        "its worst measure",
    ]
    return SummaryTable(
        title="Do they suit both?",
        columns=["control", "in", *columns],
        rows=rows,
        note=f"parts of what line in lossless lanes gives; to suit, all three must reach {config.suits:.0%} (of the "
        "p99, the reference over it)",
    )


def _group_row(control: str, queueing: Queueing, group: Sequence[PlayedPoint], reference: Got, claim: Claim) -> Row:
    shares = {_short(one.point): one.got.shares(reference) for one in group}
    nearest = nearest_of(shares)
    best = [_best([found[place] for found in shares.values()]) for place in range(len(MEASURES))]
    suiting = sum(one.got.suits(reference, claim.least) for one in group)
    working = count_of(sum(one.point.name in claim.working for one in group)) if group[0].point.has_dcqcn else "-"
    least = joined([_percent(worst(shares[nearest])), f"({limiting(shares[nearest])})"], " ")
    return [control, queueing.words, count_of(len(group)), count_of(suiting), working, *best, nearest, least]


def _best(shares: Sequence[float | None]) -> Cell:
    """Return the largest share that is known as a cell."""
    return _percent(max((share for share in shares if share is not None), default=None))


def _percent(share: float | None) -> Cell:
    return "unknown" if share is None else quantity(share, ".0%")


def _short(point: Setting) -> str:
    return f"{point.profile} x{point.thresholds:g} x{point.increase:g}" if point.profile else "-"


# Points ---------------------------------------------------------------------------------------------------------------


def points_table(found: Sequence[PlayedPoint], claims: Claims, alone: tuple[float, float]) -> SummaryTable:
    """Return a row a point."""
    best = frontier({one.point.name: one.got for one in found if one.point.has_dcqcn})
    suiting = [name for claim in claims.values() for name in claim.suiting]
    working = [name for claim in claims.values() for name in claim.working]
    stalls = relative_stalls(found)
    rows: list[Row] = []
    for one in found:
        point = one.point
        marks = (("frontier", best), ("suits both", suiting), ("works", working))
        notes = [word for word, names in marks if point.name in names]
        rows.append(
            [
                point.control,
                point.queueing.words,
                point.profile or "-",
                *(quantity(times if point.profile else None, "g") for times in (point.thresholds, point.increase)),
                quantity(one.got.algbw_Bps, ".2f GB/s"),
                quantity(one.got.read_Bps, ".2f GB/s"),
                _p99_cell(one.got),
                quantity(one.marked, ",.0f"),
                quantity(one.cuts, ",.0f") if point.has_dcqcn else "-",
                quantity(one.stalled_fraction, ".0%"),
                quantity(stalls[point.name], ".2f") if math.isfinite(stalls[point.name]) else "-",
                ", ".join(notes),
            ]
        )
    columns = [
        "allreduce",
        "reads",
        "p99 of reads",
        "marks",
        "rate cuts",
        "most stalled lane",
        "stalls over line's",
        "",
    ]
    return SummaryTable(
        title="Points",
        columns=["control", "in", "set", "thresholds x", "increase x", *columns],
        rows=rows,
        note=f"alone, without congestion control: allreduce {alone[0] / 1e9:.2f} GB/s, reads {alone[1] / 1e9:.2f} "
        "GB/s; frontier: no other set of DCQCN's parameters has more of both bandwidths; works: lanes are stalled "
        f"for at most {WORKS:.0%} of the time for which they are with line in the same queueing",
    )


def _p99_cell(got: Got) -> Cell:
    return percentile_cell(Percentile(got.read_p99_s, got.p99_is_known)) if got.read_p99_s or got.p99_is_known else "-"


def _metrics(found: Sequence[PlayedPoint], alone: tuple[float, float], claims: Claims) -> Iterator[Metric]:
    hfreduce, storage = ServiceLevel.HFREDUCE.label, ServiceLevel.STORAGE.label
    yield Metric(HFREDUCE_ALONE, hfreduce, "algbw_Bps", alone[0])
    yield Metric(STORAGE_ALONE, storage, "read_Bps", alone[1])
    for one in found:
        phase, p99 = one.point.name, "read_p99_s" if one.got.p99_is_known else "read_p99_at_least_s"
        yield Metric(phase, hfreduce, "algbw_Bps", one.got.algbw_Bps)
        yield Metric(phase, storage, "read_Bps", one.got.read_Bps)
        yield Metric(phase, storage, p99, one.got.read_p99_s)
        network = {
            "marked_packets": one.marked,
            "cuts": one.cuts,
            "most_stalled_fraction": one.stalled_fraction,
            "stalled_s": one.stalled_s,
        }
        yield from metrics_of(phase, "", network)
    for queueing, claim in claims.items():
        told = {
            "claim_holds": float(claim.holds),
            "suiting_points": float(len(claim.suiting)),
            "working_points": float(len(claim.working)),
        }
        share = worst(claim.nearest_shares)
        yield from metrics_of(queueing.value, "", told | ({} if share is None else {"nearest_fraction": share}))


def trade_off(found: Sequence[PlayedPoint], alone: tuple[float, float]) -> dict[str, Any]:
    """Return what the figure of the trade-off shows."""
    return {
        "title": "What HFReduce and storage get of the same links",
        "axes": {
            _READ: "storage reads, GB/s",
            _ALGBW: "allreduce (algbw), GB/s",
            _P99: "p99 of storage reads",
        },
        "panels": [
            {
                "x": _READ,
                "y": _ALGBW,
                "more_x": True,
                "frontiers": [f"dcqcn, {queueing.words}" for queueing in Queueing],
            },
            {
                "x": _P99,
                "y": _ALGBW,
                "more_x": False,
                "frontiers": [f"dcqcn, {queueing.words}" for queueing in Queueing],
            },
        ],
        "alone": {_ALGBW: alone[0] / 1e9, _READ: alone[1] / 1e9},
        "points": [
            {
                "name": one.point.name,
                "group": f"{one.point.control}, {one.point.queueing.words}",
                "is_many": one.point.has_dcqcn,
                "values": {
                    _READ: one.got.read_Bps / 1e9,
                    _ALGBW: one.got.algbw_Bps / 1e9,
                    _P99: one.got.read_p99_s,
                },
            }
            for one in found
        ],
    }
