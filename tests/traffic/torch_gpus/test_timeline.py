"""What streams of GPUs that are not there do when."""

from __future__ import annotations

import threading

import pytest

from traffic.torch_gpus.moments import End, Moment
from traffic.torch_gpus.timeline import Timeline


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_operators_follow_each_other_while_the_host_runs_ahead(clock: Clock) -> None:
    stream = Timeline(clock)
    stream.play(100)
    stream.play(50)
    assert stream.mark().at_ns() == 150


def test_an_operator_does_not_begin_before_the_host_gives_it(clock: Clock) -> None:
    stream = Timeline(clock)
    stream.play(100)
    clock.now_ns = 400
    stream.play(50)
    assert stream.mark().at_ns() == 450


def test_a_stream_waits_for_a_moment_of_another(clock: Clock) -> None:
    computing, copying = Timeline(clock), Timeline(clock)
    computing.play(100)
    copying.wait(computing.mark())
    copying.play(10)
    computing.play(5)
    assert copying.mark().at_ns() == 110
    assert computing.mark().at_ns() == 105


def test_what_is_behind_an_operation_under_way_is_known_once_that_has_ended(clock: Clock) -> None:
    stream, allreduce = Timeline(clock), End("allreduce")
    stream.play(100)
    stream.wait_end(allreduce)
    stream.play(30)
    stream.play(20)
    assert stream.mark().at_ns() is None
    allreduce.is_at(500)
    assert stream.mark().at_ns() == 550


def test_an_operation_that_ends_early_delays_nothing(clock: Clock) -> None:
    stream, allreduce = Timeline(clock), End("allreduce")
    stream.play(100)
    stream.wait_end(allreduce)
    stream.play(30)
    allreduce.is_at(40)
    assert stream.mark().at_ns() == 130


def test_what_the_host_gives_late_behind_an_operation_begins_late(clock: Clock) -> None:
    stream, allreduce = Timeline(clock), End("allreduce")
    stream.wait_end(allreduce)
    clock.now_ns = 700
    stream.play(30)
    allreduce.is_at(500)
    assert stream.mark().at_ns() == 730


def test_the_later_of_two_operations_counts_each_with_what_came_after_it(clock: Clock) -> None:
    stream, first, second = Timeline(clock), End("first"), End("second")
    stream.wait_end(first)
    stream.play(100)
    stream.wait_end(second)
    stream.play(10)
    second.is_at(300)
    assert stream.mark().at_ns() is None
    first.is_at(250)
    assert stream.mark().at_ns() == 360


def test_the_host_waits_for_an_end_and_hears_of_its_failure() -> None:
    good, bad = End("good"), End("bad")
    timer = threading.Timer(0.02, good.is_at, [70])
    timer.start()
    assert Moment(0, {good: 5}).await_known(30) == 75
    timer.join()
    bad.is_at(9, ValueError("peer is gone"))
    with pytest.raises(ValueError, match="peer is gone"):
        Moment(0, {bad: 0}).await_known(30)
    with pytest.raises(TimeoutError, match="never did not end within 0 s"):
        Moment(0, {End("never"): 0}).await_known(0)
