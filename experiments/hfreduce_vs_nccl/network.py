"""What does the network alone explain of the paper's figures, and what became of packets?"""

from __future__ import annotations

from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.limits import AnyFound, AnyOutcome
from experiments.hfreduce_vs_nccl.sent import made_of, nodes_of
from experiments.hfreduce_vs_nccl.variants import PAPER_BPS, NodesPhase, Variant, VariantPhase
from fabric.model.lanes import ServiceLevel
from runs.case_tables import CaseTable, Column
from runs.study import Question
from runs.true_scale import true_rate
from traffic.collectives.job import zones_of
from traffic.collectives.kinds import rank_flows


def explanation(variant: Variant, value: float) -> str:
    """Return what an algbw of points says beside the paper's range, both in bytes/s."""
    low, high = PAPER_BPS[variant.level]
    if value > high:
        hosts = "PCIe, memory, kernels" if variant.level == ServiceLevel.NCCL else "the sum in the node, PCIe, memory"
        return f"the network allows {value / high:.1f} times the paper's best: hosts ({hosts}) set the paper's figures"
    if value < low:
        return "below the paper's range: the network and TCP limit more here than the paper's network did"
    return "inside the paper's range: the network alone explains the paper's figures"


def _over_most(found: AnyFound) -> list[AnyOutcome]:
    """Return what came of points over most nodes."""
    over = [one for one in found.outcomes if isinstance(one.case, NodesPhase) and found.fabric.inside is None]
    return [one for one in over if one.case.count == max(each.case.count for each in over)]


def _pairs_across_zones(found: AnyFound, one: AnyOutcome) -> int:
    nodes = nodes_of(one.case, found.fabric)
    zones, made = zones_of(found.fabric, nodes), made_of(one.case, found.config, found.fabric)
    pairs = {frozenset((a, b)) for a, b, _ in rank_flows(made, found.fabric, nodes)}
    return sum(len({zones[rank] for rank in pair}) > 1 for pair in pairs)


NETWORK = Question[VariantPhase, HFReduceVsNcclConfig](
    tables=(
        CaseTable(
            lambda of: f"What the network alone explains: {max(of.config.nodes)} nodes, GB/s",
            lambda of: (
                "variant {variant}, here {here_Bps|.3g in GB/s}",
                Column("network's ideal", lambda one: true_rate(of.fabric, one["network_ideal_Bps"]), ".3g in GB/s"),
                "share {algbw_Bps / network_ideal_Bps|.0%}, paper {paper}",
                Column("conclusion", lambda one: explanation(one.case.variant, one["here_Bps"])),
            ),
            "the paper's ranges are over all its numbers of nodes, at 186 MiB; here nodes are points, in which "
            "computing, PCIe and memory take no time",
            rows=_over_most,
            having="here_Bps",
        ),
        CaseTable(
            "Network",
            lambda of: (
                "variant {variant}, nodes {count}, size {size}",
                Column("pairs across zones", lambda one: _pairs_across_zones(of, one)),
                "busiest link {busiest_link_of_nic|.2f}, packets sent {sent_packets}, dropped {drops_packets}, "
                "retransmitted {retransmissions}",
            ),
            "busiest link: its load relative to that of the busiest NIC, by the routes; above 1, flows share it",
        ),
    ),
)
