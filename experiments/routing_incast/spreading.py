"""How far does the congestion of an incast spread?"""

from __future__ import annotations

from typing import Any

from experiments.routing_incast.bystanders import Incast
from experiments.routing_incast.cases import OF_CASE, AnyFound, Variant, beside
from experiments.routing_incast.config import RoutingIncastConfig
from fabric.measures import Measure
from fabric.model.network import Fabric, Port
from fabric.records.figure_forms import Bars, Looks, Number, Places
from fabric.units import format_size
from runs.case_tables import CaseTable, Column
from runs.job_metrics import CONGESTED, TIERS, congested_name, congested_numbers
from runs.session import PhaseOutcome
from runs.study import Played, Question
from runs.ways import Moved

_MOVES_SHOWN = 10


def moves_of(outcome: PhaseOutcome) -> list[Moved]:
    """The moves of adaptive routing in a phase."""
    return [one for one in outcome.moves if outcome.phase.started_s <= one.at_s <= outcome.phase.ended_s]


def _measure(played: Played[Variant, RoutingIncastConfig]) -> dict[str, float]:
    """Return which ports were congested, and what became of packets."""
    full, wanted, ports = played.config.congested, played.config.incast, played.session.table("ports")
    clients = Incast.of(played.fabric, wanted.clients, wanted.servers).clients
    return {
        **congested_numbers(played.fabric, clients, ports, played.phase, full.backlog, full.share),
        **played.packets("sent_packets", "drops_packets", "retransmissions"),
        **played.counted,
    }


def _columns(found: AnyFound) -> list[Column | str]:
    names = {tier: congested_name(tier) for tier in TIERS}
    return [
        *OF_CASE,
        *(Column(tier, name) for tier, name in names.items() if any(one[name] for one in found.outcomes)),
        "all {congested_ports}, without the incast {congested_alone}, moves {moves|.0f}",
    ]


def _note(found: AnyFound) -> str:
    congested = found.config.congested
    return (
        f"congested: a backlog over {format_size(congested.backlog)} in more than {congested.share:.0%} of "
        "samples; moves: destinations that adaptive routing moved to another path. A leaf decides by the queues of its "
        "own uplinks. Where queues drop, a full port farther on does not pause these and stays unseen; in a "
        "lossless fabric it pauses them"
    )


def _moves(found: AnyFound) -> dict[str, list[dict[str, Any]]]:
    """The moves of each phase that has any."""
    moves = {one.phase.name: [_told(found.fabric, move) for move in moves_of(one)] for one in found.session.phases}
    return {phase: told for phase, told in moves.items() if told}


def _told(fabric: Fabric, move: Moved) -> dict[str, Any]:
    host, spine = fabric.nic_at_ip[move.ip].node, fabric.peer(Port(move.leaf, move.port)).node
    return {"at_s": move.at_s, "leaf": move.leaf.name, "host": host.name, "spine": spine.name}


def _first_moves(found: AnyFound) -> list[dict[str, Any]]:
    began_s, moves = {one.phase.name: one.phase.started_s for one in found.session.phases}, _moves(found)
    rows = [(phase, move) for phase in moves for move in moves[phase][:_MOVES_SHOWN]]
    return [{"phase": phase, "after_s": move["at_s"] - began_s[phase], **move} for phase, move in rows]


SPREADING = Question[Variant, RoutingIncastConfig](
    measure=_measure,
    measures=(
        *CONGESTED,
        Measure("moves", "destinations that adaptive routing moved to another path"),
        Measure("reorderings", "times that a sender's TCP found that a packet was only overtaken"),
    ),
    aside=lambda _, one: {"congested_alone": one.alone()["congested_ports"]},
    tables=(
        CaseTable("Congested ports of switches, with the incast", _columns, _note, rows=beside),
        CaseTable(
            "Network, with the incast",
            (
                *OF_CASE,
                "packets sent {sent_packets}, dropped by queues {drops_packets}, retransmissions {retransmissions}, "
                "reorderings {reorderings}",
            ),
            "reorderings: how often a sender's TCP found that a packet had only been overtaken (TCP_INFO)",
            rows=beside,
        ),
        CaseTable(
            "Moves of adaptive routing",
            "phase {phase}, after {after_s}, leaf {leaf}, destination {host}, now goes up to {spine}",
            f"the first {_MOVES_SHOWN} of each phase; all are in summary.json",
            rows=_first_moves,
        ),
    ),
    more=lambda found: {"moves": _moves(found)},
    figures=(
        Bars(
            "spreading",
            "Ports of switches with deep queues, by routing policy and queueing, with bystanders alone and with the "
            "incast.",
            "How far an incast's congestion spreads, by routing policy",
            numbers=tuple(Number(congested_name(tier), tier) for tier in TIERS),
            x="{policy} routes, {queueing}, {traffic}",
            labels=("number of congested ports of switches", ""),
            stacked=True,
            looks=Looks(10.0, 1.6, legend=5, horizontal=True, bar_words="{:.0f}", places=Places(0.3, are_counts=True)),
        ),
    ),
)
