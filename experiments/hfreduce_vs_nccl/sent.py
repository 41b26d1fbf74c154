"""What a variant sends over its nodes, by which job, and what the limits of a node allow it in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.variants import VariantPhase
from fabric.model.identity import NodeId
from fabric.model.inside import Inside
from fabric.model.network import Fabric
from runs.placement import nics_of_gpus, nodes_over_zones
from traffic.collectives.hfreduce import HFReduceConfig, TreeKind, trees_of
from traffic.collectives.job import zones_of
from traffic.collectives.nccl import Algorithm, NcclConfig, sent_fraction
from traffic.collectives.node_limits import NodeLimit, hfreduce_limits, ring_limits
from traffic.collectives.trees import sent_fractions


def nodes_of(play: VariantPhase, fabric: Fabric) -> tuple[NodeId, ...]:
    """Return its nodes, zone by zone, the first of each."""
    return nodes_over_zones(fabric, play.count, play.variant.zones_from)


def made_of(play: VariantPhase, config: HFReduceVsNcclConfig, fabric: Fabric) -> HFReduceConfig | NcclConfig:
    """Return the config of its job. Each NIC has its part of NCCL's data, where a switch joins a node's GPUs."""
    variant = play.variant
    common: dict[str, Any] = {"dtype": config.dtype, "size": play.size, **config.of_ranks}
    if isinstance(variant.algorithm, Algorithm):
        rings = nics_of_gpus(fabric)
        return NcclConfig(**common, algorithm=variant.algorithm.value, slice=config.slice, channels=rings)
    piped: dict[str, Any] = {
        "chunk": config.chunk,
        "copies_ahead": config.copies_ahead,
        "gpus_per_node": config.gpus_per_node,
    }
    return HFReduceConfig(**common, **piped, tree=variant.algorithm, nvlink=variant.nvlink)


def busiest_sends(play: VariantPhase, fabric: Fabric) -> float:
    """Return what the busiest node's NIC sends, as a multiple of the size."""
    algorithm = play.variant.algorithm
    if isinstance(algorithm, TreeKind):
        return max(sent_fractions(trees_of(algorithm, zones_of(fabric, nodes_of(play, fabric)))))
    return sent_fraction(algorithm.value, play.gpus) / nics_of_gpus(fabric)


def limits_of(play: VariantPhase, fabric: Fabric) -> list[NodeLimit]:
    """Return the limits of a node, by closed forms, the tightest first; none for points and for NCCL's tree."""
    inside, algorithm = _used(play, fabric.inside), play.variant.algorithm
    if inside is None:
        return []
    if isinstance(algorithm, TreeKind):
        return hfreduce_limits(inside, fabric.nic_rate_bps, busiest_sends(play, fabric))
    rings = nics_of_gpus(fabric)
    return ring_limits(inside, fabric.nic_rate_bps, play.gpus, rings) if algorithm is Algorithm.RING else []


def _used(play: VariantPhase, inside: Inside | None) -> Inside | None:
    """Return what it uses of the inside of a node."""
    if inside is None or play.variant.nvlink or inside.has_nvswitch:
        return inside
    return replace(inside, nvlink=None)
