"""The variants of an allreduce by HFReduce and NCCL, their nodes, and what is played of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from fabric.model.identity import NodeId, Role
from fabric.model.inside import Inside
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.records.cells import Quantity, quantity
from fabric.units import format_size
from runs.cases import Case, axis
from runs.jobs import collective_job
from runs.placement import BOTH_ZONES_FROM, Flow, nics_of_gpus, nodes_over_zones, ranks_of, zones_of_nodes
from runs.session import Session
from runs.true_scale import true_rate
from traffic import metrics
from traffic.collectives.hfreduce import HFReduceConfig, TreeKind, trees_of
from traffic.collectives.job import CollectiveJob
from traffic.collectives.nccl import Algorithm, NcclConfig, nccl_flows, sent_fraction
from traffic.collectives.node_limits import NodeLimit, hfreduce_limits, ring_limits
from traffic.collectives.trees import sent_fractions, tree_flows

if TYPE_CHECKING:  # Which looks at the variants.
    from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig

PAPER_SIZE_BYTES = 186 * 2**20
PAPER_BPS = {ServiceLevel.HFREDUCE: (6.3e9, 8.1e9), ServiceLevel.NCCL: (1.6e9, 4.8e9)}
"""The least and the most algbw of the paper's Figure 7a, over all its numbers of nodes, in bytes a second."""
PAPER_NVLINK_BPS = 10e9
"""The paper's Figure 7b: HFReduce with NVLink is above this."""
KINDS = {ServiceLevel.HFREDUCE: "HFReduce", ServiceLevel.NCCL: "NCCL"}
_PAIRS_OF_ZONES_FROM = 2


def nodes_in_zones(fabric: Fabric) -> list[int]:
    """Return how many compute nodes each zone has."""
    return [len(fabric.with_role(Role.COMPUTE, zone=zone)) for zone in range(fabric.zones)]


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
        if self.nvlink:
            return f"> {gigabytes(PAPER_NVLINK_BPS)}"
        return "-".join(map(gigabytes, PAPER_BPS[self.level]))

    def nodes(self, fabric: Fabric, count: int) -> tuple[NodeId, ...]:
        """Return the nodes of an allreduce over ``count``, zone by zone, the first of each."""
        return nodes_over_zones(fabric, count, self.zones_from)

    def zones(self, fabric: Fabric, count: int) -> list[int]:
        """Return the zone of each of its nodes."""
        return zones_of_nodes(fabric, self.nodes(fabric, count))

    def fits(self, fabric: Fabric, count: int) -> bool:
        """Return whether the zones have so many nodes."""
        return len(self.nodes(fabric, count)) == count

    def inside(self, fabric: Fabric) -> Inside | None:
        """Return what it uses of the inside of a node."""
        if fabric.inside is None or self.nvlink or fabric.inside.has_nvswitch:
            return fabric.inside
        return replace(fabric.inside, nvlink=None)

    def flows(self, zones: Sequence[int]) -> list[Flow]:
        """Return what a step sends between ranks of these zones."""
        if isinstance(self.algorithm, TreeKind):
            return tree_flows(trees_of(self.algorithm, zones))
        return nccl_flows(self.algorithm.value, len(zones))

    def network_ideal_Bps(self, fabric: Fabric, count: int) -> float:  # noqa: N802 - bytes, not bits
        """Return the algbw in bytes a second at which the busiest node's NIC is full."""
        if isinstance(self.algorithm, TreeKind):
            sent = max(sent_fractions(trees_of(self.algorithm, self.zones(fabric, count))))
        else:
            sent = sent_fraction(self.algorithm.value, count * (1 if fabric.inside is None else fabric.inside.gpus))
            sent /= nics_of_gpus(fabric)
        return metrics.ideal_algbw(fabric.nic_rate_bps, sent)

    def limits(self, fabric: Fabric, count: int) -> list[NodeLimit]:
        """Return the limits of a node over so many, by closed forms, the tightest first; none for points and for NCCL's
        tree."""
        inside = self.inside(fabric)
        if inside is None:
            return []
        if isinstance(self.algorithm, TreeKind):
            trees = trees_of(self.algorithm, self.zones(fabric, count))
            return hfreduce_limits(inside, fabric.nic_rate_bps, max(sent_fractions(trees)))
        if self.algorithm is Algorithm.RING:
            return ring_limits(inside, fabric.nic_rate_bps, count * inside.gpus, nics_of_gpus(fabric))
        return []

    def job(self, session: Session, config: HFReduceVsNcclConfig, ranks: Sequence[NodeId], size: int) -> CollectiveJob:
        """Return the job that plays it over ``ranks``."""
        common = {"dtype": config.dtype, "size": size, **config.of_ranks}
        if isinstance(self.algorithm, Algorithm):
            fabric = session.live.fabric
            rings = nics_of_gpus(fabric)  # Each has its part of NCCL's data, where a switch joins a node's GPUs.
            made = NcclConfig(**common, algorithm=self.algorithm.value, slice=config.slice, channels=rings)
            return collective_job(session, made, ranks_of(fabric, ranks))
        hfreduce = HFReduceConfig(
            **common,
            chunk=config.chunk,
            copies_ahead=config.copies_ahead,
            gpus_per_node=config.gpus_per_node,
            tree=self.algorithm,
            nvlink=self.nvlink,
        )
        return collective_job(session, hfreduce, ranks)


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
        zones_from = _PAIRS_OF_ZONES_FROM
        found.append(Variant("hfreduce_nvlink_zone", f"{title}, within a zone", hfreduce, tree, True, None))
        if fabric.zones > 1:
            found.append(Variant("hfreduce_nvlink", f"{title}, across zones", hfreduce, tree, True, zones_from))
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

    @property
    def settings(self) -> dict[str, str]:
        """The words for its values, and for what of them figures show."""
        variant = self.variant
        more = {"kind": KINDS[variant.level], "paper": variant.paper, "gpus": str(self.count * variant.gpus)}
        return super().settings | more | {"mebibytes": f"{self.size / 2**20:g}"}


@dataclass(frozen=True)
class SizePhase(VariantPhase, name="{variant}_n{count}_{size}", title="{variant}, {count} nodes, {size}"):
    """A phase that is there to show what the size does."""


def plays(config: HFReduceVsNcclConfig, fabric: Fabric) -> list[VariantPhase]:
    """Return all that is played, in order: over each number of nodes that a variant's zones have, then each size."""
    found = chosen_variants(config, fabric)
    whole = [VariantPhase(variant, count, config.size) for count in config.nodes for variant in found]
    sized = [SizePhase(variant, config.sizes_nodes, size) for size in config.sizes for variant in found]
    return [play for play in (*whole, *sized) if play.variant.fits(fabric, play.count)]


def allowed_Bps(fabric: Fabric, limit: NodeLimit) -> float:  # noqa: N802 - bytes, not bits
    """Return the algbw that a limit allows, in bytes a second at full scale, less the headers of packets."""
    return true_rate(fabric, limit.algbw_Bps * metrics.payload_fraction(fabric.mtu_bytes))


def in_gigabytes(rate_Bps: float) -> Quantity:  # noqa: N803 - bytes, not bits
    """Return bytes per second as a cell in GB/s, to three digits."""
    return quantity(rate_Bps, ".3g in GB/s")


def gigabytes(rate_Bps: float) -> str:  # noqa: N803 - bytes, not bits
    """Return the same in words."""
    return in_gigabytes(rate_Bps).words
