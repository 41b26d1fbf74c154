"""Summary of a fabric: counts, port budget, oversubscription, bisection and cost. Totals are over all zones.

- oversubscription: the rate that comes from below over the rate that goes up, at the worst switch of each kind; of all
  kinds the worst is the fabric's.
- bisection: the least rate across a cut of a zone's leaves into halves, summed over zones; :mod:`topologies.bisection`
  has more. Between zones: the inter-zone links' rate of the zone that has least of it; it is listed separately because
  it limits a job across zones.
- cost: switches against a three-layer fat-tree of the same k-port switches with the same N access ports, which needs
  5 N / k (2 N / k leaves, 2 N / k spines, N / k cores). For N = 1600, k = 40 that is 200, and Fire-Flyer 2 has 122.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from fabric.model.identity import Role
from fabric.model.network import Fabric, Tier
from fabric.model.oversubscription import leaf_rates, oversubscription_by_tier, oversubscription_words
from fabric.units import format_rate
from topologies.bisection import bisection_bps

# Table III of arXiv 2408.14158v2. Prices are relative; the paper does not say of what they are made up.
PAPER_SWITCH_PORTS = 40
PAPER_ALTERNATIVES = (
    ("paper: Fire-Flyer 2", 1600, 122, 350),
    ("paper: three layers", 1600, 200, 600),
    ("paper: DGX-A100 cluster", 10_000, 1320, 4000),
)


@dataclass(frozen=True)
class PortBudget:
    """Switch ports of one role over all its switches."""

    switches: int
    ports: int
    used: int
    free: int


@dataclass(frozen=True)
class TopologySummary:
    """The figures of a fabric; rates are in bit/s, per direction. ``bisection_bps`` is None where it is not known."""

    name: str
    zones: int
    leaves: int
    spines: int
    cores: int
    inter_zone_switches: int
    switches: int
    compute: int
    storage: int
    hosts: int
    nics: int
    networks: int
    links: int
    inter_zone_links: int
    access_ports: int
    access_ports_used: int
    switch_ports: int
    nic_rate_bps: int
    reference_nic_rate_bps: int
    scale: float
    oversubscription: float
    oversubscription_by_tier: Mapping[str, float]
    bisection_bps: float | None
    inter_zone_bps: int
    port_budget: Mapping[str, PortBudget]
    three_layer_switches: int
    relative_cost: float

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON holds it."""
        return asdict(self)


def summarize(fabric: Fabric) -> TopologySummary:
    """Return the summary of ``fabric``."""
    counted = {role: len(fabric.with_role(role)) for role in Role}
    leaves, spines, inter_zone = (counted[role] for role in (Role.LEAF, Role.SPINE, Role.INTER_ZONE))
    compute, storage = counted[Role.COMPUTE], counted[Role.STORAGE]
    tiers = oversubscription_by_tier(fabric)
    three_layer = three_layer_switches(fabric.access_ports, fabric.switch_ports)
    return TopologySummary(
        name=fabric.name,
        zones=fabric.zones,
        leaves=leaves,
        spines=spines,
        cores=len(fabric.switches) - leaves - spines - inter_zone,
        inter_zone_switches=inter_zone,
        switches=len(fabric.switches),
        compute=compute,
        storage=storage,
        hosts=compute + storage,
        nics=len(fabric.nics),
        networks=len(fabric.networks),
        links=len(fabric.links),
        inter_zone_links=len(fabric.links_of_tier(Tier.INTER_ZONE)),
        access_ports=fabric.access_ports,
        access_ports_used=_access_ports_used(fabric),
        switch_ports=fabric.switch_ports,
        nic_rate_bps=fabric.nic_rate_bps,
        reference_nic_rate_bps=fabric.reference_nic_rate_bps,
        scale=fabric.scale,
        oversubscription=max(tiers.values(), default=0.0),
        oversubscription_by_tier=tiers,
        bisection_bps=bisection_bps(fabric),
        inter_zone_bps=inter_zone_bps(fabric),
        port_budget=port_budget(fabric),
        three_layer_switches=three_layer,
        relative_cost=len(fabric.switches) / three_layer,
    )


def inter_zone_bps(fabric: Fabric) -> int:
    """Return the rate of the inter-zone links of the zone that has least; 0 if there are none."""
    by_zone = dict.fromkeys(range(fabric.zones), 0)
    for leaf, rate_bps in leaf_rates(fabric, Tier.INTER_ZONE).items():
        if leaf.zone is not None:
            by_zone[leaf.zone] += rate_bps
    return min(by_zone.values())


def _access_ports_used(fabric: Fabric) -> int:
    links = [*fabric.links_of_tier(Tier.ACCESS), *fabric.links_of_tier(Tier.INTER_ZONE)]
    return sum(port.node.role is Role.LEAF for link in links for port in link.ports)


def port_budget(fabric: Fabric) -> dict[str, PortBudget]:
    """Return used and free ports of each switch role, by the role's name in lower case."""
    budget = {}
    for role in dict.fromkeys(node.role for node in fabric.switches):
        switches = fabric.with_role(role)
        ports = len(switches) * fabric.switch_ports
        used = sum(len(fabric.ports_of[switch]) for switch in switches)
        budget[role.name.lower()] = PortBudget(len(switches), ports, used, ports - used)
    return budget


def three_layer_switches(access_ports: int, switch_ports: int) -> int:
    """Return the switches of a three-layer fat-tree: 5 x access ports / switch ports, rounded up."""
    return math.ceil(5 * access_ports / switch_ports)


def render(summary: TopologySummary) -> RenderableType:
    """Return tables of a summary for the terminal."""
    return Group(_counts(summary), _budget(summary), _cost(summary))


def _counts(summary: TopologySummary) -> Table:
    table = Table(title=summary.name, title_justify="left", show_header=False)
    rows = {
        "zones": f"{summary.zones}",
        "switches": f"{summary.switches:,} of {summary.switch_ports} ports: {_switch_kinds(summary)}",
        "hosts": f"{summary.hosts:,}: {summary.compute:,} compute, {summary.storage:,} storage",
        "NICs": f"{summary.nics:,} of {_scaled_rate(summary)}",
        "networks": f"{summary.networks}" + (", which no link joins (planes)" if summary.networks > 1 else ""),
        "links": f"{summary.links:,}, of them {summary.inter_zone_links:,} inter-zone",
        "access ports": f"{summary.access_ports:,}, of them {summary.access_ports_used:,} used",
        "oversubscription": oversubscription_words(summary.oversubscription_by_tier),
        "bisection in zones": _bisection(summary.bisection_bps),
        "between zones": format_rate(summary.inter_zone_bps) if summary.inter_zone_bps else "no links",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _bisection(rate_bps: float | None) -> str:
    if rate_bps is None:
        return "- (not known: many switches, and no even layers)"
    return f"{format_rate(rate_bps)} over all zones"


def _switch_kinds(summary: TopologySummary) -> str:
    kinds = {
        "leaves": summary.leaves,
        "spines": summary.spines,
        "cores": summary.cores,
        "inter-zone": summary.inter_zone_switches,
    }
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)


def _scaled_rate(summary: TopologySummary) -> str:
    rate = format_rate(summary.nic_rate_bps)
    if summary.scale == 1:
        return rate
    return f"{rate} (1 : {summary.scale:,.10g} of {format_rate(summary.reference_nic_rate_bps)})"


def _budget(summary: TopologySummary) -> Table:
    table = Table(title="Port budget", title_justify="left")
    table.add_column("switch")
    for column in ("switches", "ports", "used", "free"):
        table.add_column(column, justify="right")
    for role, budget in summary.port_budget.items():
        counts = (budget.switches, budget.ports, budget.used, budget.free)
        table.add_row(role.replace("_", "-"), *(f"{count:,}" for count in counts))
    return table


def _cost(summary: TopologySummary) -> Table:
    table = Table(
        title=f"Cost in switches of {summary.switch_ports} ports",
        title_justify="left",
        caption="paper: arXiv 2408.14158v2, Table III; prices are relative",
    )
    table.add_column("network", no_wrap=True)
    for column in ("ports", "switches", "of 3 layers", "a 1,000 ports", "price"):
        table.add_column(column, justify="right")
    ports = summary.access_ports
    table.add_row("this", *_cost_cells(ports, summary.switches, summary.three_layer_switches), "")
    table.add_row("three layers", *_cost_cells(ports, *[summary.three_layer_switches] * 2), "", end_section=True)
    for name, ports, switches, price in PAPER_ALTERNATIVES:
        three_layer = three_layer_switches(ports, PAPER_SWITCH_PORTS)
        table.add_row(name, *_cost_cells(ports, switches, three_layer), f"{price:,}")
    return table


def _cost_cells(ports: int, switches: int, three_layer: int) -> tuple[str, str, str, str]:
    return f"{ports:,}", f"{switches:,}", f"{switches / three_layer:.0%}", f"{1000 * switches / ports:.1f}"
