"""Does an incast's congestion spread further with adaptive routing?

All storage nodes answer a client at once, without a request-to-send, again and again, while pairs of other hosts read
from each other (:mod:`experiments.routing_incast.bystanders`); with each routing policy, once those bystanders alone
and once with the incast. Fire-Flyer 2 routes statically and deals storage nodes evenly over leaves, since adaptive
routing spread the congestion of incasts further (arXiv 2408.14158v2, VI-A2). Its fabric is lossless; where queues drop,
a full port does not pause those before it, and only the spreading by routes is visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pandas as pd

from controllers.planning.policies import ADAPTIVE, STATIC, Policy
from experiments.routing_incast.bystanders import APART, CROSSING, TIERS, Incast, tiers
from experiments.routing_incast.config import RoutingIncastConfig, choose
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Port
from fabric.records.figure_forms import Bars, Level, Looks, Number, Places
from fabric.records.palette import GREY
from fabric.units import format_size
from runs.case_tables import CaseTable, Column
from runs.cases import Case, axis
from runs.job_metrics import count_by_tier, deep_ports
from runs.jobs import started
from runs.session import PhaseOutcome, Session
from runs.study import Compared, Found, Outcome, Played, Study
from runs.ways import Moved
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.flows.fan_in_measures import (
    BANDWIDTH,
    READERS,
    READS,
    SLOWDOWN,
    SLOWED_PAIRS,
    WORST,
    reader_numbers,
    slowdowns,
)
from traffic.job import Job

INCAST = "incast"
KINDS = (APART, CROSSING)
_MOVES_SHOWN = 10
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
    with started(session, jobs):
        for case in cases:
            session.use_queueing(case.queueing)
            session.use_routing(config.routing_of(case.policy), case.policy.name)
            playing: list[Job] = [*(jobs if case.is_beside else jobs[:1])]
            outcome = session.run_phase(case.name, case.title, playing, config.phase_time)
            reorderings = sum(job.reorderings for job in jobs if job in playing)
            counted[case.name] = {"moves": len(moves_of(outcome)), "reorderings": reorderings}
    return STUDY.summarize(session, config, cases, counted)


def moves_of(outcome: PhaseOutcome) -> list[Moved]:
    """Return what adaptive routing has moved in a phase."""
    return [one for one in outcome.moves if outcome.phase.started_s <= one.at_s <= outcome.phase.ended_s]


def _measure(played: Played[Variant, RoutingIncastConfig]) -> list[Metric]:
    """Return all numbers of a phase: what its readers got, which ports were congested, how much slower readers were."""
    config, case, phase = played.config, played.case, played.phase
    clients = Incast.of(played.fabric, config.incast.clients, config.incast.servers).clients
    tier_of = {str(port): tier for port, tier in tiers(played.fabric, clients).items()}
    full, ports = config.congested, played.session.table("ports")
    deep = count_by_tier(deep_ports(ports, phase, full.backlog, full.share), tier_of, TIERS)
    rows, operations = played.rows("operations"), played.session.table("operations")
    alone = operations[operations["phase"] == case.alone]
    found = [one for kind in (INCAST, *KINDS) for one in _of_kind(case, kind, rows, reader_numbers(rows, kind))]
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


def _aside(found: AnyFound, one: Outcome[Variant]) -> dict[str, float]:
    return {"congested_alone": found.of(one.case.alone)["congested_ports"]}


def _readers(found: AnyFound) -> list[Compared[Variant]]:
    """Return the bystanders of each kind beside the incast, and alone."""
    readers = [Compared(kind, one, found.of(one.case.alone)) for one in _beside(found) for kind in KINDS]
    return [one for one in readers if "slowdown" in one.values]


def _congested_columns(found: AnyFound) -> list[Column]:
    return [
        *_OF_CASE,
        *(Column(tier, _metric(tier)) for tier in TIERS if any(one[_metric(tier)] for one in found.outcomes)),
        Column("all", "congested_ports"),
        Column("without the incast", "congested_alone"),
        Column("moves", "moves", ".0f"),
    ]


def _congested_note(found: AnyFound) -> str:
    congested = found.config.congested
    return (
        f"congested: a backlog over {format_size(congested.backlog)} in more than {congested.share:.0%} of "
        "samples; moves: destinations that adaptive routing moved to another path. A leaf decides by the queues of its "
        "own uplinks. Where queues drop, a full port farther on does not pause these and stays unseen; in a "
        "lossless fabric it pauses them"
    )


def _move_columns(found: AnyFound) -> list[Column]:
    fabric = found.fabric
    return [
        Column("phase", lambda row: row[0].name),
        Column("after", lambda row: row[1].at_s - row[0].started_s, "time"),
        Column("leaf", lambda row: row[1].leaf.name),
        Column("destination", lambda row: fabric.nic_at_ip[row[1].ip].node.name),
        Column("now goes up to", lambda row: fabric.peer(Port(row[1].leaf, row[1].port)).node.name),
    ]


_OF_CASE = (Column("in", "queueing", is_once=True), Column("routes", "policy", is_once=True))
TABLES = (
    CaseTable(
        "Congested ports of switches, with the incast",
        _congested_columns,
        _congested_note,
        rows=_beside,
    ),
    CaseTable(
        "Bystanders, alone and with the incast",
        (
            *_OF_CASE,
            Column("pairs", lambda one: one.part),
            Column("MB/s alone", "alone.bandwidth_Bps", ".3f in MB/s"),
            Column("with it", "bandwidth_Bps", ".3f in MB/s"),
            Column("slower", "slowdown", ".2f x"),
            Column("slowest", "worst_slowdown", ".2f x"),
            Column("slowed", "slowed_pairs", ".0f"),
            Column("p99 alone", "alone.p99_s"),
            Column("with it", "p99_s"),
        ),
        lambda found: (
            "apart: share no port with the incast by static routes; crossing: share an uplink of a leaf with it; "
            "slower: bandwidth alone over bandwidth with the incast, mean over pairs; slowed: pairs with more than "
            f"{found.config.congested.slowed:g} x"
        ),
        rows=_readers,
    ),
    CaseTable(
        "Incast",
        (
            *_OF_CASE,
            Column("reads", READS.of(INCAST), ".0f"),
            Column("p50", f"{INCAST}.p50_s"),
            Column("p99", f"{INCAST}.p99_s"),
            Column("goodput", BANDWIDTH.of(INCAST)),
        ),
        "a read is of all servers, and ends with the last; goodput: while a read is in progress, mean over clients",
        rows=lambda found: [one for one in _beside(found) if READS.of(INCAST) in one.values],
    ),
    CaseTable(
        "Network, with the incast",
        (
            *_OF_CASE,
            Column("packets sent", "sent_packets"),
            Column("dropped by queues", "drops_packets"),
            Column("retransmissions", "retransmissions"),
            Column("reorderings", "reorderings"),
        ),
        "reorderings: how often a sender's TCP found that a packet had only been overtaken (TCP_INFO)",
        rows=_beside,
    ),
    CaseTable(
        "Moves of adaptive routing",
        _move_columns,
        f"the first {_MOVES_SHOWN} of each phase; all are in summary.json",
        rows=lambda found: [(one.phase, move) for one in found.session.phases for move in moves_of(one)[:_MOVES_SHOWN]],
    ),
)


def _more_of(found: AnyFound) -> dict[str, Any]:
    """Return who stood by, and what moved."""
    fabric, (_, pairs) = found.fabric, choose(found.config, found.fabric)
    return {
        "bystanders": {kind: [f"{pair.server} → {pair.reader}" for pair in chosen] for kind, chosen in pairs.items()},
        "moves": {
            one.phase.name: [
                {
                    "at_s": move.at_s,
                    "leaf": move.leaf.name,
                    "host": fabric.nic_at_ip[move.ip].node.name,
                    "spine": fabric.peer(Port(move.leaf, move.port)).node.name,
                }
                for move in moves_of(one)
            ]
            for one in found.session.phases
            if moves_of(one)
        },
    }


def _title(found: AnyFound) -> str:
    config = found.config
    servers = Incast.of(found.fabric, config.incast.clients, config.incast.servers).servers
    return f"Incast of {len(servers)} storage nodes under {len(_beside(found))} routings and queueings"


STUDY = Study[Variant, RoutingIncastConfig](
    title=_title,
    cases=Variant.grid,
    measure=_measure,
    measures=(
        *READERS,
        Measure("congested_ports", "ports of switches whose queue stayed deep", Better.LESS),
        CONGESTED,
        Measure("moves", "destinations that adaptive routing moved to another path"),
        Measure("reorderings", "times that a sender's TCP found that a packet was only overtaken"),
    ),
    answer=lambda found: answer(_beside(found)),
    tables=TABLES,
    aside=_aside,
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
