"""Tables of variants over numbers of nodes: algbw beside the network's ideal, NCCL's ring, and the price of a node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.variants import PAPER_BPS, Variant, VariantPhase, chosen_variants
from fabric.model.lanes import ServiceLevel
from fabric.records.cells import Cell
from fabric.units import format_size
from runs.case_tables import CaseTable, Column
from runs.study import Found, Outcome
from runs.true_scale import scale_words
from topologies.compare import priced_of
from traffic.metrics import payload_fraction

NodesFound = Found[VariantPhase, HFReduceVsNcclConfig]
Row = tuple[Variant, Mapping[int, Outcome[VariantPhase]]]
"""A variant, and what came of it by number of nodes."""
TIMES, PER_PRICE = "times_nccl", "algbw_Bps_per_price"


def rows_of(found: NodesFound, number: str = "") -> list[Row]:
    """Return a row per variant, or per variant that has a number over some nodes."""
    rows: dict[Variant, dict[int, Outcome[VariantPhase]]] = {
        one: {} for one in chosen_variants(found.config, found.fabric)
    }
    for one in found.outcomes:
        rows[one.case.variant][one.case.count] = one
    return [row for row in rows.items() if not number or any(number in one.values for one in row[1].values())]


def node_price(config: HFReduceVsNcclConfig) -> float | None:
    """Return the relative price of a node with its share of the network; None if the topology gives none."""
    return priced_of(config.topology, "topology").price_per_node


def _over_nodes(found: NodesFound, number: str, text: str, of: str = "") -> list[Column]:
    """Return a column per number of nodes, with what a text says; ``none`` where a number is not known."""

    def cell(row: Row, count: int) -> Cell:
        one = row[1].get(count)
        return "none" if one is None or number not in one.values else Column("", text).cell(one)

    return [Column(f"{count} nodes{of}", partial(cell, count=count)) for count in found.config.nodes]


def _ratio_note(_: NodesFound) -> str:
    (low, high), (nccl_low, nccl_high) = PAPER_BPS[ServiceLevel.HFREDUCE], PAPER_BPS[ServiceLevel.NCCL]
    return f"the paper's Figure 7a: best by best {high / nccl_high:.1f}, least by least {low / nccl_low:.1f}"


_VARIANT = Column("variant", lambda row: row[0].title)
TABLES = (
    CaseTable(
        lambda of: f"algbw in GB/s of {format_size(of.config.size)} (share of the network's ideal)",
        lambda of: [
            _VARIANT,
            *_over_nodes(
                of,
                "here_Bps",
                "{here_Bps|.3g in GB/s} ({of_ideal|.0%})",
                "" if of.fabric.inside is None else f" of {of.fabric.inside.gpus} GPUs",
            ),
            Column("paper, 186 MiB", lambda row: row[0].paper),
        ],
        lambda of: (
            f"algbw = size / time of a step, as nccl-tests defines it, median over steps{scale_words(of.fabric)}; the "
            f"network's ideal fills the busiest node's NIC, {payload_fraction(of.fabric.mtu_bytes):.1%} of it with "
            "payload; below 4 nodes all are of one zone unless the variant says otherwise; none: not played, or no "
            "step ended"
        ),
        rows=rows_of,
    ),
    CaseTable(
        "How many times NCCL's ring",
        lambda of: [_VARIANT, *_over_nodes(of, TIMES, f"{{{TIMES}|.2f}}")],
        _ratio_note,
        rows=partial(rows_of, number=TIMES),
    ),
    CaseTable(
        "algbw per price of a node, GB/s",
        lambda of: [
            _VARIANT,
            Column("price", lambda _: node_price(of.config), ".4g"),
            *_over_nodes(of, PER_PRICE, f"{{{PER_PRICE}|.3g in GB/s}}"),
        ],
        "price: of a node with its share of the network, relative, in units of Table III of arXiv 2408.14158v2",
        rows=partial(rows_of, number=PER_PRICE),
    ),
)
