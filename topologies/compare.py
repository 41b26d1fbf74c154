"""Two topologies side by side: switches, ports, and relative prices as in Table III of arXiv 2408.14158v2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from fabric.errors import ConfigError
from fabric.units import format_rate
from topologies.keys import PriceSpec
from topologies.load import fabric_of, read_topology, topology_path
from topologies.summary import TopologySummary, summarize

PAPER_PRICES = {"fire_flyer_2": (350, 11_250), "three_layer_1600": (600, 11_250), "dgx_a100_10000": (4000, 19_000)}
"""Table III: network and servers; what the former are made up of is not published."""


@dataclass(frozen=True)
class Priced:
    """A topology's counts, with what switches and nodes cost by its keys; None where it gives no price."""

    summary: TopologySummary
    network_price: float | None
    server_price: float | None

    @property
    def total_price(self) -> float | None:
        """Both together."""
        if self.network_price is None or self.server_price is None:
            return None
        return self.network_price + self.server_price

    @property
    def price_per_node(self) -> float | None:
        """What a compute node costs with its share of the network; None without prices, or without compute nodes."""
        if self.total_price is None or self.summary.compute == 0:
            return None
        return self.total_price / self.summary.compute

    @property
    def paper_prices(self) -> tuple[int, int] | None:
        """What Table III says of network and servers, if it has this topology."""
        return PAPER_PRICES.get(self.summary.name)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON holds it."""
        prices = {"network_price": self.network_price, "server_price": self.server_price}
        return self.summary.as_json() | prices | {"paper_prices": self.paper_prices}


def priced(name_or_path: str) -> Priced:
    """Return the counts and prices of a topology. Raises ConfigError with every fault."""
    return priced_of(read_topology(name_or_path), str(topology_path(name_or_path)))


def priced_of(data: Mapping[str, Any], source: str) -> Priced:
    """Return the counts and prices of the topology that a mapping describes. Raises ConfigError with every fault."""
    summary = summarize(fabric_of(data, source))
    prices = PriceSpec.model_validate(data.get("prices") or {})
    if prices.as_in is not None:
        return _as_in(summary, prices.as_in, source)
    return Priced(
        summary,
        None if prices.switch is None else prices.switch * summary.switches,
        None if prices.node is None else prices.node * summary.compute,
    )


def _as_in(summary: TopologySummary, whole: str, source: str) -> Priced:
    data = read_topology(whole)
    if (data.get("prices") or {}).get("as_in") is not None:
        raise ConfigError(source, [f"prices.as_in: {whole} has no prices of its own; name a topology that has"])
    of_whole = priced(whole)
    if of_whole.summary.compute == 0:
        why = f"{whole} has no compute nodes, which cost the same here"
        raise ConfigError(source, [f"prices.as_in: {why}; name a topology that has, or give prices.switch"])
    share = summary.compute / of_whole.summary.compute
    network, servers = of_whole.network_price, of_whole.server_price
    return Priced(summary, None if network is None else network * share, None if servers is None else servers * share)


_COUNTS: tuple[tuple[str, Callable[[TopologySummary], float]], ...] = (
    ("switches", lambda s: s.switches),
    ("  leaves", lambda s: s.leaves),
    ("  spines", lambda s: s.spines),
    ("  cores", lambda s: s.cores),
    ("  inter-zone", lambda s: s.inter_zone_switches),
    ("ports of a switch", lambda s: s.switch_ports),
    ("ports of all switches", lambda s: s.switches * s.switch_ports),
    ("access ports", lambda s: s.access_ports),
    ("switches per 1,000 of them", lambda s: 1000 * s.switches / s.access_ports),
    ("compute nodes", lambda s: s.compute),
    ("storage nodes", lambda s: s.storage),
    ("NICs", lambda s: s.nics),
    ("links", lambda s: s.links),
    ("networks (planes)", lambda s: s.networks),
    ("oversubscription", lambda s: s.oversubscription),
)


def render(a: Priced, b: Priced) -> Table:
    """Return a table of both for the terminal."""
    table = Table(
        title="topologies",
        title_justify="left",
        caption="prices are relative, by the topologies' own keys; paper: arXiv 2408.14158v2, Table III",
    )
    table.add_column("", no_wrap=True)
    for heading in (a.summary.name, b.summary.name, "second/first"):
        table.add_column(heading, justify="right")
    for name, count in _COUNTS:
        table.add_row(name, *_cells(count(a.summary), count(b.summary)))
    for name, rate in (("NIC rate", "nic_rate_bps"), ("bisection", "bisection_bps")):
        rates = [getattr(one.summary, rate) for one in (a, b)]
        table.add_row(name, *("-" if one is None else format_rate(one) for one in rates), _ratio(*rates))
    table.add_section()
    table.add_row("network price", *_cells(a.network_price, b.network_price))
    table.add_row("server price", *_cells(a.server_price, b.server_price))
    table.add_row("total price", *_cells(a.total_price, b.total_price))
    for place, name in enumerate(("network price in Table III", "server price in Table III")):
        table.add_row(name, *_cells(*(one.paper_prices and one.paper_prices[place] for one in (a, b))))
    return table


def _cells(first: float | None, second: float | None) -> tuple[str, str, str]:
    return _text(first), _text(second), _ratio(first, second)


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else f"{value:,.4g}"


def _ratio(first: float | None, second: float | None) -> str:
    return "-" if first is None or second is None or not first else f"{second / first:.3g}"
