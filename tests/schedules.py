"""What a schedule of failures comes to, link by link."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from fabric.failures.schedule import WHOLE, Failure, FailureSchedule, LinkState
from fabric.model.network import Link


def states_at(schedule: FailureSchedule, at_s: float) -> Mapping[Link, LinkState]:
    """Return the state of every link that is not whole at a time; an event at that time counts."""
    states = {event.link: event.state for event in schedule.link_events if event.at_s <= at_s}
    return {link: state for link, state in states.items() if state != WHOLE}


def down_at(schedule: FailureSchedule, at_s: float) -> frozenset[Link]:
    """Return the links without carrier at a time."""
    return frozenset(link for link, state in states_at(schedule, at_s).items() if not state.up)


def link_of(failure: Failure) -> Link:
    """Return the link that fails."""
    assert isinstance(failure.target, Link)
    return failure.target


def intervals_of(schedule: FailureSchedule) -> tuple[Failure, ...]:
    """Return the times in which a link is in one state other than whole, in order of their beginning."""
    found = [stretch for link in schedule.links for stretch in _stretches(schedule, link)]
    return tuple(sorted(found, key=lambda one: (one.began_s, link_of(one).a)))


def _stretches(schedule: FailureSchedule, link: Link) -> Iterator[Failure]:
    events = [event for event in schedule.link_events if event.link == link]
    ends = [event.at_s for event in events[1:]] + [math.inf]
    for event, ended_s in zip(events, ends, strict=True):
        if event.state != WHOLE:
            yield Failure(link, event.at_s, ended_s, event.state)
