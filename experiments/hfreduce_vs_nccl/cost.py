"""What bandwidth costs: algbw per price of a node with its share of the network, by prices of the paper's Table III."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.hfreduce_vs_nccl.limits import Figures
from experiments.hfreduce_vs_nccl.variants import HFReduceVsNcclConfig, VariantPhase, in_gigabytes
from fabric.model.network import Fabric
from fabric.records.cells import Row, quantity
from fabric.records.summary_table import SummaryTable
from runs.true_scale import true_rate
from topologies.compare import priced_of


def node_price(config: HFReduceVsNcclConfig) -> float | None:
    """Return the relative price of a node with its share of the network; None if the topology gives none."""
    return priced_of(config.topology, "topology").price_per_node


def cost_metrics(
    fabric: Fabric, whole: Sequence[VariantPhase], figures: Figures, price: float | None
) -> dict[str, float]:
    """Return the algbw per unit of price of each phase, in bytes a second at full scale."""
    if price is None:
        return {}
    found = {play.phase: figures[play.phase].get("algbw_Bps") for play in whole}
    return {phase: true_rate(fabric, value) / price for phase, value in found.items() if value is not None}


def cost_table(
    config: HFReduceVsNcclConfig, whole: Sequence[VariantPhase], found: dict[str, float], price: float | None
) -> SummaryTable | None:
    """Return a table of what :func:`cost_metrics` found; None if there is no price."""
    if price is None:
        return None
    titles = {play.variant.name: play.variant.title for play in whole}
    phases = {(play.variant.name, play.count): play.phase for play in whole}
    rows: list[Row] = []
    for name, title in titles.items():
        values = [found.get(phases.get((name, count), "")) for count in config.nodes]
        rows.append(
            [title, quantity(price, ".4g"), *("none" if value is None else in_gigabytes(value) for value in values)]
        )
    return SummaryTable(
        title="algbw per price of a node, GB/s",
        columns=["variant", "price", *(f"{count} nodes" for count in config.nodes)],
        rows=rows,
        note="price: of a node with its share of the network, relative, in units of Table III of arXiv 2408.14158v2",
    )
