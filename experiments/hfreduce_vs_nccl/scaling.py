"""How fast is each variant over growing numbers of nodes, beside NCCL's ring and the paper?"""

from __future__ import annotations

import math
from functools import partial

from experiments.hfreduce_vs_nccl.by_nodes import PER_PRICE, TABLES, TIMES, NodesFound, node_price, rows_of
from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.variants import PAPER_BPS, PAPER_NVLINK_BPS, NodesPhase, VariantPhase
from fabric.measures import Better, Measure
from fabric.metrics import Metric
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Bands, Level, Looks, Number
from fabric.records.palette import GREY
from fabric.units import format_size
from runs.case_tables import Answer
from runs.study import Outcome, Question
from runs.true_scale import true_rate


def _aside(found: NodesFound, one: Outcome[VariantPhase]) -> dict[str, float]:
    """Return rates at the scale of the system that the fabric stands for, by the figure that shows them, and what they
    are beside the network's ideal, NCCL's ring and a node's price; what is not known is left out."""
    variant, here_Bps = one.case.variant, true_rate(found.fabric, one["algbw_Bps"])  # noqa: N806 - bytes, not bits
    limit_Bps = true_rate(found.fabric, one["limit_Bps"])  # noqa: N806
    shown = {"of_ideal": one["algbw_Bps"] / one["network_ideal_Bps"]}
    shown[PER_PRICE] = here_Bps / (node_price(found.config) or math.nan)
    if variant.level is ServiceLevel.HFREDUCE:
        rings = [other["algbw_Bps"] for other in found.outcomes if other.case.name == f"nccl_ring_n{one.case.count}"]
        shown[TIMES] = one["algbw_Bps"] / (rings[0] or math.nan) if rings else math.nan
        shown["beside_nvlink_Bps"] = (
            here_Bps if any(other.case.variant.nvlink for other in found.outcomes) else math.nan
        )
    if variant.nvlink:
        shown |= {"nvlink_limit_Bps": limit_Bps, "paper_nvlink_Bps": PAPER_NVLINK_BPS}
    else:
        paper = zip(("paper_least_Bps", "paper_most_Bps"), PAPER_BPS[variant.level], strict=True)
        shown |= {"plain_Bps": here_Bps, "plain_limit_Bps": limit_Bps, **dict(paper if variant.is_published else ())}
    return {name: value for name, value in shown.items() if not math.isnan(value)} if "algbw_Bps" in one.values else {}


def _answer(found: NodesFound) -> str:
    """Return the finding, from the largest number of nodes of each variant."""
    size, inside = format_size(found.config.size), found.fabric.inside
    text = f"With {size} over {max(found.config.nodes)} nodes the network alone allows: {{}}."
    said = "{variant} {here_Bps|.3g in GB/s or an unknown number of} GB/s"
    if inside is not None:
        text = f"With {size} on nodes with an inside ({inside.name}): {{}}; no cap was put in."
        said += " over {gpus} GPUs"
    last = [list(by_nodes.values())[-1] for _, by_nodes in rows_of(found) if by_nodes]
    return Answer(text, f"{said} (paper: {{paper}})", between="; ", rows=lambda _: last)(found)


def _over_nodes(found: NodesFound) -> list[Metric]:
    each = [(one, name) for name in (TIMES, PER_PRICE) for one in found.outcomes if name in one.values]
    return [Metric(one.case.name, "", name, one[name]) for one, name in each]


ALGBW = partial(
    Bands,
    x="{gpus}",
    line="{variant}",
    colour="{kind}",
    labels=("number of GPUs; nodes that are points have one", "algbw = size / time, median over steps (GB/s)"),
    looks=Looks(11.0, 5.4, legend=2),
)
SCALING = Question[VariantPhase, HFReduceVsNcclConfig](
    kinds=NodesPhase,
    measures=(
        Measure(TIMES, "algbw over that of NCCL's ring on as many nodes", Better.MORE),
        Measure(PER_PRICE, "algbw at full scale over the price of a node", Better.MORE),
    ),
    aside=_aside,
    over_cases=_over_nodes,
    answer=_answer,
    tables=TABLES,
    figures=(
        ALGBW(
            "scaling",
            "Collectives over growing numbers of nodes: median algbw over the steps of a phase, one line per variant, "
            "at the scale of the system that the fabric stands for. Thin lines: up to what a node's tightest limit "
            "alone allows. Shaded: measured by others.",
            "algbw over growing numbers of nodes",
            numbers=(Number("plain_Bps", "here", 1e-9, upto="plain_limit_Bps"),),
            band=(Number("paper_least_Bps", "paper, {kind}: {paper} GB/s", 1e-9), Number("paper_most_Bps", "", 1e-9)),
        ),
        ALGBW(
            "scaling_nvlink",
            "HFReduce with NVLink within a zone and across zones, beside HFReduce without it: as scaling.",
            "algbw over growing numbers of nodes, with NVLink",
            numbers=(Number("beside_nvlink_Bps", "here", 1e-9, upto="nvlink_limit_Bps"),),
            levels=(Level(Number("paper_nvlink_Bps", "paper, with NVLink: above this", 1e-9, colour=GREY), "--"),),
        ),
        ALGBW(
            "sizes",
            "algbw over the size of an allreduce: where it no longer grows is steady state.",
            "algbw over the size of an allreduce",
            numbers=(Number("of_size_Bps", "here", 1e-9),),
            x="{mebibytes}",
            labels=("size (MiB)", "algbw = size / time, median over steps (GB/s)"),
        ),
    ),
)
