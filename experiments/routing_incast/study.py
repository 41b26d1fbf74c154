"""Does an incast's congestion spread further with adaptive routing?

All storage nodes answer a client at once, without a request-to-send, again and again, while pairs of other hosts read
from each other (:mod:`experiments.routing_incast.bystanders`); with each routing policy, once those bystanders alone
and once with the incast. Fire-Flyer 2 routes statically and deals storage nodes evenly over leaves, since adaptive
routing spread the congestion of incasts further (arXiv 2408.14158v2, VI-A2). Its fabric is lossless; where queues drop,
a full port does not pause those before it, and only the spreading by routes is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pandas as pd

from controllers.planning.policies import ADAPTIVE, STATIC, Policy
from experiments.routing_incast.bystanders import APART, CROSSING, TIERS, Incast, tiers
from experiments.routing_incast.config import RoutingIncastConfig, choose
from experiments.routing_incast.spreading import congested_ports, count_by_tier, read_metrics, slowdowns
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Port
from fabric.records.figure_forms import Bars, Level, Looks, Number, Places
from fabric.records.palette import GREY
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from fabric.units import format_size
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.jobs import started
from runs.session import Session
from runs.study import Compared, Found, Outcome, Played, Study
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.job import Job

INCAST = "incast"
KINDS = (APART, CROSSING)
_MOVES_SHOWN = 10
READS = Measure("<readers>.reads", "reads that completed", Better.MORE)
BANDWIDTH = Measure(
    "<readers>.bandwidth_Bps",
    "bytes that a reader read over the time in which it had a read under way, mean over readers",
    Better.MORE,
)
SLOWDOWN = Measure(
    "<readers>.slowdown", "a reader's bandwidth alone over that beside the incast, mean over readers", Better.LESS
)
WORST = Measure(
    "<readers>.worst_slowdown", "a reader's bandwidth alone over that beside the incast, the largest", Better.LESS
)
SLOWED_PAIRS = Measure(
    "<readers>.slowed_pairs", "pairs of hosts that the incast slowed by more than the limit", Better.LESS
)
CONGESTED = Measure("congested_ports.<tier>", "ports of this tier whose queue stayed deep", Better.LESS)


class Traffic(Enum):
    """What plays in a phase."""

    ALONE = "alone"
    INCAST = INCAST

    @property
    def words(self) -> str:
        """It in words."""
        return "bystanders alone" if self is Traffic.ALONE else "with the incast"


@dataclass(frozen=True)
class Variant(Case, name="{queueing}_{policy}_{traffic}", title="{policy} routes, {queueing}: {traffic}"):
    """A queueing and a routing policy, and what plays."""

    queueing: Queueing = axis("queueings")
    policy: Policy = axis("policies", name=lambda policy: policy.name, words=lambda policy: policy.name)
    traffic: Traffic = axis(lambda _: Traffic)

    @property
    def is_beside(self) -> bool:
        """Whether the incast plays beside its bystanders."""
        return self.traffic is Traffic.INCAST

    @property
    def alone(self) -> str:
        """The phase of the same bystanders alone."""
        return replace(self, traffic=Traffic.ALONE).name


@dataclass(frozen=True)
class Move:
    """Adaptive routing's decision that a leaf sends what is for a host up to another spine."""

    at_s: float
    leaf: str
    host: str
    spine: str


AnyFound = Found[Variant, RoutingIncastConfig]


def run_routing_incast(session: Session, config: RoutingIncastConfig) -> dict[str, Any]:
    """Play two phases for each queueing and policy with the same jobs, and return the summary."""
    incast, pairs = choose(config, session.live.fabric)
    wanted, size = config.incast, config.bystanders.request
    reads = [FanIn(kind, pair.reader, (pair.server,), size) for kind, found in pairs.items() for pair in found]
    answers = [FanIn(INCAST, client, incast.servers, wanted.request, wanted.period) for client in incast.clients]
    bystanders = FanInJob(session.stage, reads, config.bystanders.level)
    jobs = (bystanders, FanInJob(session.stage, answers, ServiceLevel.STORAGE))
    cases = Variant.grid(config)
    counted: dict[str, dict[str, float]] = {}
    moved: dict[str, tuple[Phase, list[Move]]] = {}
    with started(session, jobs):
        for case in cases:
            session.use_queueing(case.queueing)
            session.use_routing(config.routing_of(case.policy), case.policy.name)
            playing: list[Job] = [*(jobs if case.is_beside else jobs[:1])]
            phase = session.run_phase(case.name, case.title, playing, config.phase_time).phase
            moved[case.name] = (phase, moves_of(session, phase))  # The next routing's controller knows none of them.
            reorderings = sum(job.reorderings for job in jobs if job in playing)
            counted[case.name] = {"moves": len(moved[case.name][1]), "reorderings": reorderings}
    return with_moves(STUDY.summarize(session, config, cases, counted), moved)


def moves_of(session: Session, phase: Phase) -> list[Move]:
    """Return what adaptive routing has moved in a phase."""
    fabric, moves = session.live.fabric, []
    for event in session.live.controller.events():
        at_s = event.at_s - session.origin
        if event.kind == "moved" and phase.started_s <= at_s <= phase.ended_s:
            for leaf, ip, number in event.details["moves"]:
                spine = fabric.peer(Port(NodeId.parse(leaf), number)).node
                moves.append(Move(at_s, leaf, fabric.nic_at_ip[ip].node.name, spine.name))
    return moves


def _measure(played: Played[Variant, RoutingIncastConfig]) -> list[Metric]:
    """Return all numbers of a phase: what its readers got, which ports were congested, how much slower readers were."""
    config, case, phase = played.config, played.case, played.phase
    clients = Incast.of(played.fabric, config.incast.clients, config.incast.servers).clients
    tier_of = {str(port): tier for port, tier in tiers(played.fabric, clients).items()}
    deep = count_by_tier(congested_ports(played.session.table("ports"), phase, config.congested), tier_of, TIERS)
    rows, alone = played.rows("operations"), _rows(played.session, case.alone)
    found = [one for kind in (INCAST, *KINDS) for one in _of_kind(case, kind, rows, read_metrics(rows, kind))]
    network = {
        "congested_ports": sum(deep.values()),
        **{_metric(tier): count for tier, count in deep.items()},
        **played.packets("sent_packets", "drops_packets", "retransmissions"),
        **played.counted,
    }
    found += metrics_of(case.name, "", network)
    for kind in KINDS if case.is_beside else ():
        before, beside = (table[table["operation"] == kind] for table in (alone, rows))
        found += _of_kind(case, kind, rows, slowdowns(before, beside, config.congested.slowed))
    return found


def _rows(session: Session, phase: str) -> pd.DataFrame:
    rows = session.table("operations")
    return rows[rows["phase"] == phase]


def _of_kind(case: Variant, kind: str, rows: pd.DataFrame, values: Mapping[str, float]) -> list[Metric]:
    """Return the numbers of the reads of a kind, which one job makes."""
    jobs = rows[rows["operation"] == kind]["job"]
    named = {metric_path(kind, name): value for name, value in values.items()}
    return metrics_of(case.name, str(jobs.iloc[0]) if len(jobs) else "", named, is_named_by_job=False)


def _metric(tier: str) -> str:
    """Return the name of a tier's number of congested ports, such as ``congested_ports.leaf_to_spine``."""
    return CONGESTED.of(tier.replace(" → ", "_to_").replace(" ", "_"))


# What is said ---------------------------------------------------------------------------------------------------------


def _beside(found: AnyFound) -> list[Outcome[Variant]]:
    return [one for one in found.outcomes if one.case.is_beside]


def answer(found: Sequence[Outcome[Variant]]) -> str:
    """Return the finding of phases with the incast: one sentence per queueing."""
    sentences = []
    for queueing in dict.fromkeys(one.case.queueing for one in found):
        mine = [one for one in found if one.case.queueing is queueing]
        parts = [
            f"{one.case.policy.name} {one['congested_ports']:.0f} congested ports, pairs apart "
            f"{_times(one, SLOWDOWN)} times as slow as alone, the slowest {_times(one, WORST)} times"
            for one in mine
        ]
        sentences.append(f"In {queueing.words}: {'; '.join(parts)}{_verdict(mine)}.")
    return " ".join(sentences)


def _times(one: Outcome[Variant], measure: Measure) -> str:
    value = one.values.get(measure.of(APART))
    return "an unknown number of" if value is None else f"{value:.2f}"


def _verdict(found: Sequence[Outcome[Variant]]) -> str:
    """Return whether congestion spread further with adaptive routes than with static ones, if both were played."""
    by_policy = {one.case.policy: one.values for one in found}
    if not {STATIC, ADAPTIVE} <= set(by_policy):
        return ""
    static, adaptive, slowed = by_policy[STATIC], by_policy[ADAPTIVE], SLOWED_PAIRS.of(APART)
    ports = _more(adaptive["congested_ports"] - static["congested_ports"], "congested port")
    pairs = _more(adaptive.get(slowed, 0) - static.get(slowed, 0), "slowed pair")
    return f": compared with static routes, adaptive ones have {ports} and {pairs} among pairs apart"


def _more(difference: float, what: str) -> str:
    if difference == 0:
        return f"as many {what}s"
    plural = "" if abs(difference) == 1 else "s"
    return f"{abs(difference):.0f} {what}{plural} {'more' if difference > 0 else 'fewer'}"


def _tables(found: AnyFound) -> Iterator[SummaryTable]:
    by_name = {one.case.name: one for one in found.outcomes}
    congested, beside = found.config.congested, _beside(found)
    names = (Column("in", "queueing", is_once=True), Column("routes", "policy", is_once=True))
    yield case_table(
        "Congested ports of switches, with the incast",
        beside,
        (
            *names,
            *(Column(tier, _metric(tier)) for tier in TIERS if any(one[_metric(tier)] for one in found.outcomes)),
            Column("all", "congested_ports"),
            Column("without the incast", lambda one: by_name[one.case.alone]["congested_ports"]),
            Column("moves", "moves", ".0f"),
        ),
        f"congested: a backlog over {format_size(congested.backlog)} in more than {congested.share:.0%} of "
        "samples; moves: destinations that adaptive routing moved to another path. A leaf decides by the queues of its "
        "own uplinks. Where queues drop, a full port farther on does not pause these and stays unseen; in a "
        "lossless fabric it pauses them",
    )
    yield _bystanders_table(found)
    yield case_table(
        "Incast",
        [one for one in beside if READS.of(INCAST) in one.values],
        (
            *names,
            Column("reads", READS.of(INCAST), ".0f"),
            Column("p50", f"{INCAST}.p50_s"),
            Column("p99", f"{INCAST}.p99_s"),
            Column("goodput", BANDWIDTH.of(INCAST)),
        ),
        "a read is of all servers, and ends with the last; goodput: while a read is in progress, mean over clients",
    )
    yield case_table(
        "Network, with the incast",
        beside,
        (
            *names,
            Column("packets sent", "sent_packets"),
            Column("dropped by queues", "drops_packets"),
            Column("retransmissions", "retransmissions"),
            Column("reorderings", "reorderings"),
        ),
        "reorderings: how often a sender's TCP found that a packet had only been overtaken (TCP_INFO)",
    )


def _bystanders_table(found: AnyFound) -> SummaryTable:
    by_name = {one.case.name: one for one in found.outcomes}
    readers = [Compared(kind, one, by_name[one.case.alone]) for one in _beside(found) for kind in KINDS]
    return case_table(
        "Bystanders, alone and with the incast",
        [one for one in readers if "slowdown" in one.values],
        (
            Column("in", "queueing", is_once=True),
            Column("routes", "policy", is_once=True),
            Column("pairs", lambda one: one.part),
            Column("MB/s alone", "alone.bandwidth_Bps", ".3f in MB/s"),
            Column("with it", "bandwidth_Bps", ".3f in MB/s"),
            Column("slower", "slowdown", ".2f x"),
            Column("slowest", "worst_slowdown", ".2f x"),
            Column("slowed", "slowed_pairs", ".0f"),
            Column("p99 alone", "alone.p99_s"),
            Column("with it", "p99_s"),
        ),
        "apart: share no port with the incast by static routes; crossing: share an uplink of a leaf with it; "
        "slower: bandwidth alone over bandwidth with the incast, mean over pairs; slowed: pairs with more than "
        f"{found.config.congested.slowed:g} x",
    )


def with_moves(summary: dict[str, Any], moved: Mapping[str, tuple[Phase, list[Move]]]) -> dict[str, Any]:
    """Return a summary with the moves of phases that had any, and a table of the first ones."""
    moves = {name: [vars(move) for move in found] for name, (_, found) in moved.items() if found}
    table = case_table(
        "Moves of adaptive routing",
        [(phase, move) for phase, found in moved.values() for move in found[:_MOVES_SHOWN]],
        (
            Column("phase", lambda row: row[0].name),
            Column("after", lambda row: row[1].at_s - row[0].started_s, "time"),
            Column("leaf", lambda row: row[1].leaf),
            Column("destination", lambda row: row[1].host),
            Column("now goes up to", lambda row: row[1].spine),
        ),
        f"the first {_MOVES_SHOWN} of each phase; all are in summary.json",
    )
    return {**summary, "tables": [*summary["tables"], *([table] if moves else [])], "moves": moves}


def _more_of(found: AnyFound) -> dict[str, Any]:
    """Return who stood by."""
    _, pairs = choose(found.config, found.fabric)
    return {
        "bystanders": {kind: [f"{pair.server} → {pair.reader}" for pair in chosen] for kind, chosen in pairs.items()},
    }


def _title(found: AnyFound) -> str:
    config = found.config
    servers = Incast.of(found.fabric, config.incast.clients, config.incast.servers).servers
    return f"Incast of {len(servers)} storage nodes under {len(_beside(found))} routings and queueings"


STUDY = Study(
    title=_title,
    cases=Variant.grid,
    measure=_measure,
    measures=(
        READS,
        BANDWIDTH,
        SLOWDOWN,
        WORST,
        SLOWED_PAIRS,
        Measure("congested_ports", "ports of switches whose queue stayed deep", Better.LESS),
        CONGESTED,
        Measure("moves", "destinations that adaptive routing moved to another path"),
        Measure("reorderings", "times that a sender's TCP found that a packet was only overtaken"),
    ),
    answer=lambda found: answer(_beside(found)),
    tables=_tables,
    more=_more_of,
    figures=(
        Bars(
            "spreading",
            "Ports of switches with deep queues, by routing policy and queueing, with bystanders alone and with the "
            "incast.",
            "How far an incast's congestion spreads, by routing policy",
            numbers=tuple(Number(_metric(tier), tier) for tier in TIERS),
            x="{policy} routes, {queueing}, {traffic}",
            labels=("number of congested ports of switches", ""),
            stacked=True,
            looks=Looks(10.0, 1.6, legend=5, horizontal=True, bar_words="{:.0f}", places=Places(0.3, are_counts=True)),
        ),
        Bars(
            "slowdowns",
            "How many times slower bystanders are beside the incast than alone: the mean over pairs (bar) and the "
            "slowest (line). Pairs apart share no port with the incast by static routes; those crossing share an "
            "uplink of a leaf.",
            "Bystanders of an incast, by routing policy",
            numbers=tuple(Number(SLOWDOWN.of(kind), kind, upto=WORST.of(kind)) for kind in KINDS),
            x="{policy}",
            panels="{queueing}",
            labels=("", "slowdown beside alone (times)"),
            levels=(Level(Number(lambda _: 1.0, "as alone", colour=GREY), "--"),),
            looks=Looks(10.0, 4.2, bar_words="{:.3g}"),
        ),
    ),
)
