"""The variants of an allreduce by HFReduce and NCCL, their nodes, and what is played of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from fabric.model.inside import Inside
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.records.cells import quantity
from fabric.units import format_size
from runs.cases import Case, axis
from runs.placement import BOTH_ZONES_FROM, nodes_over_zones
from traffic.collectives.hfreduce import TreeKind
from traffic.collectives.nccl import Algorithm

if TYPE_CHECKING:  # Which looks at the variants.
    from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig

PAPER_BPS = {ServiceLevel.HFREDUCE: (6.3e9, 8.1e9), ServiceLevel.NCCL: (1.6e9, 4.8e9)}
"""The least and the most algbw of the paper's Figure 7a, over all its numbers of nodes, in bytes a second."""
PAPER_NVLINK_BPS = 10e9
"""The paper's Figure 7b: HFReduce with NVLink is above this."""
KINDS = {ServiceLevel.HFREDUCE: "HFReduce", ServiceLevel.NCCL: "NCCL"}
_PAIRS_OF_ZONES_FROM = 2


@dataclass(frozen=True)
class Variant:
    """An algorithm, with or without NVLink, and where its nodes are: in all zones from ``zones_from`` nodes on, or if
    that is None, in one. ``is_published``: whether the paper's Figure 7 is of such nodes; ``gpus``: of a node, 1 of
    nodes that are points."""

    name: str
    title: str
    level: ServiceLevel
    algorithm: TreeKind | Algorithm
    nvlink: bool = False
    zones_from: int | None = BOTH_ZONES_FROM
    is_published: bool = True
    gpus: int = 1

    @property
    def paper(self) -> str:
        """The paper's range, in GB/s."""
        if not self.is_published:
            return "-"
        rates = [quantity(rate, ".3g in GB/s").words for rate in (*PAPER_BPS[self.level], PAPER_NVLINK_BPS)]
        return f"> {rates[-1]}" if self.nvlink else "-".join(rates[:-1])


def variants(fabric: Fabric) -> tuple[Variant, ...]:
    """Return what is played on a fabric, in order: of points, each algorithm; of nodes with an inside, the series of
    the paper's Figure 7."""
    hfreduce, nccl = ServiceLevel.HFREDUCE, ServiceLevel.NCCL
    if fabric.inside is None:
        kinds = ((TreeKind.PLAIN, "plain tree"), (TreeKind.ZONE_AWARE, "zone-aware tree"))
        trees = [Variant(f"hfreduce_{kind.value}", f"HFReduce, {words}", hfreduce, kind) for kind, words in kinds]
        return (*trees, *(Variant(f"nccl_{one.value}", f"NCCL, {one.value}", nccl, one) for one in Algorithm))
    tree, switched = TreeKind.ZONE_AWARE, fabric.inside.has_nvswitch
    found = [Variant("hfreduce", "HFReduce", hfreduce, tree, is_published=not switched)]
    if has_pairs(fabric.inside):
        title = "HFReduce with NVLink"
        found.append(Variant("hfreduce_nvlink_zone", f"{title}, within a zone", hfreduce, tree, True, None))
        if fabric.zones > 1:
            across = Variant("hfreduce_nvlink", f"{title}, across zones", hfreduce, tree, True, _PAIRS_OF_ZONES_FROM)
            found.append(across)
    ring = "NCCL, rings over NVSwitch" if switched else "NCCL, ring"
    found.append(Variant("nccl_ring", ring, nccl, Algorithm.RING, is_published=not switched))
    return tuple(replace(one, gpus=fabric.inside.gpus) for one in found)


def chosen_variants(config: HFReduceVsNcclConfig, fabric: Fabric) -> list[Variant]:
    """Return what a config plays on a fabric, in order."""
    return [one for one in variants(fabric) if config.variants is None or one.name in config.variants]


def has_pairs(inside: Inside) -> bool:
    """Return whether NVLink joins all GPUs of a node in pairs, which HFReduce then uses."""
    return inside.nvlink is not None and all(len(inside.nvlink.peers(gpu)) == 1 for gpu in range(inside.gpus))


@dataclass(frozen=True)
class VariantPhase(Case, name="{variant}_n{count}", title="{variant}, {count} nodes"):
    """A variant over so many nodes, of so many bytes."""

    variant: Variant = axis(name=attrgetter("name"), words=attrgetter("title"))
    count: int = axis("nodes")
    size: int = axis("sizes", name=lambda size: format_size(size).replace(" ", ""), words=format_size)
    kind = property(lambda self: KINDS[self.variant.level])
    paper = property(attrgetter("variant.paper"))
    gpus = property(lambda self: self.count * self.variant.gpus)
    mebibytes = property(lambda self: self.size / 2**20)

    @property
    def settings(self) -> dict[str, str]:
        """The words for its values, and for what of them figures show."""
        return super().settings | {name: self.format(f"{{{name}}}") for name in ("kind", "paper", "gpus", "mebibytes")}


class NodesPhase(VariantPhase):
    """A phase that is there to show what the number of nodes does."""


class SizePhase(VariantPhase, name="{variant}_n{count}_{size}", title="{variant}, {count} nodes, {size}"):
    """A phase that is there to show what the size does."""


def plays(config: HFReduceVsNcclConfig, fabric: Fabric) -> list[VariantPhase]:
    """Return all that is played, in order: over each number of nodes that a variant's zones have, then each size."""
    chosen = chosen_variants(config, fabric)
    phases: list[VariantPhase] = [
        NodesPhase(variant, count, config.size) for count in config.nodes for variant in chosen
    ]
    phases += [SizePhase(variant, config.sizes_nodes, size) for size in config.sizes for variant in chosen]
    fits = [len(nodes_over_zones(fabric, one.count, one.variant.zones_from)) == one.count for one in phases]
    return [one for one, fit in zip(phases, fits, strict=True) if fit]
