"""Schedules of failures against the plainest definition: at any time, what all failures then under way come to."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.failures.schedule import DOWN, WHOLE, Failure, FailureSchedule, LinkState
from tests.schedules import down_at, intervals_of, states_at
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_small")
LINKS = FABRIC.links[:4]
TIMES = st.integers(0, 20).map(float)
STATES = st.one_of(
    st.just(DOWN),
    st.sampled_from([0.25, 0.5]).map(lambda rate: LinkState(rate_fraction=rate)),
    st.sampled_from([0.01, 0.5, 1.0]).map(lambda loss: LinkState(loss_fraction=loss)),
)
FAILURES = st.lists(
    st.builds(Failure, st.sampled_from(LINKS), TIMES, st.one_of(TIMES, st.just(math.inf)), STATES), max_size=12
)


def state_of(failure: Failure) -> LinkState:
    assert isinstance(failure.state, LinkState)
    return failure.state


def under_way(failures: list[Failure], at_s: float) -> dict[object, LinkState]:
    states = {
        link: LinkState.composed(
            [state_of(one) for one in failures if one.target == link and one.began_s <= at_s < one.ended_s]
        )
        for link in LINKS
    }
    return {link: state for link, state in states.items() if state != WHOLE}


@given(FAILURES, st.integers(0, 42).map(lambda half: half / 2))
def test_at_any_time_the_state_is_that_of_all_failures_under_way(failures: list[Failure], at_s: float) -> None:
    schedule = FailureSchedule.of(failures)
    assert states_at(schedule, at_s) == under_way(failures, at_s)
    cut = {one.target for one in failures if not state_of(one).up and one.began_s <= at_s < one.ended_s}
    assert down_at(schedule, at_s) == cut


@given(FAILURES)
def test_events_are_in_order_and_each_changes_its_link(failures: list[Failure]) -> None:
    events = FailureSchedule.of(failures).link_events
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    for link in LINKS:
        states = [WHOLE, *(event.state for event in events if event.link == link)]
        assert all(before != after for before, after in itertools.pairwise(states))


@given(FAILURES)
def test_intervals_say_the_same_as_events(failures: list[Failure]) -> None:
    schedule = FailureSchedule.of(failures)
    assert FailureSchedule.of(intervals_of(schedule)) == schedule
    assert schedule.ends_s == max((event.at_s for event in schedule.events), default=0.0)


@given(FAILURES, st.randoms())
def test_the_order_of_failures_does_not_matter(failures: list[Failure], random: object) -> None:
    mixed = list(failures)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert FailureSchedule.of(mixed) == FailureSchedule.of(failures)


def test_overlapping_cuts_are_one_and_losses_multiply() -> None:
    link = LINKS[0]
    two = FailureSchedule.of([Failure(link, 1, 3), Failure(link, 2, 5)])
    assert [(event.at_s, event.state) for event in two.events] == [(1, DOWN), (5, WHOLE)]
    lossy = LinkState.composed(
        [LinkState(loss_fraction=0.5), LinkState(loss_fraction=0.5), LinkState(rate_fraction=0.5)]
    )
    assert (lossy.up, lossy.rate_fraction) == (True, 0.5)
    assert lossy.loss_fraction == pytest.approx(0.75)


def test_events_know_the_causes_of_the_failures_that_they_begin_or_end() -> None:
    first, second = LINKS[:2]
    lossy = LinkState(loss_fraction=0.5)
    schedule = FailureSchedule.of(
        [
            Failure(first, 1, 3, causes=(7,)),
            Failure(first, 2, 5, causes=(8,)),  # It begins and the one before ends while the link is down.
            Failure(first, 4, 9, lossy, causes=(9,)),
            Failure(second, 1, 2, causes=(7,)),
        ]
    )
    found = [(event.at_s, event.link, event.causes) for event in schedule.link_events]
    assert found == [
        (1, first, (7,)), (1, second, (7,)), (2, second, (7,)), (4, first, (7, 9)), (5, first, (8,)), (9, first, (9,))
    ]  # fmt: skip
    assert FailureSchedule.of([Failure(first, 1, 2)]).events[0].causes == ()


def test_until_keeps_what_happens_before() -> None:
    schedule = FailureSchedule.of([Failure(LINKS[0], 1, 3), Failure(LINKS[1], 2, 5)])
    assert [event.at_s for event in schedule.until(3).events] == [1, 2]
