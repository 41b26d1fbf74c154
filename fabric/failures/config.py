"""Failures as config: which link, port, switch or host fails, when, for how long, how often and how badly.

::

    failures:
      - {link: z0l00-z0s01, at: 2 s, for: 200 ms}                       a cut; without "for" until the end
      - {switch: z0s00, at: 5 s, for: 1 s, repeat: {every: 3 s, times: 4}, jitter: 100 ms}
      - {host: z0h003, at: 1 s, rate: 0.5}                              all its NICs at half their rate
      - {link: "z0l00:3", at: 1 s, loss: 0.01}                          one frame in a hundred lost, each direction

A link is named by one of its ends (``z0l00:3``) or by its nodes, with the number of the one meant if several join them
(``z0l00-z0s01#2``). A switch or host that fails keeps its memory: only its links are cut.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import Strict, TimeS
from fabric.errors import ConfigError
from fabric.failures.schedule import FailureSchedule, LinkFailure, LinkState
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Link, Port, Tier, names_like
from fabric.units import format_time

_TARGETS = ("link", "port", "switch", "host", "storage")
_WORDS = {"switch": "switch", "host": "host", "storage": "storage node"}


class RepeatConfig(Strict):
    """A failure that happens again and again."""

    every: Annotated[TimeS, Field(gt=0)] = Field(description="Time from one begin to the next.")
    times: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="How often it happens in all, the first time included."
    )


class FailureConfig(Strict):
    """One line of ``failures``: exactly one target, when, and what: a cut unless ``rate`` or ``loss`` is given."""

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
    at: Annotated[TimeS, Field(ge=0)] = Field(
        description="When the failure begins, counted from when all jobs of the phase play."
    )
    duration: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, alias="for", description="How long the failure lasts. Without it, until the phase ends."
    )
    repeat: RepeatConfig | None = Field(default=None, description="How often it happens again. Without it, once.")
    jitter: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Each begin is later by a random time up to this, drawn evenly by the seed."
    )
    rate: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="Fraction of its rate that the link keeps, for a degraded link in place of a cut."
    )
    loss: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="Fraction of frames that the link loses in each direction, in place of a cut."
    )

    @model_validator(mode="after")
    def _verify(self) -> FailureConfig:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        given = [name for name in _TARGETS if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"names {' and '.join(given) or 'no target'}; give exactly one of {', '.join(_TARGETS)}"
        if self.repeat is None or self.repeat.times == 1:
            return
        if self.duration is None:
            yield "repeats a failure that never ends; give 'for'"
        elif self.duration + self.jitter > self.repeat.every:
            yield (
                f"lasts {format_time(self.duration)} and may begin {format_time(self.jitter)} late, yet repeats every "
                f"{format_time(self.repeat.every)}, so that it overlaps itself; raise repeat.every"
            )

    @property
    def target(self) -> tuple[str, str]:
        """What kind of target it has, and its name."""
        return next((name, value) for name in _TARGETS if (value := getattr(self, name)) is not None)

    @property
    def state(self) -> LinkState:
        """What it does to a link."""
        if self.rate is None and self.loss is None:
            return LinkState(up=False)
        return LinkState(rate_fraction=self.rate or 1.0, loss_fraction=self.loss or 0.0)

    def times_s(self, rng: random.Random) -> list[tuple[float, float]]:
        """Return when it begins and ends, each time; the last never does without ``for``."""
        every, times = (self.repeat.every, self.repeat.times) if self.repeat else (0.0, 1)
        begins = [self.at + number * every + rng.uniform(0, self.jitter) for number in range(times)]
        duration = math.inf if self.duration is None else self.duration
        # To the nanosecond, or what ends at 0.1 s + 0.2 s would miss what begins at 0.3 s.
        return [(round(begin, 9), round(begin + duration, 9)) for begin in begins]


def links_of(failure: FailureConfig, fabric: Fabric) -> tuple[Link, ...]:
    """Return the links that a failure hits. Raises ValueError naming what the fabric does not have."""
    kind, name = failure.target
    if kind in ("link", "port"):
        return (_link_named(name, fabric, by_port_only=kind == "port"),)
    node = _node_named(name, kind, fabric)
    return tuple(fabric.link_at[port] for port in fabric.ports_of[node])


def _node_named(name: str, kind: str, fabric: Fabric) -> NodeId:
    fitting = {"switch": fabric.switches, "host": fabric.hosts, "storage": fabric.storages}[kind]
    found = fabric.node_named(name)
    if found not in fitting:
        known = f"they run from {fitting[0]} to {fitting[-1]}" if fitting else f"{fabric.name} has none"
        raise ValueError(f"{kind}: no {_WORDS[kind]} {name!r}; {known}")
    assert found is not None
    return found


def _link_named(name: str, fabric: Fabric, by_port_only: bool) -> Link:
    node, colon, _ = name.partition(":")
    if colon:
        port = fabric.port_named(name)
        if port is None:
            raise ValueError(f"link: nothing is plugged into {name!r}; {_ports_of(node, fabric)}")
        return fabric.link_at[port]
    if by_port_only:
        raise ValueError(f"port: {name!r} is no port; write it like {fabric.links[0].a}")
    ends, _, number = name.partition("#")
    a, dash, b = _parted(ends, fabric)
    if not dash or (number and not number.isdigit()):
        raise ValueError(f"link: {name!r} names no link; write it like {fabric.links[0].a} or z0l00-z0s01#2")
    return _between(a, b, int(number) if number else None, fabric)


def _parted(ends: str, fabric: Fabric) -> tuple[str, str, str]:
    """Return the two nodes of ``a-b``, and the dash between them; names of a user's own may have dashes, too."""
    places = [place for place, letter in enumerate(ends) if letter == "-"]
    known = [place for place in places if fabric.node_named(ends[:place]) and fabric.node_named(ends[place + 1 :])]
    if len(known) == 1:
        return ends[: known[0]], "-", ends[known[0] + 1 :]
    return ends.partition("-")


def _ports_of(node: str, fabric: Fabric) -> str:
    known = fabric.node_named(node)
    ports: Sequence[Port] = fabric.ports_of[known] if known is not None else ()
    return f"{node} has ports {ports[0].number} to {ports[-1].number}" if ports else f"{fabric.name} has no {node!r}"


def _between(a: str, b: str, number: int | None, fabric: Fabric) -> Link:
    ends = [fabric.node_named(name) for name in (a, b)]
    for name, node in zip((a, b), ends, strict=True):
        if node is None:
            raise ValueError(f"link: {fabric.name} has no {name!r}; {names_like(name, fabric)}")
    found = [link for link in fabric.links if {link.a.node, link.b.node} == set(ends)]
    if not found:
        raise ValueError(f"link: no link joins {a} and {b}; {a} is joined to {_neighbours(a, fabric)}")
    if number is None and len(found) > 1:
        raise ValueError(
            f"link: {len(found)} links join {a} and {b}; choose one, from {a}-{b}#1 to {a}-{b}#{len(found)}"
        )
    if number is not None and not 1 <= number <= len(found):
        raise ValueError(f"link: {a} and {b} are joined by {len(found)} links, so there is no #{number}")
    return found[(number or 1) - 1]


def _neighbours(name: str, fabric: Fabric) -> str:
    node = fabric.node_named(name)
    assert node is not None, "_between() has looked for it"
    peers = dict.fromkeys(fabric.shown(fabric.peer(port).node) for port in fabric.ports_of[node])
    return ", ".join(peers)


@dataclass(frozen=True)
class _Placed:
    """A failure of a link, and the place in the config that it comes from."""

    key: str
    failure: LinkFailure


def schedule_failures(configs: Sequence[FailureConfig], fabric: Fabric, seed: int) -> FailureSchedule:
    """Return what a ``failures`` list comes to on a fabric. Raises ConfigError with every fault at once.

    The same arguments give the same schedule; each line draws its jitter by itself. Its number is its failures' cause.
    """
    faults: list[str] = []
    placed: list[_Placed] = []
    for number, config in enumerate(configs):
        try:
            placed += _placed(number, config, fabric, random.Random(f"{seed}/failures/{number}"))
        except ValueError as error:
            faults.append(f"failures.{number}.{error}")
    faults += _contradictions(placed)
    if faults:
        raise ConfigError("failures", faults)
    return FailureSchedule.of(one.failure for one in placed)


def failure_faults(configs: Sequence[FailureConfig], fabric: Fabric, seed: int) -> Iterator[str]:
    """Yield every fault of a ``failures`` list, for configs that report theirs together with others."""
    try:
        schedule_failures(configs, fabric, seed)
    except ConfigError as error:
        yield from error.faults


def _placed(number: int, config: FailureConfig, fabric: Fabric, rng: random.Random) -> list[_Placed]:
    links = links_of(config, fabric)
    return [
        _Placed(f"failures.{number}", LinkFailure(link, began_s, ended_s, config.state, (number,)))
        for began_s, ended_s in config.times_s(rng)
        for link in links
    ]


def _contradictions(placed: Sequence[_Placed]) -> Iterator[str]:
    """Yield the pairs of lines that want one link at different rates, or cut, at the same time.

    Cuts of different targets may overlap (a switch and one of its links), and so may losses; two rates cannot both be.
    """
    by_link: dict[Link, list[tuple[float, int, _Placed]]] = defaultdict(list)
    for number, placed_one in enumerate(placed):
        if placed_one.failure.state.rate_fraction != 1:
            by_link[placed_one.failure.link].append((placed_one.failure.began_s, number, placed_one))
    told: set[tuple[str, str]] = set()
    for link, found in by_link.items():
        under_way: list[tuple[int, _Placed]] = []
        for began_s, number, now in sorted(found, key=lambda one: one[:2]):
            under_way = [one for one in under_way if one[1].failure.ended_s > began_s]
            for before in under_way:
                (_, one), (_, other) = sorted([before, (number, now)], key=lambda pair: pair[0])
                fractions = [of.failure.state.rate_fraction for of in (one, other)]
                if fractions[0] != fractions[1] and (one.key, other.key) not in told:
                    told.add((one.key, other.key))
                    rates = f"{fractions[0]:g} and {fractions[1]:g}"
                    at = format_time(began_s)
                    yield f"{one.key} and {other.key}: {link} would have {rates} of its rate at once, from {at} on"
            under_way.append((number, now))


def miswire(fabric: Fabric, one: Link, other: Link) -> Fabric:
    """Return the fabric that is really wired once somebody has exchanged the far ends of two links.

    Plans made for ``fabric`` no longer fit: port ``one.a`` leads to where ``other.a`` should. Rates and tiers stay with
    the near ends. Raises ValueError if what came of it would be no fabric.
    """
    if one == other or one.tier is not other.tier:
        raise ValueError(f"{one} and {other}: choose two links of one tier")
    if one.a.node == other.b.node or other.a.node == one.b.node:
        raise ValueError(f"{one} and {other}: exchanging their far ends would join a node to itself; choose others")
    if one.tier is Tier.ACCESS and one.b.node.zone != other.b.node.zone:
        raise ValueError(f"{one} and {other}: hosts have addresses of their zone; choose links of one zone")
    crossed = {
        one: Link(one.a, other.b, one.rate_bps, one.tier, one.delay_ns),
        other: Link(other.a, one.b, other.rate_bps, other.tier, other.delay_ns),
    }
    return replace(fabric, links=tuple(crossed.get(link, link) for link in fabric.links))
