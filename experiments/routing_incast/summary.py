"""The results of an incast under several routing policies: tables, metrics, a sentence, and data of the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from controllers.planning.policies import ADAPTIVE, STATIC, Policy
from experiments.routing_incast.bystanders import APART, CROSSING, TIERS, Incast, Pair, tiers
from experiments.routing_incast.measures import BANDWIDTH, CONGESTED, READS, SLOWDOWN, SLOWED_PAIRS, WORST
from experiments.routing_incast.spreading import (
    CongestedConfig,
    congested_ports,
    count_by_tier,
    read_metrics,
    slowdowns,
)
from fabric.metrics import Metric, by_phase, metric_path, metrics_of
from fabric.model.lanes import Queueing
from fabric.records.cells import Row, count_of, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_size
from runs.session import Session

INCAST = "incast"
KINDS = (APART, CROSSING)
_MOVES_SHOWN = 10


@dataclass(frozen=True)
class Move:
    """Adaptive routing's decision that a leaf sends what is for a host up to another spine."""

    at_s: float
    leaf: str
    host: str
    spine: str


@dataclass(frozen=True)
class PhaseObservations:
    """What a phase's tables do not hold: moves, and how often TCP saw packets overtake others."""

    moves: tuple[Move, ...]
    reorderings: int


Figures = Mapping[str, Mapping[str, float]]
"""All numbers of each phase, by its name."""


@dataclass(frozen=True)
class Variant:
    """A queueing and a routing policy, played in two phases."""

    queueing: Queueing
    policy: Policy

    @property
    def alone(self) -> str:
        """The phase of bystanders alone."""
        return f"{self.queueing.value}_{self.policy.name}_alone"

    @property
    def beside(self) -> str:
        """The phase with the incast."""
        return f"{self.queueing.value}_{self.policy.name}_incast"

    @property
    def title(self) -> str:
        """Return the title of its figures and rows."""
        return f"{self.policy.name} routes, {self.queueing.value}"


def summarize(
    session: Session,
    variants: Sequence[Variant],
    congested: CongestedConfig,
    incast: Incast,
    pairs: Mapping[str, Sequence[Pair]],
    seen: Mapping[str, PhaseObservations],
) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    measured = list(phase_metrics(session, variants, congested, incast, seen))
    figures = by_phase(measured)
    return {
        "title": f"Incast of {len(incast.servers)} storage nodes under {len(variants)} routings and queueings",
        "answer": answer(variants, figures),
        "bystanders": {kind: [f"{pair.server} → {pair.reader}" for pair in found] for kind, found in pairs.items()},
        "moves": {phase: [vars(move) for move in one.moves] for phase, one in seen.items() if one.moves},
        "metrics": measured,
        "tables": [
            _spreading_table(variants, figures, congested),
            _bystanders_table(variants, figures, congested),
            _incast_table(variants, figures),
            _network_table(variants, figures),
            *_moves_tables(session, seen),
        ],
        "spreading": _spreading(variants, figures, congested),
    }


def phase_metrics(
    session: Session,
    variants: Sequence[Variant],
    congested: CongestedConfig,
    incast: Incast,
    seen: Mapping[str, PhaseObservations],
) -> Iterator[Metric]:
    """Yield all numbers of each phase."""
    operations, ports = session.table("operations"), session.table("ports")
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    tier_of = {str(port): tier for port, tier in tiers(session.live.fabric, incast.clients).items()}
    for variant in variants:
        for name in (variant.alone, variant.beside):
            outcome = outcomes[name]
            deep = count_by_tier(congested_ports(ports, outcome.phase, congested), tier_of, TIERS)
            network = {
                "congested_ports": sum(deep.values()),
                **{_metric(tier): count for tier, count in deep.items()},
                "sent_packets": outcome.conservation.sent_packets,
                "drops_packets": outcome.conservation.dropped_by_queues,
                "retransmissions": outcome.conservation.retransmissions,
                "moves": len(seen[name].moves),
                "reorderings": seen[name].reorderings,
            }
            yield from _reads(operations[operations["phase"] == name], name)
            yield from metrics_of(name, "", network)
        yield from _slowdowns(operations, variant, congested.slowed)


def _metric(tier: str) -> str:
    """Return the name of a tier's number of congested ports, such as ``congested_ports.leaf_to_spine``."""
    return CONGESTED.of(tier.replace(" → ", "_to_").replace(" ", "_"))


def _reads(operations: pd.DataFrame, phase: str) -> Iterator[Metric]:
    """Yield what a phase's readers of each kind got."""
    for kind in (INCAST, *KINDS):
        rows = operations[operations["operation"] == kind]
        yield from _of_kind(phase, kind, rows, read_metrics(operations, kind))


def _slowdowns(operations: pd.DataFrame, variant: Variant, slowed: float) -> Iterator[Metric]:
    for kind in KINDS:
        rows = operations[operations["operation"] == kind]
        alone, beside = (rows[rows["phase"] == phase] for phase in (variant.alone, variant.beside))
        yield from _of_kind(variant.beside, kind, rows, slowdowns(alone, beside, slowed))


def _of_kind(phase: str, kind: str, rows: pd.DataFrame, values: Mapping[str, float]) -> list[Metric]:
    """Return the numbers of the reads of a kind, of which ``rows`` are; one job makes them all."""
    job = str(rows["job"].iloc[0]) if len(rows) else ""
    return [Metric(phase, job, metric_path(kind, name), value, is_named_by_job=False) for name, value in values.items()]


def answer(variants: Sequence[Variant], figures: Figures) -> str:
    """Return the finding: one sentence per queueing."""
    sentences = []
    for queueing in dict.fromkeys(variant.queueing for variant in variants):
        found = [variant for variant in variants if variant.queueing is queueing]
        parts = [
            f"{variant.policy.name} {figures[variant.beside]['congested_ports']:.0f} congested ports, pairs apart "
            f"{_slowdown(figures, variant, 'slowdown')} times as slow as alone, the slowest "
            f"{_slowdown(figures, variant, 'worst_slowdown')} times"
            for variant in found
        ]
        sentences.append(f"In {queueing.words}: {'; '.join(parts)}{_verdict(found, figures)}.")
    return " ".join(sentences)


def _slowdown(figures: Figures, variant: Variant, name: str) -> str:
    value = figures[variant.beside].get(f"{APART}.{name}")
    return "an unknown number of" if value is None else f"{value:.2f}"


def _verdict(found: Sequence[Variant], figures: Figures) -> str:
    """Return whether congestion spread further with adaptive routes than with static ones, if both were played."""
    by_policy = {variant.policy: figures[variant.beside] for variant in found}
    if not {STATIC, ADAPTIVE} <= set(by_policy):
        return ""
    static, adaptive = by_policy[STATIC], by_policy[ADAPTIVE]
    ports = _more(adaptive["congested_ports"] - static["congested_ports"], "congested port")
    slowed = _more(adaptive.get(f"{APART}.slowed_pairs", 0) - static.get(f"{APART}.slowed_pairs", 0), "slowed pair")
    return f": compared with static routes, adaptive ones have {ports} and {slowed} among pairs apart"


def _more(difference: float, what: str) -> str:
    if difference == 0:
        return f"as many {what}s"
    plural = "" if abs(difference) == 1 else "s"
    return f"{abs(difference):.0f} {what}{plural} {'more' if difference > 0 else 'fewer'}"


def _names(variants: Sequence[Variant]) -> Iterator[tuple[Variant, list[str]]]:
    """Yield each variant with its first two cells: its queueing, said once, and its routes."""
    before: Queueing | None = None
    for variant in variants:
        yield variant, ["" if variant.queueing is before else variant.queueing.words, variant.policy.name]
        before = variant.queueing


def _spreading_table(variants: Sequence[Variant], figures: Figures, congested: CongestedConfig) -> SummaryTable:
    phases = [figures[phase] for variant in variants for phase in (variant.alone, variant.beside)]
    tiers = [tier for tier in TIERS if any(found[_metric(tier)] for found in phases)]
    rows: list[Row] = []
    for variant, names in _names(variants):
        alone, beside = figures[variant.alone], figures[variant.beside]
        counts = [count_of(beside[_metric(tier)]) for tier in tiers]
        sums = [measured(found, "congested_ports", ".0f") for found in (beside, alone)]
        rows.append([*names, *counts, *sums, measured(beside, "moves", ".0f")])
    return SummaryTable(
        title="Congested ports of switches, with the incast",
        columns=["in", "routes", *tiers, "all", "without the incast", "moves"],
        rows=rows,
        note=f"congested: a backlog over {format_size(congested.backlog)} in more than {congested.share:.0%} of "
        "samples; moves: destinations that adaptive routing moved to another path. A leaf decides by the queues of its "
        "own uplinks. Where queues drop, a full port farther on does not pause these and stays unseen; in a "
        "lossless fabric it pauses them",
    )


def _bystanders_table(variants: Sequence[Variant], figures: Figures, congested: CongestedConfig) -> SummaryTable:
    rows: list[Row] = []
    for variant, names in _names(variants):
        alone, beside = figures[variant.alone], figures[variant.beside]
        for kind in KINDS:
            if SLOWDOWN.of(kind) in beside:
                cells = [measured(found, BANDWIDTH.of(kind), ".3f in MB/s") for found in (alone, beside)]
                cells += [measured(beside, one.of(kind), ".2f x") for one in (SLOWDOWN, WORST)]
                cells.append(measured(beside, SLOWED_PAIRS.of(kind), ".0f"))
                cells += [measured(found, f"{kind}.p99_s") for found in (alone, beside)]
                rows.append([*names, kind, *cells])
                names = ["", ""]
    columns = ["in", "routes", "pairs", "MB/s alone", "with it", "slower", "slowest", "slowed", "p99 alone", "with it"]
    return SummaryTable(
        title="Bystanders, alone and with the incast",
        columns=columns,
        rows=rows,
        note="apart: share no port with the incast by static routes; crossing: share an uplink of a leaf with it; "
        "slower: bandwidth alone over bandwidth with the incast, mean over pairs; slowed: pairs with more than "
        f"{congested.slowed:g} x",
    )


def _incast_table(variants: Sequence[Variant], figures: Figures) -> SummaryTable:
    rows: list[Row] = []
    for variant, names in _names(variants):
        found = figures[variant.beside]
        if READS.of(INCAST) in found:
            times = [measured(found, f"{INCAST}.{name}_s") for name in ("p50", "p99")]
            goodput = measured(found, BANDWIDTH.of(INCAST))
            rows.append([*names, measured(found, READS.of(INCAST), ".0f"), *times, goodput])
    columns = ["in", "routes", "reads", "p50", "p99", "goodput"]
    note = "a read is of all servers, and ends with the last; goodput: while a read is in progress, mean over clients"
    return SummaryTable(title="Incast", columns=columns, rows=rows, note=note)


def _network_table(variants: Sequence[Variant], figures: Figures) -> SummaryTable:
    shown = ("sent_packets", "drops_packets", "retransmissions", "reorderings")
    rows: list[Row] = [
        [*names, *(quantity(figures[variant.beside][name], ",.0f") for name in shown)]
        for variant, names in _names(variants)
    ]
    return SummaryTable(
        title="Network, with the incast",
        columns=["in", "routes", "packets sent", "dropped by queues", "retransmissions", "reorderings"],
        rows=rows,
        note="reorderings: how often a sender's TCP found that a packet had only been overtaken (TCP_INFO)",
    )


def _moves_tables(session: Session, seen: Mapping[str, PhaseObservations]) -> list[SummaryTable]:
    """Return the table of the first moves of each phase that had any."""
    started = {outcome.phase.name: outcome.phase.started_s for outcome in session.phases}
    rows: list[Row] = []
    for phase, one in seen.items():
        for move in one.moves[:_MOVES_SHOWN]:
            rows.append([phase, quantity(move.at_s - started[phase], "time"), move.leaf, move.host, move.spine])
    note = f"the first {_MOVES_SHOWN} of each phase; all are in summary.json"
    columns = ["phase", "after", "leaf", "destination", "now goes up to"]
    return [SummaryTable(title="Moves of adaptive routing", columns=columns, rows=rows, note=note)] if rows else []


def _spreading(variants: Sequence[Variant], figures: Figures, congested: CongestedConfig) -> dict[str, Any]:
    """Return what the figure draws."""

    def counts(phase: str) -> dict[str, float]:
        return {tier: figures[phase][_metric(tier)] for tier in TIERS}

    def slower(variant: Variant) -> dict[str, dict[str, float]]:
        found = figures[variant.beside]
        names = {"slowdown": SLOWDOWN, "worst_slowdown": WORST}
        return {
            kind: {name: found[measure.of(kind)] for name, measure in names.items()}
            for kind in KINDS
            if SLOWDOWN.of(kind) in found
        }

    return {
        "backlog_bytes": congested.backlog,
        "share": congested.share,
        "variants": [
            {
                "policy": variant.policy.name,
                "queueing": variant.queueing.value,
                "alone": counts(variant.alone),
                "beside": counts(variant.beside),
                "slowdowns": slower(variant),
            }
            for variant in variants
        ],
    }
