"""When which link of a fabric is down, slow or lossy: failures of links composed to a frozen schedule. Pure.

Times are seconds since the schedule began. Failures of one link may overlap: it is down during any cut, has the
lowest of their rates, and its losses multiply.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from fabric.model.network import Link


@dataclass(frozen=True)
class LinkState:
    """How a link is: whether it has carrier, what part of its rate it has, and what part of its frames it loses."""

    up: bool = True
    rate_fraction: float = 1.0
    loss_fraction: float = 0.0

    def __str__(self) -> str:
        if not self.up:
            return "down"
        parts = [f"rate {self.rate_fraction:g}"] if self.rate_fraction != 1 else []
        parts += [f"loss {self.loss_fraction:g}"] if self.loss_fraction else []
        return ", ".join(parts) or "whole"


WHOLE = LinkState()
DOWN = LinkState(up=False)


@dataclass(frozen=True)
class LinkFailure:
    """A link in a state from ``began_s`` until ``ended_s``, which is ``math.inf`` for a failure that stays.

    ``causes``: what it is part of, by the numbers that whoever makes the schedule gives it: a cut, a line of a config.
    """

    link: Link
    began_s: float
    ended_s: float
    state: LinkState = DOWN
    causes: tuple[int, ...] = ()


@dataclass(frozen=True)
class LinkEvent:
    """From ``at_s`` on, ``link`` is in ``state``.

    ``causes`` are those of the failures that begin or end with it. One that ends during another of the same kind
    changes nothing then: it ends with the link's next event.
    """

    at_s: float
    link: Link
    state: LinkState
    causes: tuple[int, ...] = ()


@dataclass(frozen=True)
class FailureSchedule:
    """What happens to links, in order of time and, at one time, of links. Every event changes its link's state."""

    events: tuple[LinkEvent, ...] = ()

    @classmethod
    def of(cls, failures: Iterable[LinkFailure]) -> FailureSchedule:
        """Return the schedule that some failures, which may overlap, come to."""
        by_link: dict[Link, list[LinkFailure]] = defaultdict(list)
        for failure in failures:
            if failure.ended_s > failure.began_s:
                by_link[failure.link].append(failure)
        events = [event for link, found in by_link.items() for event in _events(link, found)]
        return cls(tuple(sorted(events, key=lambda event: (event.at_s, event.link.a))))

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links that anything happens to."""
        return tuple(sorted({event.link for event in self.events}, key=lambda link: link.a))

    @property
    def ends_s(self) -> float:
        """When the last event is; 0 if there is none."""
        return self.events[-1].at_s if self.events else 0.0

    def until(self, end_s: float) -> FailureSchedule:
        """Return what of the schedule happens before ``end_s``."""
        return FailureSchedule(tuple(event for event in self.events if event.at_s < end_s))


def _events(link: Link, failures: list[LinkFailure]) -> Iterator[LinkEvent]:
    beginning: dict[float, list[int]] = defaultdict(list)
    ending: dict[float, list[int]] = defaultdict(list)
    for number, one in enumerate(failures):
        beginning[one.began_s].append(number)
        ending[one.ended_s].append(number)
    before, under_way, ended = WHOLE, set[int](), list[int]()
    for at_s in sorted((beginning.keys() | ending.keys()) - {math.inf}):
        begin, end = beginning.get(at_s, []), ending.get(at_s, [])
        ended += end
        under_way = under_way.difference(end).union(begin)
        state = composed([failures[number].state for number in sorted(under_way)])
        if state != before:  # By what begins now, or has ended since the last change.
            causes = {cause for number in (*begin, *ended) for cause in failures[number].causes}
            yield LinkEvent(at_s, link, state, tuple(sorted(causes)))
            before, ended = state, []


def composed(states: Iterable[LinkState]) -> LinkState:
    """Return the state of a link in which several failures are under way at once."""
    active = tuple(states)
    kept = math.prod(1 - state.loss_fraction for state in active)
    rate = min((state.rate_fraction for state in active), default=1.0)
    losses = [state.loss_fraction for state in active if state.loss_fraction]
    # One loss alone stays the very number that was asked for: 1 - (1 - 0.01) is not 0.01 in floating point.
    loss = losses[0] if len(losses) == 1 else 1 - kept
    return LinkState(all(state.up for state in active), rate, loss)
