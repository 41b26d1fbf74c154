"""Keys that all topologies have in common, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from fabric.config import LEAST_RATE_BPS, RateBps, Strict, TimeS
from fabric.model.identity import MAX_HOSTS_PER_GROUP
from fabric.model.inside import Inside
from fabric.units import format_apart, format_rate
from topologies.nodes import NodeKey, inside_of

MAX_NICS = 128
"""A NIC's number is the second byte of its address; storage nodes have the upper half of it."""
MAX_SWITCH_PORTS = 0xFF00
"""OpenFlow's highest number of a port."""
MAX_LINKS = 1_000_000
"""Thirty times those of 10,000 GPUs; to wire them takes half a minute."""

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Ports = Annotated[int, Field(ge=1, le=MAX_SWITCH_PORTS)]


def _enough(rate_bps: int) -> int:
    if rate_bps < LEAST_RATE_BPS:
        rate, least = format_apart(rate_bps, LEAST_RATE_BPS, format_rate)
        raise ValueError(f"{rate} is less than {least}, at which a frame takes a second; raise it")
    return rate_bps


Rate = Annotated[RateBps, AfterValidator(_enough), Field(ge=LEAST_RATE_BPS)]
"""Of a link."""
Delay = Annotated[TimeS, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
Price = Annotated[float, Field(gt=0)]


class Outline(NamedTuple):
    """How large a fabric is, known without building it: nodes, and the rate of the fastest NIC in bit/s."""

    hosts: int
    switches: int
    nic_rate_bps: int


class PriceSpec(Strict):
    """Relative prices, in the units of Table III of arXiv 2408.14158v2: of its own, or those of a topology of which
    this one is a part."""

    switch: Price | None = Field(default=None, description="Price of a switch with its cables.")
    node: Price | None = Field(default=None, description="Price of a node, without the network.")
    as_in: str | None = Field(
        default=None, description="Topology in which a node and its share of the network cost as much as here."
    )

    @model_validator(mode="after")
    def _verify_one_source(self) -> PriceSpec:
        if self.as_in is not None and (self.switch is not None or self.node is not None):
            raise ValueError(f"prices: as in {self.as_in!r}, and of its own; leave either out")
        return self


class TopologySpec(Strict):
    """What every topology file says: rates and delays of links, frames, and which system it stands for."""

    name: Name = Field(description="Name of the fabric, in tables and figures.")
    nic_rate: Rate = Field(
        description=(
            "Rate of the links of hosts. In real time, lower it if the machine cannot carry it (`fabric calibrate`)."
        )
    )
    uplink_rate: Rate = Field(description="Rate of links between switches.")
    link_delay: Delay = Field(
        default=0.0,
        description=(
            "Propagation delay of a link inside a zone. In real time the kernel must have netem, and for links "
            "of hosts IFB and Open vSwitch's datapath, too."
        ),
    )
    mtu: int = Field(
        description="Largest IP packet in bytes. InfiniBand's is 4,096; larger ones cost the emulator less per byte."
    )
    reference_nic_rate: Rate = Field(
        description=(
            "Rate of a NIC of the system that the fabric stands for. The ratio to `nic_rate` is the scale of all times."
        )
    )
    prices: PriceSpec | None = Field(default=None, description="Relative prices, for `fabric topo show`.")
    node: NodeKey = Field(
        default=None,
        description="What is inside a compute node: a builtin kind, a file or a mapping. `point`: nothing.",
    )

    @property
    def inside(self) -> Inside | None:
        """What compute nodes have inside, at the rates of this topology."""
        return inside_of(self.node, self.nic_rate, self.reference_nic_rate)

    @property
    def block(self) -> int:
        """How many addresses a compute node's NIC has."""
        return 1 if self.inside is None else self.inside.block


def size_faults(switches: Mapping[str, int], links: int) -> Iterator[str]:
    """Yield what is too large to be built: ``switches`` by what says how many there are, and all ``links``."""
    for what, count in switches.items():
        if count > MAX_HOSTS_PER_GROUP:
            yield f"{what}: {count:,} switches exceed {MAX_HOSTS_PER_GROUP:,}, the most that DPIDs number; use fewer"
    if links > MAX_LINKS:
        yield f"{links:,} links exceed {MAX_LINKS:,}, the most that are wired; use fewer nodes, or fewer links of each"


def nanoseconds(time_s: float) -> int:
    """Return a time in whole nanoseconds, as links have it."""
    return round(time_s * 1e9)
