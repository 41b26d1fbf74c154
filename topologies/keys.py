"""Keys that all topologies have in common, and what they mean."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import Field, model_validator

from fabric.config import RateBps, Strict, TimeS
from fabric.model.inside import Inside
from topologies.nodes import NodeKey, inside_of

MAX_NICS = 128
"""A NIC's number is the second byte of its address; storage nodes have the upper half of it."""

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[RateBps, Field(ge=1)]
Delay = Annotated[TimeS, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
Price = Annotated[float, Field(gt=0)]


class Outline(NamedTuple):
    """How large a fabric is, known without building it: nodes, and the rate of the fastest NIC in bit/s."""

    hosts: int
    switches: int
    nic_rate_bps: int


class PriceSpec(Strict):
    """Relative prices, in the units of Table III of arXiv 2408.14158v2: of a switch with its cables, and of a node; or
    ``as_in``, a topology in which a node and its share of the network cost as much as in this one, which is a part."""

    switch: Price | None = None
    node: Price | None = None
    as_in: str | None = None

    @model_validator(mode="after")
    def _verify_one_source(self) -> PriceSpec:
        if self.as_in is not None and (self.switch is not None or self.node is not None):
            raise ValueError(f"prices: as in {self.as_in!r}, and of its own; leave either out")
        return self


class TopologySpec(Strict):
    """What every topology file says: rates and delays of links, frames, and which system it stands for."""

    name: Name
    nic_rate: Rate
    uplink_rate: Rate
    """Of links between switches."""
    link_delay: Delay = 0.0
    """Propagation delay of a link inside a zone. In real time the kernel must have netem, and for links of hosts IFB
    and Open vSwitch's datapath, too."""
    mtu: int
    reference_nic_rate: Rate
    prices: PriceSpec | None = None
    node: NodeKey = None
    """What is inside a compute node: a builtin kind, a file or a mapping; ``point`` is nothing."""

    @property
    def inside(self) -> Inside | None:
        """What compute nodes have inside, at the rates of this topology."""
        return inside_of(self.node, self.nic_rate, self.reference_nic_rate)

    @property
    def block(self) -> int:
        """How many addresses a compute node's NIC has."""
        return 1 if self.inside is None else self.inside.block


def nanoseconds(time_s: float) -> int:
    """Return a time in whole nanoseconds, as links have it."""
    return round(time_s * 1e9)
