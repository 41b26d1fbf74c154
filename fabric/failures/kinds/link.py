"""Links that fail: cut, slow or lossy; by one of their ends, by what they join, or all those of a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from fabric.config import LEAST_RATE_BPS
from fabric.failures.injector import LinkInjector
from fabric.failures.kind import FailureKind
from fabric.failures.line import FailureConfig, Stretch
from fabric.failures.names import link_named, links_of_node, nic_named
from fabric.failures.schedule import LinkState
from fabric.model.network import Fabric, Link, Tier
from fabric.units import format_apart, format_rate


class LinkFailureConfig(FailureConfig):
    """A failure of links, which are cut unless ``rate``, ``loss`` or ``pause`` is given. It names one target."""

    targets: ClassVar[tuple[str, ...]] = ("link", "port", "switch", "host", "storage", "nic")
    hits_programs_or_disks: ClassVar[bool] = False

    link: str | None = Field(
        default=None,
        description=(
            "The link that fails, by one of its ends (`z0l00:3`) or by its nodes (`z0l00-z0s01`, with `#2` for "
            "the second of several)."
        ),
    )
    port: str | None = Field(default=None, description="The port whose link fails, such as `z0l00:3`.")
    switch: str | None = Field(default=None, description="The switch that fails: all its links at once.")
    host: str | None = Field(default=None, description="The compute node that fails: the links of all its NICs.")
    storage: str | None = Field(default=None, description="The storage node that fails: the links of all its NICs.")
    nic: str | None = Field(
        default=None, description="The NIC that fails, by its host and its number, such as `st001:1`."
    )
    rate: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="Fraction of its rate that the link keeps, for a degraded link in place of a cut."
    )
    loss: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Fraction of frames that the link loses in each direction, in place of a cut."
    )
    pause: bool = Field(
        default=False,
        description="The NIC pauses all that the switch sends to it, in place of a cut; where queueing is lossless.",
    )

    @property
    def state(self) -> LinkState:
        """What it does to a link."""
        if self.rate is None and self.loss is None and not self.pause:
            return LinkState(up=False)
        return LinkState(rate_fraction=self.rate or 1.0, loss_fraction=self.loss or 0.0, paused=self.pause)

    def links(self, fabric: Fabric) -> tuple[Link, ...]:
        """Return the links that it hits. Raises ValueError naming what the fabric does not have."""
        key, name = self.target
        if key in ("link", "port"):
            link = link_named(name, fabric, by_port_only=key == "port")
            if link.tier is Tier.INSIDE and (self.rate is None or self.loss is not None):
                raise ValueError(f"{key}: {name} is inside a node: it can be slow, not cut or lossy; give rate")
            return (link,)
        if key == "nic":
            return (fabric.link_at[nic_named(name, fabric).port],)
        return links_of_node(name, key, fabric)

    def stretches(self, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
        """Yield its links, each in the same state. Raises ValueError, also for a rate too low for a link."""
        for link in self.links(fabric):
            if self.pause and (link.tier is Tier.INSIDE or all(port.node.is_switch for port in link.ports)):
                raise ValueError(
                    f"pause: {link} is between switches or inside a node, and only a NIC pauses; name a nic"
                )
            if self.rate is not None and self.rate * link.rate_bps < LEAST_RATE_BPS:
                left, least = format_apart(self.rate * link.rate_bps, LEAST_RATE_BPS, format_rate)
                raise ValueError(
                    f"rate: {self.rate:g} of {link} ({format_rate(link.rate_bps)}) leaves {left}; a link keeps {least} "
                    f"or more, rate {LEAST_RATE_BPS / link.rate_bps:.3g}: raise it, or cut the link"
                )
            yield link, began_s, ended_s, self.state


KIND = FailureKind("link", Link, lambda scene: LinkInjector(scene.pool, scene.emulation, scene.link_hit))
