"""Graphs on paper: the contract of operations, moment by moment."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from traffic.work.checks import require_playable
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.list_schedule import ScheduleError, list_schedule
from traffic.work.operations import ANY, CollectiveCall, Compute, FileWrite, Operation, Receive, Send
from traffic.work.progress import RankOrder, RankProgress


def seconds(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
    """A message of n bytes takes n seconds, a collective too."""
    return float(getattr(operations[0], "size_bytes", 0))


def graph(*ranks: Sequence[Operation], **groups: tuple[int, ...]) -> WorkGraph:
    works = [RankWork() for _ in ranks]
    for work, operations in zip(works, ranks, strict=True):
        work.operations += operations
    return graph_of("test", works, groups)


def compute(duration: float, **keys: object) -> Compute:
    return Compute(duration_s=duration, **{"stream": "compute", **keys})  # type: ignore[arg-type]


def call(size: int, group: str = "all", **keys: object) -> CollectiveCall:
    return CollectiveCall(collective="allreduce", size_bytes=size, group=group, **keys)  # type: ignore[arg-type]


def test_a_stream_is_serial_and_others_go_on_beside_it() -> None:
    timeline = list_schedule(graph([compute(1), compute(2), compute(5, stream="side"), compute(3, stream="")]), seconds)
    assert timeline.starts == ((0.0, 1.0, 0.0, 0.0),)
    assert timeline.end_s == 5


def test_of_several_that_could_start_the_first_in_the_list_does() -> None:
    late = compute(1, after=(3,))
    timeline = list_schedule(graph([compute(2), late, compute(4), compute(1, stream="other")]), seconds)
    assert timeline.starts[0] == (0.0, 2.0, 3.0, 0.0)


def test_a_later_one_goes_first_if_the_earlier_one_must_wait() -> None:
    timeline = list_schedule(graph([compute(1, after=(2,)), compute(2), compute(3, stream="other")]), seconds)
    assert timeline.starts[0] == (3.0, 0.0, 0.0)


def test_after_start_waits_for_the_start_only() -> None:
    timeline = list_schedule(graph([compute(5), compute(1, stream="other", after_start=(0,))]), seconds)
    assert timeline.ends[0] == (5.0, 1.0)


def test_messages_meet_in_order_of_issue() -> None:
    sends = [Send(peer=1, size_bytes=4), Send(peer=1, size_bytes=1, tag=7), Send(peer=1, size_bytes=2)]
    receives = [
        Receive(peer=0, size_bytes=1, tag=7),
        Receive(peer=0, size_bytes=4),
        Receive(peer=0, size_bytes=2, after=(0,)),
    ]
    timeline = list_schedule(graph(sends, receives), seconds)
    assert timeline.ends == ((4.0, 1.0, 2.0), (1.0, 4.0, 4.0)), "the second of tag 0 is not there before the first"


def test_whichever_comes_first() -> None:
    ranks: list[list[Operation]] = [
        [Receive(peer=ANY, size_bytes=3, tag=ANY), Receive(peer=ANY, size_bytes=5, tag=2, after=(0,))],
        [Send(peer=0, size_bytes=5, tag=2)],
        [Send(peer=0, size_bytes=3, tag=1)],
    ]
    assert list_schedule(graph(*ranks), seconds).ends[0] == (3.0, 5.0)


def test_a_collective_begins_when_the_last_has_come() -> None:
    timeline = list_schedule(graph([compute(1), call(2, after=(0,))], [compute(4), call(2, after=(0,))]), seconds)
    assert timeline.ends == ((1.0, 6.0), (4.0, 6.0))
    assert timeline.starts[0][1] == 1.0


def test_collectives_of_a_group_are_serial_and_in_order() -> None:
    first = [compute(3), call(1, "g", after=(0,)), call(2, "g"), call(4, "h")]
    second = [call(1, "g"), call(2, "g"), call(4, "h")]
    timeline = list_schedule(graph(first, second, g=(0, 1), h=(0, 1)), seconds)
    assert timeline.ends[0] == (3.0, 4.0, 6.0, 4.0)
    assert timeline.ends[1] == (4.0, 6.0, 4.0)


def test_files_take_as_long_as_said() -> None:
    write = FileWrite(path="a", offset_bytes=0, size_bytes=7)
    assert list_schedule(graph([write]), seconds).end_s == 7


def test_what_never_ends_is_told_by_rank_and_operation() -> None:
    ranks: list[list[Operation]] = [
        [Receive(peer=1, size_bytes=1, name="wanted"), compute(1, after=(0,), name="behind")],
        [compute(1)],
    ]
    with pytest.raises(
        ScheduleError, match=r"rank 0: operation 0 \(wanted\) never ends; rank 0: operation 1 \(behind\)"
    ):
        list_schedule(graph(*ranks), seconds)


def test_computing_without_a_duration_is_told() -> None:
    flops = graph([Compute(flops=6e9, name="forward")])
    with pytest.raises(ScheduleError, match=r"rank 0: operation 0 .forward. has 6,000,000,000 FLOPs"):
        list_schedule(flops, seconds)
    assert list_schedule(flops.timed(2e9), seconds).end_s == 3


def test_steps_in_a_row_begin_on_each_rank_when_its_own_part_has_ended() -> None:
    """Rank 1 computes longer in one step than rank 0, which goes on, and waits for nobody but by its receives."""
    slow = (Compute(duration_s=3.0, stream="compute"), Receive(peer=0, size_bytes=1))
    fast = (Compute(duration_s=1.0, stream="compute"), Send(peer=1, size_bytes=1, after=(0,)))
    graph = WorkGraph("two", (fast, slow))
    timeline = list_schedule(graph.repeated(3), lambda operations, ranks: 0.5)
    assert timeline.ends[0] == (1.0, 1.5, 2.5, 3.0, 4.0, 4.5)
    assert timeline.ends[1] == (3.0, 1.5, 6.0, 3.0, 9.0, 6.0)
    assert graph.repeated(1) == graph
    require_playable(graph.repeated(3))


def test_steps_in_a_row_wait_for_what_others_wait_for_by_its_start_alone() -> None:
    """GOAL's ``irequires``: who waits for a start may end long before."""
    first = (Send(peer=1, size_bytes=1), Compute(duration_s=0.001, after_start=(0,), stream="compute"))
    graph = WorkGraph("two", (first, (Receive(peer=0, size_bytes=1),)))
    timeline = list_schedule(graph.repeated(10), lambda operations, ranks: 0.1)
    assert timeline.starts[0][-2] == pytest.approx(0.9)


def test_of_what_one_moment_sets_free_a_stream_takes_the_first_on_paper_as_in_packets() -> None:
    """The start of 3 sets 1 free, once 2, which the same end has set free, has the stream."""
    operations: list[Operation] = [
        compute(1, stream="a"),
        compute(1, after_start=(3,), stream="b"),
        compute(1, after=(0,), stream="b"),
        compute(1, after=(0,), stream="c"),
    ]
    timeline = list_schedule(WorkGraph("one", (tuple(operations),)), seconds)
    progress = RankProgress(RankOrder.of(operations))
    assert (progress.begin(), sorted(progress.end([0]))) == ([0], [2, 3])
    assert timeline.starts[0] == (0, 2, 1, 1)
