"""When what fails, and how: failures composed to a frozen schedule. Pure.

Times are seconds since the schedule began. Failures of one target may overlap; the class of their states says what that
comes to. A link is down during any cut, has the lowest of their rates, and its losses multiply.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TypeVar

from fabric.model.network import Link, Port

S = TypeVar("S", bound="State")


class State(ABC):
    """How a target is, as a frozen value. Made without arguments it is whole; ``str`` says it in words."""

    @classmethod
    @abstractmethod
    def composed(cls: type[S], states: Sequence[S]) -> S:
        """Return the state of a target in which several failures are under way at once; whole for none."""

    @property
    def only_one(self) -> tuple[float, str] | None:
        """What two failures of a target may not want differently at once, and what it is in words; None: nothing."""
        return None


@dataclass(frozen=True)
class LinkState(State):
    """How a link is: whether it has carrier, what part of its rate it has, what part of its frames it loses, and
    whether its NIC pauses all that the switch sends to it."""

    up: bool = True
    rate_fraction: float = 1.0
    loss_fraction: float = 0.0
    paused: bool = False

    @classmethod
    def composed(cls, states: Sequence[LinkState]) -> LinkState:
        """Return the state of a link in which several failures are under way at once."""
        kept = math.prod(1 - state.loss_fraction for state in states)
        rate = min((state.rate_fraction for state in states), default=1.0)
        losses = [state.loss_fraction for state in states if state.loss_fraction]
        # One loss alone stays the very number that was asked for: 1 - (1 - 0.01) is not 0.01 in floating point.
        loss = losses[0] if len(losses) == 1 else 1 - kept
        return LinkState(all(state.up for state in states), rate, loss, any(state.paused for state in states))

    @property
    def only_one(self) -> tuple[float, str] | None:
        """Its rate: two cannot both be."""
        return None if self.rate_fraction == 1 else (self.rate_fraction, "of its rate")

    def __str__(self) -> str:
        if not self.up:
            return "down"
        parts = [f"rate {self.rate_fraction:g}"] if self.rate_fraction != 1 else []
        parts += [f"loss {self.loss_fraction:g}"] if self.loss_fraction else []
        parts += ["paused"] if self.paused else []
        return ", ".join(parts) or "whole"


WHOLE = LinkState()
DOWN = LinkState(up=False)


@dataclass(frozen=True)
class Failure:
    """A target in a state from ``began_s`` until ``ended_s``, which is ``math.inf`` for a failure that stays.

    ``causes``: what it is part of, by the numbers that whoever makes the schedule gives it: a cut, a line of a config.
    """

    target: Hashable
    began_s: float
    ended_s: float
    state: State = DOWN
    causes: tuple[int, ...] = ()


@dataclass(frozen=True)
class FailureEvent:
    """From ``at_s`` on, ``target`` is in ``state``.

    ``causes`` are those of the failures that begin or end with it. One that ends during another of the same kind
    changes nothing then: it ends with the target's next event.
    """

    at_s: float
    target: Hashable
    state: State
    causes: tuple[int, ...] = ()


@dataclass(frozen=True)
class LinkEvent(FailureEvent):
    """From ``at_s`` on, a link is in ``state``."""

    target: Link
    state: LinkState

    @property
    def link(self) -> Link:
        """The link."""
        return self.target


@dataclass(frozen=True)
class FailureSchedule:
    """What happens to targets, in order of time and, at one time, of targets, links first. Every event changes its
    target's state. ``found_so``: failures that begin while their target is in that state already."""

    events: tuple[FailureEvent, ...] = ()
    found_so: tuple[FailureEvent, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, failures: Iterable[Failure]) -> FailureSchedule:
        """Return the schedule that some failures, which may overlap, come to."""
        by_target: dict[Hashable, list[Failure]] = defaultdict(list)
        for failure in failures:
            if failure.ended_s > failure.began_s:
                by_target[failure.target].append(failure)
        changing: list[FailureEvent] = []
        found_so: list[FailureEvent] = []
        for target, found in by_target.items():
            before = found[0].state.composed([])
            for event in _events(target, found):
                (found_so if event.state == before else changing).append(event)
                before = event.state
        in_order = sorted(changing, key=lambda event: (event.at_s, *_place(event.target)))
        return cls(tuple(in_order), tuple(found_so))

    @cached_property
    def targets(self) -> tuple[Hashable, ...]:
        """What anything happens to."""
        return tuple(sorted({event.target for event in self.events}, key=_place))

    @property
    def links(self) -> tuple[Link, ...]:
        """The links that anything happens to."""
        return tuple(target for target in self.targets if isinstance(target, Link))

    @cached_property
    def link_events(self) -> tuple[LinkEvent, ...]:
        """What happens to links."""
        return tuple(event for event in self.events if isinstance(event, LinkEvent))

    @property
    def ends_s(self) -> float:
        """When the last event is; 0 if there is none."""
        return self.events[-1].at_s if self.events else 0.0

    def until(self, end_s: float) -> FailureSchedule:
        """Return what of the schedule happens before ``end_s``."""
        return FailureSchedule(tuple(event for event in self.events if event.at_s < end_s))

    def of_kind(self, kind: type) -> FailureSchedule:
        """Return what happens to targets of a class."""
        return FailureSchedule(tuple(event for event in self.events if isinstance(event.target, kind)))

    @cached_property
    def changes_s(self) -> Mapping[tuple[Hashable, float], float]:
        """When each target, after its event at each time, comes into another state; ``math.inf`` if it does not."""
        found: dict[tuple[Hashable, float], float] = {}
        following: dict[Hashable, FailureEvent] = {}
        for event in reversed(self.events):
            later = following.get(event.target)
            is_same = later is not None and later.state == event.state
            at_s = math.inf if later is None else found[event.target, later.at_s] if is_same else later.at_s
            found[event.target, event.at_s] = at_s
            following[event.target] = event
        return found

    def of_parts(self, parts_of: Callable[[Hashable], Iterable[Hashable]]) -> FailureSchedule:
        """Return what happens to parts of targets, each of which several targets may have: a job's programs on a host
        are among all programs there. A part is in the state that those of all its targets come to. An event that
        changes nothing is kept, for its causes."""
        wanted: dict[Hashable, dict[Hashable, State]] = defaultdict(dict)
        found: list[FailureEvent] = []
        for at_s, together in groupby(self.events, lambda event: event.at_s):
            causes: dict[Hashable, set[int]] = defaultdict(set)
            for event in together:
                for part in parts_of(event.target):
                    wanted[part][event.target] = event.state
                    causes[part].update(event.causes)
            for part, of_part in causes.items():
                states = list(wanted[part].values())
                found.append(FailureEvent(at_s, part, states[0].composed(states), tuple(sorted(of_part))))
        return FailureSchedule(tuple(found))


def _place(target: Hashable) -> tuple[int, Port | str]:
    """Return where a target stands among those of one time: links first, by their first ends, then others by name."""
    return (0, target.a) if isinstance(target, Link) else (1, str(target))


def _events(target: Hashable, failures: list[Failure]) -> Iterator[FailureEvent]:
    """Yield how a target's state changes, and which failures begin without changing it."""
    beginning: dict[float, list[int]] = defaultdict(list)
    ending: dict[float, list[int]] = defaultdict(list)
    for number, one in enumerate(failures):
        beginning[one.began_s].append(number)
        ending[one.ended_s].append(number)
    kind = type(failures[0].state)
    before, under_way, ended = kind.composed([]), set[int](), list[int]()
    for at_s in sorted((beginning.keys() | ending.keys()) - {math.inf}):
        begin, end = beginning.get(at_s, []), ending.get(at_s, [])
        ended += end
        under_way = under_way.difference(end).union(begin)
        in_order = sorted(under_way, key=lambda number: (failures[number].began_s, number))
        state = kind.composed([failures[number].state for number in in_order])
        if state != before:  # By what begins now, or has ended since the last change.
            causes = {cause for number in (*begin, *ended) for cause in failures[number].causes}
            yield _event(at_s, target, state, tuple(sorted(causes)))
            before, ended = state, []
        elif begin:
            causes = {cause for number in begin for cause in failures[number].causes}
            yield _event(at_s, target, state, tuple(sorted(causes)))


def _event(at_s: float, target: Hashable, state: State, causes: tuple[int, ...]) -> FailureEvent:
    if isinstance(target, Link):
        assert isinstance(state, LinkState), "failures of links have states of links"
        return LinkEvent(at_s, target, state, causes)
    return FailureEvent(at_s, target, state, causes)
