"""What ``--fault`` asks for, to try the validator: links that are slow, lossy or down, and pairs that are exchanged.

::

    link z0l00-z0s01 rate 0.5         link z0l00:6 loss 0.01         link z0l00:6 down
    miswired z0l00:5 z0l01:5          the far ends of two links of one tier are exchanged
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from fabric.errors import ConfigError
from fabric.failures.config import miswire
from fabric.failures.kinds.link import LinkFailureConfig
from fabric.failures.schedule import Failure, FailureSchedule, LinkState
from fabric.model.network import Fabric, Link, Port

OPTION = "--fault"
_FORMS = '"link NAME rate FRACTION", "link NAME loss FRACTION", "link NAME down" or "miswired NAME NAME"'


@dataclass(frozen=True)
class Injection:
    """The fabric as it is really wired, and what its links are like from the start."""

    wired: Fabric
    states: tuple[tuple[Link, LinkState], ...]

    @property
    def schedule(self) -> FailureSchedule:
        """The states as a schedule of failures that never end."""
        return FailureSchedule.of(Failure(link, 0.0, math.inf, state) for link, state in self.states)


def read_faults(texts: Sequence[str], fabric: Fabric) -> Injection:
    """Return what some ``--fault`` options come to on a fabric. Raises ConfigError with every fault of theirs at once.

    Links are named as in the topology, also where one is exchanged: it is then the link plugged into its first end.
    """
    wrong: list[str] = []
    exchanged: list[tuple[Link, Link]] = []
    states: list[tuple[Port, LinkState]] = []
    for text in texts:
        try:
            for found in _read(text, fabric):
                if isinstance(found[1], Link):
                    exchanged.append((found[0], found[1]))
                else:
                    states.append((found[0].a, found[1]))
        except ValueError as error:
            wrong.append(f"{text!r}: {error}")
    wired = _exchanged(fabric, exchanged, wrong)
    if wrong:
        raise ConfigError(OPTION, wrong)
    return Injection(wired, tuple((wired.link_at[port], state) for port, state in states))


def _read(text: str, fabric: Fabric) -> Iterator[tuple[Link, Link | LinkState]]:
    match text.split():
        case ["miswired", one, other]:
            yield _link(one, fabric), _link(other, fabric)
        case ["link", name, "down"]:
            yield _link(name, fabric), LinkState(up=False)
        case ["link", name, "rate" | "loss" as what, fraction]:
            yield _link(name, fabric), _state(what, fraction)
        case _:
            raise ValueError(f"names no fault; write {_FORMS}")


def _link(name: str, fabric: Fabric) -> Link:
    return LinkFailureConfig(link=name, at=0.0).links(fabric)[0]


def _state(what: str, fraction: str) -> LinkState:
    try:
        value = float(fraction)
    except ValueError:
        raise ValueError(f"{what} {fraction!r} is not a number; write e.g. {what} 0.5") from None
    try:
        return LinkFailureConfig.model_validate({"link": "", "at": 0.0, what: value}).state
    except ValidationError as error:
        raise ValueError(f"{what} {value:g}: {error.errors()[0]['msg'].lower()}") from None


def _exchanged(fabric: Fabric, pairs: Sequence[tuple[Link, Link]], wrong: list[str]) -> Fabric:
    """Return the fabric with the far ends of each pair of links exchanged, and add to ``wrong`` what cannot be."""
    named = [link for pair in pairs for link in pair]
    if len(set(named)) < len(named) and all(one != other for one, other in pairs):
        wrong.append("miswired: a link is exchanged twice; name each at most once")
        return fabric
    for one, other in pairs:
        try:
            fabric = miswire(fabric, one, other)
        except ValueError as error:
            wrong.append(f"miswired: {error}")
    return fabric
