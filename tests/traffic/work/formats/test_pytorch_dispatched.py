"""Calls of gloo and other backends in PyTorch's traces, which only the dispatcher's nodes say."""

from __future__ import annotations

from typing import Any

import pytest

from tests.traffic.work.formats.reading import kinds, operations, read
from tests.traffic.work.formats.test_pytorch import TENSOR, call, groups_node, trace
from traffic.work.checks import require_playable
from traffic.work.formats.playing import nothing_sent
from traffic.work.operations import ANY, CollectiveCall, Receive, Send

GROUP, REDUCE = "<Object>", "<Object>"
WORLD = groups_node({"pg_name": "0", "ranks": [], "group_size": 2})


def tensor(elements: int, number: int = 6, width: int = 4) -> list[Any]:
    return [number, number + 1, 0, elements, width, "cpu"]


def dispatched(id: int, name: str, *values: Any, parent: int = 2) -> dict[str, Any]:
    """Return a node of the dispatcher, as PyTorch 2.14 writes it."""
    return {"id": id, "name": f"c10d::{name}", "ctrl_deps": parent, "inputs": {"values": list(values)}, "outputs": {}}


def gloo(id: int, name: str, parent: int = 2) -> dict[str, Any]:
    """Return what gloo's own thread writes, below any node."""
    return {"id": id, "name": f"gloo:{name}", "ctrl_deps": parent, "inputs": {"values": [tensor(1)]}, "outputs": {}}


@pytest.mark.parametrize(
    ("name", "values", "collective", "total"),
    [
        ("allreduce_", ([tensor(100)], GROUP, REDUCE, "<None>", True, -1), "allreduce", 400),
        ("allreduce_coalesced_", ([tensor(10), tensor(20)], GROUP, REDUCE, True, -1), "allreduce", 120),
        ("allgather_", ([[tensor(40)] * 2], [tensor(40)], GROUP, True, -1), "all_gather", 320),
        ("_allgather_base_", (tensor(80), tensor(40), GROUP, True, -1), "all_gather", 320),
        ("allgather_into_tensor_coalesced_", ([tensor(80)], [tensor(40)], GROUP, True), "all_gather", 320),
        ("reduce_scatter_", ([tensor(60)], [[tensor(60)] * 2], GROUP, REDUCE, True, -1), "reduce_scatter", 480),
        ("_reduce_scatter_base_", (tensor(60), tensor(120), GROUP, REDUCE, True, -1), "reduce_scatter", 480),
        ("reduce_", ([tensor(30)], GROUP, REDUCE, 1, 0, True, -1), "reduce", 120),
        ("broadcast_", ([tensor(30)], GROUP, 1, 0, True, -1), "broadcast", 120),
        ("gather_", ([], [tensor(70)], GROUP, 1, True, -1), "gather", 560),
        ("scatter_", ([tensor(80)], [], GROUP, 1, True, -1), "scatter", 640),
        ("alltoall_base_", (tensor(90), tensor(90), GROUP, [], [], True, -1), "all_to_all", 360),
        ("alltoall_base_", (tensor(90), tensor(90), GROUP, [1, 8], [4, 5], True, -1), "all_to_all_v", 360),
        ("alltoall_", ([tensor(3)] * 2, [tensor(1), tensor(5)], GROUP, True, -1), "all_to_all_v", 24),
        ("barrier", (tensor(1, width=1), GROUP, [], True, -1), "barrier", 0),
        ("monitored_barrier_", (tensor(0), GROUP, [], 1800000, False), "barrier", 0),
    ],
)  # fmt: skip
def test_each_call_of_the_dispatcher_is_one_collective(name: str, values: Any, collective: str, total: int) -> None:
    made = read(*[trace(WORLD, dispatched(5, name, *values), gloo(6, "all_reduce"), gloo(7, "all_reduce", 5))] * 2)
    (found,) = operations(made, 1, CollectiveCall)
    assert (found.collective, found.size_bytes, found.group) == (collective, total, "0")
    assert found.root == (1 if collective in ("reduce", "broadcast", "gather", "scatter") else 0)


def test_splits_are_what_goes_to_each_rank() -> None:
    rows = dispatched(5, "alltoall_base_", tensor(90), tensor(90), GROUP, [1, 8], [4, 5], True, -1)
    listed = dispatched(6, "alltoall_", [tensor(3)] * 2, [tensor(1), tensor(5)], GROUP, True, -1)
    made = read(*[trace(WORLD, rows, listed)] * 2)
    assert [one.sent_bytes for one in operations(made, 0, CollectiveCall)] == [(160, 200), (4, 20)]


def test_messages_have_their_other_end_and_their_tag() -> None:
    send = dispatched(5, "send", [tensor(10)], GROUP, 1, 7)
    receive = dispatched(5, "recv_", [tensor(10)], GROUP, 0, 7)
    anyones = dispatched(6, "recv_any_source_", [tensor(20)], GROUP, 3)
    made = read(trace(WORLD, send, dispatched(6, "send", [tensor(20)], GROUP, 1, 3)), trace(WORLD, receive, anyones))
    assert [(one.peer, one.tag, one.size_bytes) for one in operations(made, 0, Send)] == [(1, 7, 40), (1, 3, 80)]
    assert [(one.peer, one.tag, one.size_bytes) for one in operations(made, 1, Receive)] == [(0, 7, 40), (ANY, 3, 80)]
    require_playable(made.graph())


def test_the_host_waits_for_calls_that_are_not_async() -> None:
    waited = dispatched(5, "broadcast_", [tensor(1)], GROUP, 0, 0, False, -1)
    free = dispatched(6, "send", [tensor(10)], GROUP, 1, 7)
    other = trace(WORLD, waited, dispatched(6, "recv_", [tensor(10)], GROUP, 0, 7))
    broadcast, wait, send = read(trace(WORLD, waited, free), other).program(0)
    assert (wait.after, send.after, broadcast.after) == ((0,), (1,), ())


def test_a_functional_collective_says_its_group_and_what_waits_for_it() -> None:
    groups = groups_node(
        {"pg_name": "0", "ranks": [], "group_size": 4}, {"pg_name": "1", "ranks": [0, 2], "group_size": 2}
    )
    above: dict[str, Any] = {
        "id": 4, "name": "_c10d_functional::all_reduce", "ctrl_deps": 2,
        "inputs": {"values": [tensor(100, 6), "sum", "1"]}, "outputs": {"values": [tensor(100, 13)]},
    }  # fmt: skip
    below = dispatched(5, "allreduce_", [tensor(100, 13)], GROUP, REDUCE, "<None>", True, -1, parent=4)
    wait = {"id": 9, "name": "_c10d_functional::wait_tensor", "ctrl_deps": 2,
            "inputs": {"values": [tensor(100, 13)]}, "outputs": {}}  # fmt: skip
    made = read(*(trace(groups, wait, above, below) if rank in (0, 2) else trace(groups) for rank in range(4)))
    assert [getattr(one, "group", one.after) for one in made.program(2)] == ["1", (0,)]
    assert kinds(made, 1) == {}


def test_what_nccl_records_below_a_call_stands_for_it() -> None:
    above = dispatched(5, "allreduce_", [TENSOR], GROUP, REDUCE, "<None>", True, -1)
    recorded = {**call(6, "allreduce", tensor=TENSOR), "ctrl_deps": 5}
    cpu = dispatched(8, "allreduce_", [tensor(100)], GROUP, REDUCE, "<None>", True, -1)
    made = read(*[trace(WORLD, above, recorded, cpu, gloo(9, "all_reduce", 5))] * 2)
    assert [one.size_bytes for one in operations(made, 0, CollectiveCall)] == [120, 400]


def test_calls_of_one_of_several_groups_are_left_out_by_number() -> None:
    groups = groups_node(
        {"pg_name": "0", "ranks": [], "group_size": 2}, {"pg_name": "1", "ranks": [0], "group_size": 1}
    )
    node = dispatched(5, "allreduce_", [tensor(100)], GROUP, REDUCE, "<None>", True, -1)
    made = read(*[trace(groups, node, {**node, "id": 6})] * 2)
    (what,) = [kind for kind in made.left_out if "gloo" in kind]
    assert (made.left_out[what], made.program(0)) == (4, ())
    assert "no rank does anything" in str(nothing_sent(made))
    same = groups_node({"pg_name": "0", "ranks": [], "group_size": 2}, {"pg_name": "1", "ranks": [0, 1]})
    assert kinds(read(*[trace(same, node)] * 2)) == {"allreduce": 1}


def test_a_call_without_its_inputs_is_named() -> None:
    node = dispatched(5, "broadcast_", [tensor(1)])
    with pytest.raises(Exception, match="node 1, counted from 0: c10d::broadcast_: has 1 inputs, and its input 2"):
        read(trace(WORLD, node), trace(WORLD, node))


def test_a_backends_calls_without_the_dispatchers_are_counted() -> None:
    made = read(*[trace(WORLD, gloo(5, "all_reduce"))] * 2)
    assert {kind: count for kind, count in made.left_out.items() if "c10d" in kind and count == 2}
