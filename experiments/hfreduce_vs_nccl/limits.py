"""Which limit of a node binds which variant: closed forms beside what packets reached, and how busy each limit was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.hfreduce_vs_nccl.use import LIMITS
from experiments.hfreduce_vs_nccl.variants import Variant, VariantPhase, in_gigabytes, rings_of
from fabric.model.network import Fabric
from fabric.records.cells import Row, count_of, quantity
from fabric.records.summary_table import SummaryTable
from runs.true_scale import true_rate
from traffic import metrics
from traffic.collectives.hfreduce import TreeKind, trees_of
from traffic.collectives.nccl import Algorithm
from traffic.collectives.node_limits import NodeLimit, hfreduce_limits, ring_limits
from traffic.collectives.trees import sent_fractions

_SHOWN = 3
Figures = Mapping[str, Mapping[str, float]]
"""All numbers of each phase, by its name."""
Busy = Mapping[tuple[str, str], float]
"""By phase and limit, how busy the busiest of all nodes' was."""


def limits_of(fabric: Fabric, variant: Variant, count: int) -> list[NodeLimit]:
    """Return the limits of a variant over so many nodes, the tightest first; none for points and for NCCL's tree."""
    inside = variant.inside(fabric)
    if inside is None:
        return []
    if isinstance(variant.algorithm, TreeKind):
        trees = trees_of(variant.algorithm, variant.zones(fabric, count))
        return hfreduce_limits(inside, fabric.nic_rate_bps, max(sent_fractions(trees)))
    if variant.algorithm is Algorithm.RING:
        return ring_limits(inside, fabric.nic_rate_bps, count * inside.gpus, rings_of(fabric))
    return []


def allowed_Bps(fabric: Fabric, limit: NodeLimit) -> float:  # noqa: N802 - bytes, not bits
    """Return the algbw that a limit allows, in bytes a second at full scale, less the headers of packets."""
    return true_rate(fabric, limit.algbw_Bps * metrics.payload_fraction(fabric.mtu_bytes))


def limits_table(fabric: Fabric, played: Sequence[VariantPhase], figures: Figures) -> SummaryTable | None:
    """Return a table of what each variant reached and what its tightest limits allow; None if nodes are points."""
    if fabric.inside is None:
        return None
    rows: list[Row] = []
    for play in played:
        found = limits_of(fabric, play.variant, play.count)[:_SHOWN]
        value = figures[play.phase].get("algbw_Bps")
        if not found or value is None:
            continue
        allowed = [allowed_Bps(fabric, one) for one in found]
        cells = [(f"{one.name} ", in_gigabytes(most)) for one, most in zip(found, allowed, strict=True)]
        reached = true_rate(fabric, value)
        size = quantity(play.size, "size")
        share = quantity(reached / allowed[0], ".0%")
        gpus = count_of(play.count * fabric.inside.gpus)
        rows.append([play.variant.title, gpus, size, in_gigabytes(reached), share, *cells])
    return SummaryTable(
        title=f"Which limit of a node ({fabric.inside.name}) binds, GB/s",
        columns=["variant", "GPUs", "size", "here", "of the tightest", "tightest", "second", "third"],
        rows=rows,
        note="limits: closed forms, each alone, less headers; no measured cap is in the config",
    )


def use_table(fabric: Fabric, played: Sequence[VariantPhase], busy: Busy) -> SummaryTable | None:
    """Return a table of how busy each limit was in each phase; None if nothing was counted, as of points."""
    names = [name for name in LIMITS if any((play.phase, name) in busy for play in played)]
    if fabric.inside is None or not names:
        return None
    rows: list[Row] = []
    for play in played:
        cells = [quantity(busy[play.phase, name], ".0%") if (play.phase, name) in busy else "none" for name in names]
        rows.append(
            [play.variant.title, count_of(play.count * fabric.inside.gpus), quantity(play.size, "size"), *cells]
        )
    return SummaryTable(
        title="Where the time goes: how busy the limits of nodes were",
        columns=["variant", "GPUs", "size", *names],
        rows=rows,
        note="of the busiest node and GPU, over the steps; root port: both directions together; headers and "
        "acknowledgements count; where nothing is near 100 %, the allreduce waits for chunks under way",
    )
