"""Which limit of a node binds which variant, by closed forms."""

from __future__ import annotations

from experiments.hfreduce_vs_nccl.variants import Variant
from fabric.model.network import Fabric
from runs.placement import nics_of_gpus
from runs.true_scale import true_rate
from traffic import metrics
from traffic.collectives.hfreduce import TreeKind, trees_of
from traffic.collectives.nccl import Algorithm
from traffic.collectives.node_limits import NodeLimit, hfreduce_limits, ring_limits
from traffic.collectives.trees import sent_fractions


def limits_of(fabric: Fabric, variant: Variant, count: int) -> list[NodeLimit]:
    """Return the limits of a variant over so many nodes, the tightest first; none for points and for NCCL's tree."""
    inside = variant.inside(fabric)
    if inside is None:
        return []
    if isinstance(variant.algorithm, TreeKind):
        trees = trees_of(variant.algorithm, variant.zones(fabric, count))
        return hfreduce_limits(inside, fabric.nic_rate_bps, max(sent_fractions(trees)))
    if variant.algorithm is Algorithm.RING:
        return ring_limits(inside, fabric.nic_rate_bps, count * inside.gpus, nics_of_gpus(fabric))
    return []


def allowed_Bps(fabric: Fabric, limit: NodeLimit) -> float:  # noqa: N802 - bytes, not bits
    """Return the algbw that a limit allows, in bytes a second at full scale, less the headers of packets."""
    return true_rate(fabric, limit.algbw_Bps * metrics.payload_fraction(fabric.mtu_bytes))
