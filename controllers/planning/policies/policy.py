"""What a routing policy is: a value that says which port a switch sends a destination by, how it hashes flows, how its
routes move while a run plays, and on which fabrics it does not work.

The line is drawn at one switch: a policy chooses among ports that all lead nearer, and the planner makes the rules. So
no policy can make a loop or a black hole, each works with every repair that its choices allow, and none knows OpenFlow.

Example: destinations in turn, more to faster ports::

    def in_turn(at: AtSwitch) -> list[Chosen]:
        given = Counter[int]()
        chosen: list[Chosen] = []
        for ports in at.nearer:
            port = min(ports, key=lambda port: ((given[port] + 1) / at.rate_bps(port), port), default=None)
            chosen.append(port)
            given[port] += port is not None
        return chosen

    BY_RATE = Policy("by_rate", "by the rates of links", assign=in_turn)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Protocol

from pydantic import Field

from controllers.planning.plan import Hashing
from fabric.config import SizeBytes, Strict, TimeS
from fabric.model.drawing import Draw
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Port
from fabric.suggestions import one_of


class AdaptiveConfig(Strict):
    """When and how much the adaptive policy moves: the busiest destinations of a leaf's deepest uplink go to others."""

    period: Annotated[TimeS, Field(ge=0.005, le=10)] = Field(
        default=0.1,
        description="Time between two readings of the queues of all uplinks. Shorter reacts sooner, and may oscillate.",
    )
    threshold: Annotated[SizeBytes, Field(ge=1, lt=2**31)] = Field(
        default=16 * 1024,
        description="Difference between a leaf's deepest and shallowest uplink queue from which destinations move.",
    )
    moves: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="Most destinations that move per leaf and period."
    )
    hold: Annotated[TimeS, Field(ge=0, le=3600)] = Field(
        default=0.5, description="Least time that a destination stays where it was moved to. Longer damps oscillation."
    )


@dataclass(frozen=True)
class AtSwitch:
    """What a policy chooses by at one switch. ``destinations``, ``preferred`` and ``nearer`` have an entry per
    destination, in order of address.

    ``destinations``: its address. ``preferred``: the port that it was moved to, else that of its static route; a
    failure may have taken it. ``nearer``: the live ports by which it comes nearer, in order; none if it cannot be
    reached. ``seed``: the config's ``hash_seed``, for what is drawn at random.
    """

    fabric: Fabric
    switch: NodeId
    destinations: Sequence[str]
    preferred: Sequence[int]
    nearer: Sequence[tuple[int, ...]]
    seed: int

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The addresses of the NICs at this switch, which a choice may tell apart; none where there are no NICs."""
        return tuple(ip for ip, leaf in self.fabric.leaf_at_ip.items() if leaf == self.switch)

    def rate_bps(self, port: int) -> int:
        """Return the rate of a port's link."""
        return self.fabric.link_at[Port(self.switch, port)].rate_bps

    @cached_property
    def load(self) -> Mapping[int, float]:
        """The load of each port by static routes: destinations per bit/s of its link."""
        return {port: count / self.rate_bps(port) for port, count in Counter(self.preferred).items()}


@dataclass(frozen=True)
class BySource:
    """A choice for one destination by who sends: ``port`` for all but those of ``ports``, by their addresses. Not with
    ``repair: fast_failover``, whose groups are per destination."""

    port: int
    ports: Mapping[str, int]


Chosen = int | BySource | None


class Assign(Protocol):
    """Chooses the port of each destination at one switch."""

    def __call__(self, at: AtSwitch) -> Sequence[Chosen]:
        """Return a port for each destination, one of its ``nearer``, or several by source; None drops what is for
        it."""


class Spread(Protocol):
    """Says how much of the flows each of several ports gets."""

    def __call__(self, at: AtSwitch, ports: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ports that a hash chooses among, one of which gets a share for each time that it is there; all
        of them are of ``ports``."""


class MakeHashing(Protocol):
    """Makes the action by which a switch chooses among ports for each flow, or for each packet."""

    def __call__(self, dpid: int, ports: tuple[int, ...], seed: int, leaves_zone: bool = False) -> Hashing:
        """Return the action; ``seed`` is the config's ``hash_seed``. What ``leaves_zone`` is a choice of its own."""


class Decide(Protocol):
    """Moves destinations of one leaf from uplink to uplink while a run plays."""

    def __call__(
        self,
        depths: Mapping[int, int],
        ports: Mapping[str, int],
        carried: Mapping[str, int],
        held: Collection[str],
        config: AdaptiveConfig,
    ) -> dict[str, int]:
        """Return the uplink that each destination to be moved shall take.

        ``depths`` are the bytes waiting at each uplink of a leaf, ``ports`` the uplink of each destination and
        ``carried`` the bytes it was sent since last asked; ``held`` moved less than ``config.hold`` ago.
        """


def equally(at: AtSwitch, ports: tuple[int, ...]) -> tuple[int, ...]:
    """Spread flows evenly."""
    return ports


def keep_planned(at: AtSwitch) -> list[Chosen]:
    """Assign the preferred port where it is live, else the least loaded one."""
    both = zip(at.preferred, at.nearer, strict=True)
    chosen: list[Chosen] = [port if port in ports else None for port, ports in both]
    load = Counter(chosen)
    for number, ports in enumerate(at.nearer):
        if chosen[number] is None and ports:
            port = min(ports, key=lambda port: (load[port], port))
            chosen[number] = port
            load[port] += 1
    return chosen


def _on_every_fabric(fabric: Fabric) -> Iterator[str]:
    """Yield no fault."""
    return iter(())


@dataclass(frozen=True)
class Policy:
    """Which of several equally good ways a packet takes. Configs and tables call it by its ``name``; ``words`` say what
    the path of a packet goes by.

    ``assign`` chooses each destination's port at a switch. With ``hashing``, flows to a destination spread over all
    ports by which it comes nearer, in the shares of ``spread``; its packets, if ports ``draw`` a number for each. With
    ``decide``, the controller moves destinations
    between the uplinks of leaves while a run plays. ``faults`` yields why the policy does not work on a fabric; the
    planner adds which do.
    """

    name: str
    words: str
    assign: Assign = keep_planned
    hashing: MakeHashing | None = None
    spread: Spread = equally
    decide: Decide | None = None
    draw: Draw | None = None
    faults: Callable[[Fabric], Iterator[str]] = _on_every_fabric

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Policy({self.name!r})"  # Not with its functions, whose addresses differ from process to process.

    @property
    def moves(self) -> bool:
        """Whether its routes move while a run plays: a plan then shows only where they begin."""
        return self.decide is not None

    @property
    def sprays(self) -> bool:
        """Whether each packet of a flow is sent by itself, so that a flow has many paths at once."""
        return self.draw is not None

    @property
    def has_one_path(self) -> bool:
        """Whether each flow stays on a path that is known beforehand."""
        return not self.moves and not self.sprays

    @property
    def is_by_destination(self) -> bool:
        """Whether the destination alone decides, so that a plan shows each flow's path for the whole run."""
        return self.hashing is None and not self.moves

    @property
    def keeps_static_routes(self) -> bool:
        """Whether all routes are the static ones as long as no link fails."""
        return self.is_by_destination and self.assign is keep_planned


def or_list(policies: Iterable[Policy]) -> str:
    """Return policies as an error offers them: ``static or ecmp``."""
    return one_of(policy.name for policy in policies)
