"""Is there a set of DCQCN's parameters that suits HFReduce and storage at once, and do lanes without it do better?

HFReduce and storage play together on a lossless fabric, over the same compute nodes, in a short phase for each point:
DCQCN with the parameters of a grid, in one lane and in lanes, and the same with no congestion control (``line``). In
Fire-Flyer 2 no parameters suited both, so DCQCN is off there, and lanes, static routes and a request-to-send do its
work (arXiv 2408.14158v2, VI-A). Every point starts its programs anew, with parameters and marking of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from experiments.dcqcn_frontier.claim import (
    MEASURES,
    WORKS,
    Claim,
    Got,
    Shares,
    frontier,
    judge,
    limiting,
    nearest_of,
    worst,
)
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from fabric.measures import Better, Measure
from fabric.metrics import Metric, least_name, metrics_of
from fabric.model.identity import NodeId
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.model.marking import Marking
from fabric.model.network import Fabric
from fabric.records.cells import Cell, joined, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_time
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.counted_operations import percentile_of
from runs.job_metrics import marked_packets
from runs.jobs import hfreduce_flows, ordered_ranks, started
from runs.placement import RankOrder
from runs.session import Session
from runs.study import Found, Outcome, Played, Study
from traffic import congestion_control
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.step_numbers import algbw_in
from traffic.congestion_control import DCQCN
from traffic.dcqcn import DcqcnConfig
from traffic.job import Job
from traffic.storage.job import StorageJob

HFREDUCE, STORAGE = ServiceLevel.HFREDUCE.label, ServiceLevel.STORAGE.label
NO_CONTROL = "line"
_ALGBW, _READ, _P99 = f"{HFREDUCE}.algbw_Bps", f"{STORAGE}.read_Bps", f"{STORAGE}.read_p99"
RELATIVE_STALLS = "relative_stalls"

# Points ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting(Case, name="{control}_{queueing}", title="{control}, {queueing}"):
    """What steers all traffic of a phase, in which queueing."""

    queueing: Queueing = axis("queueings")
    control: str = axis("others")
    profile = ""
    thresholds = 1.0
    increase = 1.0
    programs = (HFREDUCE, STORAGE)

    def dcqcn(self, config: DcqcnFrontierConfig, fabric: Fabric) -> DcqcnConfig:
        """Return DCQCN's parameters, which without DCQCN play no part."""
        return config.dcqcn

    def marking(self, config: DcqcnFrontierConfig, fabric: Fabric) -> Marking | None:
        """Return what switches mark by."""
        return config.marking_for(self.control, fabric)


@dataclass(frozen=True)
class Point(
    Setting,
    name="{control}_{profile}_t{thresholds}_i{increase}_{queueing}",
    title="{control} {profile}, thresholds x {thresholds}, increase x {increase}, {queueing}",
):
    """DCQCN, with the parameters of a named set and factors on some of them."""

    control: str = axis(lambda config: [DCQCN])
    profile: str = axis(lambda config: config.grid.profiles)
    thresholds: float = axis(lambda config: config.grid.thresholds)
    increase: float = axis(lambda config: config.grid.increase)

    def _named(self, config: DcqcnFrontierConfig) -> DcqcnConfig:
        return DcqcnConfig(profile=self.profile, scaling=config.dcqcn.scaling)

    def dcqcn(self, config: DcqcnFrontierConfig, fabric: Fabric) -> DcqcnConfig:
        """Return its set, with a rate increase so many times as fast; a step is the rate of the NICs at most."""
        named, times = self._named(config), self.increase
        known = named.parameters(fabric)
        faster = {
            "increase_period": known.increase_period_s / times,
            "increase_bytes": round(known.increase_bytes / times),
            "additive_step": min(known.additive_step_bps * times, fabric.nic_rate_bps),
            "hyper_step": min(known.hyper_step_bps * times, fabric.nic_rate_bps),
        }
        return named if times == 1 else named.model_copy(update=faster)

    def marking(self, config: DcqcnFrontierConfig, fabric: Fabric) -> Marking:
        """Return the marking of its set with other thresholds."""
        return self._named(config).parameters(fabric).marking.scaled(self.thresholds, fabric.frame_bytes)


@dataclass(frozen=True)
class Alone(Setting, name="{program}_alone", title="{program} alone"):
    """One of the two programs without the other."""

    program: str = axis(words=lambda program: "HFReduce" if program == HFREDUCE else program)

    @property
    def programs(self) -> tuple[str, ...]:  # type: ignore[override]
        """It alone."""
        return (self.program,)


def cases(config: DcqcnFrontierConfig) -> tuple[Setting, ...]:
    """Return the programs alone, with no congestion control in the last queueing, and all points, a queueing after the
    other, those without DCQCN first."""
    alone = [Alone(config.queueings[-1], NO_CONTROL, program) for program in (HFREDUCE, STORAGE)]
    together = [*Setting.grid(config), *Point.grid(config)]
    return (*alone, *sorted(together, key=lambda one: config.queueings.index(one.queueing)))


# Playing --------------------------------------------------------------------------------------------------------------


def run_dcqcn_frontier(session: Session, config: DcqcnFrontierConfig) -> dict[str, Any]:
    """Play both programs alone, then together at every point, and return the summary."""
    nodes = tuple(node for node in session.live.fabric.computes if node.zone == 0)[: config.nodes]
    flows = hfreduce_flows(HFReduceJob(session.stage, config.hfreduce, nodes))
    ranks = ordered_ranks(session, RankOrder.ROUTES, nodes, flows)
    playing = cases(config)
    alone = [one for one in playing if isinstance(one, Alone)]
    _play(session, config, ranks, alone)
    cuts = {one.name: {"cuts": _play(session, config, ranks, [one])} for one in playing if one not in alone}
    return STUDY.summarize(session, config, playing, cuts)


def _play(session: Session, config: DcqcnFrontierConfig, ranks: Sequence[NodeId], phases: Sequence[Setting]) -> int:
    """Play phases of the same programs and parameters, and return how often DCQCN cut a rate."""
    one, fabric = phases[0], session.live.fabric
    controls = dict.fromkeys(DATA_LEVELS, one.control)
    session.use_congestion_control(controls, one.dcqcn(config, fabric), one.marking(config, fabric))
    session.use_queueing(one.queueing)
    before = congestion_control.rate_cuts()
    hfreduce = HFReduceJob(session.stage, config.hfreduce, ranks)
    jobs: dict[str, Job] = {HFREDUCE: hfreduce, STORAGE: StorageJob(session.stage, config.storage, ranks)}
    with started(session, list(jobs.values())):
        session.warm_up(hfreduce)
        for case in phases:
            session.run_phase(case.name, case.title, [jobs[name] for name in case.programs], config.phase_time)
    return congestion_control.rate_cuts() - before


def _measure(played: Played[Setting, DcqcnFrontierConfig]) -> list[Metric]:
    phase, session, reads = played.phase, played.session, played.reads()
    p99_s, is_known = percentile_of(reads, "read.p99")
    rates = {
        HFREDUCE: Metric(phase.name, HFREDUCE, "algbw_Bps", algbw_in(played.rows("steps"), *played.counted_s)),
        STORAGE: Metric(phase.name, STORAGE, "read_Bps", reads["read.bandwidth_Bps"]),
    }
    if isinstance(played.case, Alone):
        return [rates[played.case.program]]
    p99 = Metric(phase.name, STORAGE, "read_p99_s" if is_known else least_name("read_p99_s"), p99_s or 0.0)
    stalls = played.stalls()
    network = {
        "marked_packets": marked_packets(session.table("ports"), (phase.started_s, phase.ended_s)),
        **played.counted,
        **{name: float(stalls.get(name, 0.0)) for name in ("most_stalled_fraction", "stalled_s")},
    }
    return [*rates.values(), p99, *metrics_of(phase.name, "", network)]


# The claim ------------------------------------------------------------------------------------------------------------

PlayedPoint = Outcome[Setting]
PlayedPoints = Found[Setting, DcqcnFrontierConfig]
Claims = Mapping[Queueing, Claim]


def got(one: PlayedPoint) -> Got:
    """Return what both programs got."""
    p99_s, is_known = percentile_of(one.values, _P99)
    return Got(one[_ALGBW], one[_READ], p99_s or 0.0, is_known)


def together(found: PlayedPoints) -> list[PlayedPoint]:
    """Return what came of the points at which both programs play."""
    return [one for one in found.outcomes if not isinstance(one.case, Alone)]


def alone(found: PlayedPoints) -> tuple[float, float]:
    """Return what HFReduce and reads get without the other, in bytes per second."""
    at = {one.case.program: one for one in found.outcomes if isinstance(one.case, Alone)}
    return at[HFREDUCE][_ALGBW], at[STORAGE][_READ]


def reference_of(found: PlayedPoints) -> PlayedPoint | None:
    """Return what played without congestion control in lossless lanes."""
    wanted = (NO_CONTROL, Queueing.LOSSLESS_LANES)
    return next((one for one in together(found) if (one.case.control, one.case.queueing) == wanted), None)


def relative_stalls(found: PlayedPoints, one: PlayedPoint) -> dict[str, float]:
    """Return for what part of the time without congestion control, in the same queueing, lanes are stalled at a point;
    nothing where nothing without it played, or nothing stalled then."""
    wanted = (NO_CONTROL, one.case.queueing)
    without = next((base for base in together(found) if (base.case.control, base.case.queueing) == wanted), None)
    if without is None or isinstance(one.case, Alone) or not without["stalled_s"]:
        return {}
    return {RELATIVE_STALLS: one["stalled_s"] / without["stalled_s"]}


def claims_of(found: PlayedPoints) -> Claims:
    """Return what comes of the claim in each queueing; nothing if no lanes played without congestion control, or a
    program got nothing there or alone."""
    reference, config = reference_of(found), found.config
    if reference is None or not (got(reference).is_whole and all(alone(found))):
        return {}
    promised = plan_lanes(config.queues, reference.case.queueing)
    lanes = [promised.lane_of(level).share for level in (ServiceLevel.HFREDUCE, ServiceLevel.STORAGE)]
    points = [one for one in together(found) if one.case.profile]
    stalls = {one.case.name: one.values.get(RELATIVE_STALLS, math.inf) for one in points}
    by_queueing = {
        queueing: {one.case.name: got(one) for one in points if one.case.queueing is queueing}
        for queueing in config.queueings
    }
    return {
        queueing: judge(with_dcqcn, stalls, got(reference), alone(found), lanes, config.suits)
        for queueing, with_dcqcn in by_queueing.items()
    }


def _over_points(found: PlayedPoints) -> Iterator[Metric]:
    for queueing, claim in claims_of(found).items():
        share = worst(claim.nearest_shares)
        told = {
            "claim_holds": float(claim.holds),
            "suiting_points": float(len(claim.suiting)),
            "working_points": float(len(claim.working)),
        }
        yield from metrics_of(queueing.value, "", told | ({} if share is None else {"nearest_fraction": share}))


# In words -------------------------------------------------------------------------------------------------------------


def answer(found: PlayedPoints) -> str:
    """Return the finding in words: a part for each queueing."""
    return " ".join([_finding(found, claims_of(found)), *without_a_program(found)])


def _finding(found: PlayedPoints, claims: Claims) -> str:
    reference = reference_of(found)
    if reference is None:
        return "Nothing to compare with: play the queueing lossless_lanes, and line among the others."
    if not claims:
        lacking = reference.case.title if all(alone(found)) else "the programs alone"
        return (
            f"Nothing to compare with: of {lacking}, no step of HFReduce or no read lies in the part of the phase that "
            "counts, or reads failed; raise phase_time."
        )
    titles = {one.case.name: one.case.title for one in found.outcomes}
    told = [_answer_in(queueing, claim, titles[claim.nearest]) for queueing, claim in claims.items()]
    do = "give" if next(iter(claims.values())).lanes_do else "do not give"
    return " ".join([*told, f"Lanes without congestion control {do} each program its share of the links."])


def without_a_program(found: PlayedPoints) -> list[str]:
    """Return a sentence on the points in which a program got nothing in the time that counts; none if there are
    none."""
    points = together(found)
    titles = [one.case.title for one in points if not (one[_ALGBW] and one[_READ])]
    if not titles:
        return []
    return [
        f"No step of HFReduce or no read lies in the part of the phase that counts at {len(titles)} of {len(points)} "
        f"points, the first {titles[0]}: they suit nothing; raise phase_time ({format_time(found.config.phase_time)})."
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


# Tables ---------------------------------------------------------------------------------------------------------------


def _tables(found: PlayedPoints) -> Iterator[SummaryTable]:
    claims = claims_of(found)
    if claims:
        yield _kinds_table(found, claims)
    yield _points_table(found, claims)


def _kinds_table(found: PlayedPoints, claims: Claims) -> SummaryTable:
    """Return how far each kind of point comes: a row of each control in each queueing."""
    reference = reference_of(found)
    assert reference is not None, "without it there is no claim"
    least, base = found.config.suits, got(reference)
    groups: dict[tuple[Queueing, str], list[PlayedPoint]] = {}
    for one in together(found):
        groups.setdefault((one.case.queueing, one.case.control), []).append(one)
    works = {name for claim in claims.values() for name in claim.working}

    def nearest(group: list[PlayedPoint]) -> tuple[str, Shares]:
        shares = {_set_words(one.case): got(one).shares(base) for one in group}
        name = nearest_of(shares)
        return name, shares[name]

    def best(group: list[PlayedPoint], place: int) -> float | str:
        known = [share for one in group if (share := got(one).shares(base)[place]) is not None]
        return max(known, default="unknown")

    def worst_words(group: list[PlayedPoint]) -> Cell:
        _, shares = nearest(group)
        share = worst(shares)
        return joined(["unknown" if share is None else quantity(share, ".0%"), f"({limiting(shares)})"], " ")

    return case_table(
        "Do they suit both?",
        groups.values(),
        (
            Column("control", lambda group: group[0].case.control),
            Column("in", lambda group: group[0].case.queueing.words),
            Column("points", len),
            Column("suit both", lambda group: sum(got(one).suits(base, least) for one in group)),
            Column(
                "and work",
                lambda group: sum(one.case.name in works for one in group) if group[0].case.profile else None,
            ),
            *(Column(f"best {name}", partial(best, place=place), ".0%") for place, name in enumerate(MEASURES)),
            Column("nearest", lambda group: nearest(group)[0]),
            Column("its worst measure", worst_words),
        ),
        f"parts of what line in lossless lanes gives; to suit, all three must reach {least:.0%} (of the p99, the "
        "reference over it)",
    )


def _set_words(case: Setting) -> str:
    return case.format("{profile} x{thresholds} x{increase}") if case.profile else "-"


def _points_table(found: PlayedPoints, claims: Claims) -> SummaryTable:
    points = together(found)
    marks = {
        "frontier": frontier({one.case.name: got(one) for one in points if one.case.profile}),
        "suits both": [name for claim in claims.values() for name in claim.suiting],
        "works": [name for claim in claims.values() for name in claim.working],
    }

    def of_set(head: str, value: Callable[[PlayedPoint], float | str], form: str | None = None) -> Column:
        return Column(head, lambda one: value(one) if one.case.profile else None, form)

    hfreduce_alone, reads_alone = alone(found)
    return case_table(
        "Points",
        points,
        (
            Column("control", "control"),
            Column("in", "queueing"),
            of_set("set", lambda one: one.case.profile),
            of_set("thresholds x", lambda one: one.case.thresholds, "g"),
            of_set("increase x", lambda one: one.case.increase, "g"),
            Column("allreduce", _ALGBW, ".2f GB/s"),
            Column("reads", _READ, ".2f GB/s"),
            Column("p99 of reads", lambda one: measured(one.values, f"{_P99}_s") if has_read(one) else None),
            Column("marks", "marked_packets"),
            of_set("rate cuts", lambda one: one["cuts"]),
            Column("most stalled lane", "most_stalled_fraction", ".0%"),
            Column("stalls over line's", RELATIVE_STALLS, ".2f"),
            Column("", lambda one: ", ".join(mark for mark, names in marks.items() if one.case.name in names)),
        ),
        f"alone, without congestion control: allreduce {hfreduce_alone / 1e9:.2f} GB/s, reads {reads_alone / 1e9:.2f} "
        "GB/s; frontier: no other set of DCQCN's parameters has more of both bandwidths; works: lanes are stalled "
        f"for at most {WORKS:.0%} of the time for which they are with line in the same queueing",
    )


def has_read(one: PlayedPoint) -> bool:
    """Return whether a read began in the time that counts."""
    return any(percentile_of(one.values, _P99))


def points_frame(found: PlayedPoints) -> pd.DataFrame:
    """Return the rows of the table ``points``."""
    config, fabric = found.config, found.fabric
    rows = []
    for one in together(found):
        case = one.case
        marking = case.marking(config, fabric)
        steered = case.dcqcn(config, fabric).parameters(fabric) if case.profile else None
        of_dcqcn = ("increase_period_s", "increase_bytes", "additive_step_bps", "hyper_step_bps")
        rows.append(
            {
                "phase": case.name,
                "control": case.control,
                "queueing": case.queueing.value,
                "profile": case.profile,
                "thresholds": case.thresholds,
                "increase": case.increase,
                "kmin_bytes": getattr(marking, "kmin", math.nan),
                "kmax_bytes": getattr(marking, "kmax", math.nan),
                "pmax": getattr(marking, "pmax", math.nan),
                **{name: getattr(steered, name, math.nan) for name in of_dcqcn},
                "allreduce_bps": 8 * one[_ALGBW],
                "read_bps": 8 * one[_READ],
                "read_p99_s": got(one).read_p99_s,
                "cuts": int(one["cuts"]),
            }
        )
    return pd.DataFrame(rows)


def trade_off(found: PlayedPoints) -> dict[str, Any]:
    """Return what the figure of the trade-off shows (:mod:`fabric.report.figures.trade_off`)."""
    frontiers = [f"{DCQCN}, {queueing.words}" for queueing in Queueing]
    hfreduce_alone, reads_alone = alone(found)
    return {
        "title": "What HFReduce and storage get of the same links",
        "axes": {
            "read_GBps": "storage reads (GB/s)",
            "algbw_GBps": "allreduce, algbw (GB/s)",
            "read_p99_s": "p99 of storage reads",
        },
        "panels": [
            {"x": "read_GBps", "y": "algbw_GBps", "more_x": True, "frontiers": frontiers},
            {"x": "read_p99_s", "y": "algbw_GBps", "more_x": False, "frontiers": frontiers},
        ],
        "alone": {"algbw_GBps": hfreduce_alone / 1e9, "read_GBps": reads_alone / 1e9},
        "points": [
            {
                "name": one.case.name,
                "group": one.case.format("{control}, {queueing}"),
                "is_many": bool(one.case.profile),
                "values": {
                    "read_GBps": one[_READ] / 1e9,
                    "algbw_GBps": one[_ALGBW] / 1e9,
                    "read_p99_s": got(one).read_p99_s,
                },
            }
            for one in together(found)
        ],
    }


def _more(found: PlayedPoints) -> dict[str, Any]:
    found.session.keep_frame("points", points_frame(found))
    claims = {queueing.value: {**vars(claim), "holds": claim.holds} for queueing, claim in claims_of(found).items()}
    return {"claims": claims, "trade_off": trade_off(found)}


STUDY = Study(
    title="DCQCN's parameters, and lanes without it: HFReduce and storage together",
    cases=cases,
    measure=_measure,
    measures=(
        Measure("read_Bps", "bytes of reads per second", Better.MORE),
        Measure("read_p99_s", "99th percentile of the time that reads take", Better.LESS),
        Measure(
            "read_p99_at_least_s",
            "the least that this percentile can be: the read at this rank did not complete",
            Better.LESS,
            is_least=True,
        ),
        Measure("marked_packets", "packets that switches marked"),
        Measure("cuts", "times that DCQCN lowered a rate"),
        Measure(
            "claim_holds",
            "1 if no set of DCQCN's parameters works for both programs and lanes without it do, 0 otherwise",
        ),
        Measure("suiting_points", "sets of DCQCN's parameters that suit both programs"),
        Measure("working_points", "sets of these that keep ports from standing still for too long"),
        Measure(
            "nearest_fraction",
            "lowest share of what lanes without DCQCN give, over measures, with its parameters nearest to suiting both",
            Better.MORE,
        ),
    ),
    aside=relative_stalls,
    over_cases=_over_points,
    answer=answer,
    tables=_tables,
    more=_more,
)
