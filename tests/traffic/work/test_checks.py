"""Graphs that cannot end are told before they are played, by rank and operation."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from fabric.errors import ConfigError
from traffic.work.checks import MOST_FAULTS, graph_faults, require_playable
from traffic.work.graph import WorkGraph
from traffic.work.operations import ANY, CollectiveCall, Compute, FileRead, Operation, Receive, Send

Ranks = tuple[tuple[Operation, ...], ...]


def call(group: str = "all", **values: Any) -> CollectiveCall:
    return replace(CollectiveCall(collective="allreduce", size_bytes=8, group=group), **values)


def faults(*ranks: tuple[Operation, ...], **groups: tuple[int, ...]) -> list[str]:
    return list(graph_faults(WorkGraph("g", ranks, groups)))


def test_a_graph_that_ends_has_no_fault() -> None:
    """A receive may come long after its message; a stream takes what is ready, not what is first in its list."""
    first = (
        Compute(duration_s=1.0, stream="compute"),
        Send(peer=1, size_bytes=10, after=(0,)),
        Receive(peer=1, size_bytes=0, tag=2, stream="in"),
        call(after=(2,)),
        call("pair", root=1, after_start=(3,)),
    )
    second = (
        call(),
        Receive(peer=0, size_bytes=10, after=(0,), stream="in"),
        Send(peer=0, size_bytes=0, tag=2),
        call("pair", root=1),
    )
    assert faults(first, second, (call(),), pair=(1, 0)) == []


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        (Compute(duration_s=1, after=(4,)), "waits for operation 4, and its rank has 0 to 0; name one of these"),
        (Compute(duration_s=1, after_start=(0,)), "waits for itself; leave that out"),
        (Compute(flops=5), "has 5 FLOP and no duration; say how many FLOP/s a rank computes"),
        (Compute(), "has neither a time nor FLOP; give it duration_s or flops, or leave it out"),
        (Compute(duration_s=float("nan")), "duration nan s: give 0 or more, and finite"),
        (Send(peer=3, size_bytes=1), "unknown rank 3; ranks are 0 to 1"),
        (Send(peer=ANY, size_bytes=1), "unknown rank -1; ranks are 0 to 1"),
        (Receive(peer=1, size_bytes=-1), "size -1: give 0 bytes or more"),
        (FileRead(path="", offset_bytes=0, size_bytes=1), "1 B from 0 of '': give a path, and 0 bytes or more"),
        (call("nobody"), "unknown group nobody; there are pair, all"),
        (call("piar"), "unknown group piar; did you mean pair?"),
        (call(collective="sum"), "'sum' is not a collective; use one of allreduce, "),
        (call(algorithm="star"), "'star' is not an algorithm of allreduce; use ring, tree"),
        (call(dtype="int3"), "'int3' is not a dtype; use one of fp32, "),
        (call(size_bytes=7), "is not of whole fp32 elements; give multiples of 4 bytes, or a smaller dtype"),
        (call(root=2), "root 2: places in the group are 0 to 1"),
        (call(sent_bytes=(8,)), "sent_bytes has 1 sizes for 2 ranks; give each 0 or more"),
        (call(sent_bytes=(8, 8)), "the sum of sent_bytes is 16, not 8; set size_bytes to it"),
    ],
)
def test_an_operation_that_is_wrong_by_itself_is_named(operation: Operation, fault: str) -> None:
    found, *_ = faults((operation,), (), pair=(0, 1))
    assert found.startswith("rank 0, operation 0 (")
    assert f"): {fault}" in found


def test_groups_are_of_ranks_that_there_are_and_called_by_these_only() -> None:
    assert faults((), (), lost=(0, 2), twice=(1, 1), none=()) == [
        "group lost: has rank 2, and ranks are 0 to 1",
        "group twice: has rank 1 twice; name each once",
        "group none: has no ranks; give it some or leave it out",
    ]
    assert faults((call("one"),), (call("one"),), one=(1,)) == [
        "rank 0, operation 0 (allreduce of 8 B in group one): the group is ranks 1; leave the call out"
    ]


def test_messages_that_do_not_fit_are_named_at_both_ends() -> None:
    assert faults((Send(peer=1, size_bytes=3, tag=7, name="grads"),), (Receive(peer=0, size_bytes=3),)) == [
        "rank 0, operation 0 grads (send of 3 B to rank 1, tag 7) is never received: 1 send, 0 receives; let "
        "rank 1 receive it, or leave it out",
        "rank 1, operation 0 (receive of 3 B from rank 0, tag 0) is never sent: 0 sends, 1 receive; let its peer send "
        "it, or leave it out",
    ]
    assert faults((Send(peer=1, size_bytes=3),), (Receive(peer=0, size_bytes=4),)) == [
        "rank 0, operation 0 (send of 3 B to rank 1, tag 0) meets rank 1, operation 0 (receive of 4 B from rank 0, "
        "tag 0): sizes differ; make them equal, or look for a message before it that is missing at one end"
    ]


def test_receives_from_anybody_take_what_fits_in_tag_and_size() -> None:
    sends = (Send(peer=2, size_bytes=3, tag=1),), (Send(peer=2, size_bytes=4, tag=5),)
    right = (Receive(peer=ANY, size_bytes=4, tag=5), Receive(peer=ANY, tag=ANY, size_bytes=3))
    assert faults(*sends, right) == []
    assert "any rank, any tag) is never sent: 2 sends, 3 receives" in faults(*sends, (*right, right[1]))[0]
    wrong = replace(right[1], size_bytes=4)
    assert faults(*sends, (wrong, wrong)) == [
        "never ends: rank 2, operation 1 (receive of 4 B from any rank, any tag); nothing that fits it is left, so "
        "give it what it waits for or leave it out"
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"collective": "broadcast"}, "collective broadcast"),
        ({"size_bytes": 16}, "size 16"),
        ({"root": 1}, "root 1"),
        ({"dtype": "bf16"}, "dtype bf16"),
        ({"algorithm": "tree"}, "algorithm tree"),
    ],
)
def test_calls_that_meet_and_differ_are_told(change: dict[str, Any], what: str) -> None:
    (fault,) = faults((call(), call()), (call(), call(**change)))
    assert fault.startswith("group all, call 1: rank 1, operation 1 (")
    assert f"has {what}, rank 0, operation 1 (allreduce of 8 B in group all)" in fault


def test_a_member_that_does_not_call_is_told() -> None:
    assert faults((call("pair"), call("pair")), (call("pair"),), (), pair=(0, 1)) == [
        "group pair: rank 1 calls 1 times, and never reaches rank 0, operation 1 (allreduce of 8 B in group pair); "
        "let all ranks of the group call as often, or take it out of the group"
    ]


def test_a_circle_inside_a_rank_is_told() -> None:
    (fault,) = faults((Compute(duration_s=1, after=(1,)), Compute(duration_s=1, after_start=(0,))))
    assert fault == (
        "cannot end, for these wait for each other: rank 0, operation 0 (compute), which waits for the end of rank 0, "
        "operation 1 (compute), which waits for the start of rank 0, operation 0 (compute); let one of them not wait"
    )


def test_ranks_that_wait_for_each_others_messages_are_told_and_who_waits_for_them() -> None:
    ranks = (
        (Receive(peer=1, size_bytes=1), Send(peer=1, size_bytes=1, after=(0,)), Send(peer=2, size_bytes=1, after=(1,))),
        (Receive(peer=0, size_bytes=1), Send(peer=0, size_bytes=1, after=(0,))),
        (Receive(peer=0, size_bytes=1),),
    )
    circle, other = faults(*ranks)
    assert circle == (
        "cannot end, for these wait for each other: rank 0, operation 0 (receive of 1 B from rank 1, tag 0), which "
        "waits for rank 1, operation 1 (send of 1 B to rank 0, tag 0), which waits for the end of rank 1, operation 0 "
        "(receive of 1 B from rank 0, tag 0), which waits for rank 0, operation 1 (send of 1 B to rank 1, tag 0), "
        "which waits for the end of rank 0, operation 0 (receive of 1 B from rank 1, tag 0); let one of them not wait"
    )
    assert other.startswith("never ends: rank 2, operation 0 (receive of 1 B from rank 0, tag 0), which waits for rank")


def test_groups_that_are_called_in_different_orders_on_one_stream_are_told() -> None:
    one = (call("a", stream="comm"), call("b", stream="comm"))
    (fault,) = faults(one, one[::-1], a=(0, 1), b=(0, 1))
    assert "which waits for stream comm, which has rank 1, operation 0 (allreduce of 8 B in group b)" in fault
    assert faults((call("a"), call("b")), (call("b"), call("a")), a=(0, 1), b=(0, 1)) == [], "without a stream"


def test_all_faults_are_one_error_and_only_so_many_are_told() -> None:
    graph = WorkGraph("mine", (tuple(Send(peer=9, size_bytes=1) for _ in range(2 * MOST_FAULTS)),))
    with pytest.raises(ConfigError, match=r"graph mine: rank 0, operation 0 .*unknown rank 9") as error:
        require_playable(graph)
    assert len(error.value.faults) == MOST_FAULTS + 1


def test_many_operations_take_microseconds_each() -> None:
    """A million on 64 ranks took 4.5 s of a core; here 40,000, with a wide margin."""

    def of_step(rank: int, at: int) -> tuple[Operation, ...]:
        return (
            Compute(duration_s=1e-3, stream="compute", after=(at - 1,) if at else ()),
            Send(peer=(rank + 1) % 64, size_bytes=9, tag=at, stream="out", after=(at,)),
            Receive(peer=(rank - 1) % 64, size_bytes=9, tag=at, stream="in"),
            call(stream="comm", after=(at,)),
            Compute(duration_s=1e-3, stream="compute", after=(at + 2, at + 3)),
        )

    ranks = (tuple(one for step in range(125) for one in of_step(rank, 5 * step)) for rank in range(64))
    graph = WorkGraph("many", tuple(ranks))
    before = time.process_time()
    assert list(graph_faults(graph)) == []
    assert time.process_time() - before < 3


def test_the_group_of_all_ranks_cannot_be_another() -> None:
    one = (call(),)
    assert faults(one, one, all=(0, 1)) == []
    for members in ((1, 0), (0,), (0, 1, 0)):
        (fault, *_) = faults(one, one, all=members)
        assert fault.startswith(
            f"group all: is ranks {', '.join(map(str, members))}, and all means all 2 in their order"
        )


def test_what_does_not_match_has_a_next_step() -> None:
    (send,) = faults((Send(peer=1, size_bytes=1),), ())
    assert send.endswith("is never received: 1 send, 0 receives; let rank 1 receive it, or leave it out")
    (receive,) = faults((Receive(peer=1, size_bytes=1),), ())
    assert receive.endswith("is never sent: 0 sends, 1 receive; let its peer send it, or leave it out")
    (missing,) = faults((call(),), ())
    assert missing.endswith("let all ranks of the group call as often, or take it out of the group")


def test_computing_without_time_or_flops_stays_without_a_time() -> None:
    graph = WorkGraph("g", ((Compute(), Compute(flops=10.0), Compute(duration_s=0.0)),)).timed(5.0)
    assert [one.duration_s for one in graph.operations[0] if isinstance(one, Compute)] == [None, 2.0, 0.0]
