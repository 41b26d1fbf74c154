"""What readers of Chakra get wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabric.errors import ConfigError
from tests.traffic.work.formats.chakra_files import as_jsonizer, attribute, et, node
from tests.traffic.work.formats.reading import kinds, operations, read
from traffic.work.formats import wire
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite, Receive, Send

COMP, SEND, RECV, COLL, LOAD, STORAGE, META = 4, 5, 6, 7, 2, 8, 1


def test_control_dependencies_may_go_in_circles_and_to_nodes_that_are_not_there() -> None:
    trace = read(et(node(1, COMP, us=5, calls=[1, 99]), node(2, COMP, us=6, calls=[1], after=[3]), node(3, COMP, us=7)))
    assert [one.name for one in trace.program(0)] == ["n1", "n3", "n2"]
    assert trace.program(0)[2].after == (1,)
    assert trace.notes == ("3 control dependencies, not kept to: they are the tree of calls",)


def test_data_dependencies_in_a_circle_are_refused_by_their_nodes() -> None:
    with pytest.raises(ConfigError, match=r"data_deps go in a circle, so none starts: node 1 \(n1\), node 2 \(n2\)"):
        read(et(node(1, COMP, after=[2]), node(2, COMP, after=[1])))
    with pytest.raises(ConfigError, match=r"node 1 \(n1\): data_deps 7: no node of the file has this id"):
        read(et(node(1, COMP, after=[7])))


@pytest.mark.parametrize("field", [7, 9, 11, 13, 27])
def test_is_cpu_op_is_a_number_of_any_kind(field: int) -> None:
    on_cpu = wire.of_bytes(10, attribute("is_cpu_op", 1, field))
    trace = read(et(node(1, COLL, us=3) + on_cpu, node(2, COLL, us=4, comm_type=0, comm_size=100, is_cpu_op=False)))
    assert kinds(trace) == {"compute": 1, "allreduce": 1}
    assert trace.program(0)[0].stream == "cpu"
    assert "1 calls of communication on the CPU" in trace.notes[0]


def test_durations_of_communication_are_kept_and_not_played() -> None:
    (call,) = read(et(node(1, COLL, us=900, comm_type=0, comm_size=8))).program(0)
    assert isinstance(call, CollectiveCall)
    assert call.measured_s == pytest.approx(900e-6)
    assert not isinstance(call, Compute)


@pytest.mark.parametrize(
    ("kind", "collective", "total"),
    [(0, "allreduce", 100), (1, "reduce", 100), (2, "all_gather", 400), (3, "gather", 400), (4, "scatter", 100),
     (5, "broadcast", 100), (6, "all_to_all", 100), (7, "reduce_scatter", 100), (8, "reduce_scatter", 100)],
)  # fmt: skip
def test_what_size_means(kind: int, collective: str, total: int) -> None:
    trace = read(*[et(node(1, COLL, comm_type=kind, comm_size=100))] * 4)
    (call,) = trace.program(2)
    assert (call.collective, call.size_bytes) == (collective, total)  # type: ignore[attr-defined]


def test_a_barrier_has_no_size() -> None:
    assert kinds(read(*[et(node(1, COLL, comm_type=9))] * 2)) == {"barrier": 1}


def test_work_without_a_duration_is_flops() -> None:
    first, second = read(et(node(1, COMP, num_ops=5000), node(2, COMP, us=3, num_ops=7))).program(0)
    assert (first.duration_s, first.flops) == (None, 5000.0)  # type: ignore[attr-defined]
    assert second.duration_s == pytest.approx(3e-6)  # type: ignore[attr-defined]


def test_messages_repeat_their_type_as_comm_type() -> None:
    sender = et(node(1, SEND, comm_type=5, comm_size=9, comm_dst=1, comm_tag=3))
    receiver = et(node(1, RECV, comm_type=6, comm_size=9, comm_src=0, comm_tag=3))
    trace = read(sender, receiver)
    assert operations(trace, 0, Send)[0].peer == 1
    assert operations(trace, 1, Receive)[0].tag == 3
    lost = et(node(1, SEND, comm_size=9, comm_dst=2))
    with pytest.raises(ConfigError, match=r"trace\.0: node 1 \(n1\): comm_dst 2: there are ranks 0 to 1"):
        read(lost, receiver)
    alone = et(node(1, COMP, us=5), node(2, SEND, after=[1], comm_size=9, comm_dst=1), node(3, COMP, us=7, after=[2]))
    for ranks in (None, 2):
        left = read(alone, ranks=ranks)
        assert left.left_out == {"messages with ranks whose traces are not there": 1}
        assert [one.after for one in left.program(0)] == [(), (0,)]


def test_what_cannot_be_played_is_passed_on_and_counted() -> None:
    trace = read(
        et(node(1, COMP, us=1), node(2, LOAD, after=[1]), node(3, META, after=[2]), node(4, COMP, us=2, after=[3]))
    )
    assert trace.left_out == {"loads from memory without a duration": 1, "metadata nodes": 1}
    assert trace.program(0)[1].after == (0,)
    unsized = read(et(node(1, COLL, is_cpu_op=False)))
    assert unsized.left_out == {"communication on a GPU without a size (comm_size)": 1}


def test_groups_are_the_users_or_those_of_the_trace_and_an_empty_list_is_all() -> None:
    def of_rank(name: str) -> bytes:
        return et(node(1, COLL, comm_type=2, comm_size=10, pg_name=name))

    with pytest.raises(
        ConfigError, match=r'group 7 has no ranks; .* say which in --groups FILE, as \{"ID": \[0, 1\]\}'
    ):
        read(of_rank("7"), of_rank("7"))
    two = read(*(of_rank(name) for name in ("a", "a", "b", "b")), groups={"a": (0, 1), "b": (2, 3)})
    assert [two.program(rank)[0].size_bytes for rank in range(4)] == [20] * 4  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="group a is ranks 0, 1, and rank 2 is not in it"):
        read(*(of_rank("a") for _ in range(4)), groups={"a": (0, 1)})
    said = json.dumps([{"pg_name": "a", "ranks": [], "group_size": 3}])
    described = wire.of_bytes(8, wire.of_bytes(1, json.dumps([said]).encode()))
    metadata = (
        wire.of_number(1, 5) + wire.of_bytes(2, b"## process_group:init ##") + wire.of_number(3, META) + described
    )
    head, call = et(), node(1, COLL, comm_type=2, comm_size=10, pg_name="a")
    file = head + b"".join(wire.packed_varint(len(one)) + one for one in (metadata, call))
    assert [one.size_bytes for one in read(file, file, file).program(0)] == [30]  # type: ignore[attr-defined]


def test_files_are_read_and_written_by_storage_nodes() -> None:
    def storage(operation: int) -> bytes:
        fs = wire.of_number(1, operation) + wire.of_bytes(2, b"/data/x") + wire.of_number(4, 8) + wire.of_number(5, 99)
        return node(operation, STORAGE) + wire.of_bytes(11, wire.of_number(1, 1) + wire.of_bytes(10, fs))

    trace = read(et(*(storage(operation) for operation in range(1, 8))))
    assert [type(one) for one in trace.program(0)] == [FileRead, FileWrite, FileRead, FileWrite]
    assert trace.program(0)[0] == FileRead(name="n3", stream="compute", path="/data/x", offset_bytes=8, size_bytes=99)
    assert trace.left_out == {"storage operations other than reads and writes of files": 3}


def test_json_of_the_jsonizer_has_names_of_types_and_numbers_as_texts() -> None:
    nodes: list[dict[str, Any]] = [
        {"id": "3", "name": "a", "type": "COMP_NODE", "durationMicros": "7"},
        {"id": "4", "type": "COMM_COLL_NODE", "dataDeps": ["3"], "ctrlDeps": ["9"],
         "attr": [{"name": "comm_size", "int64Val": "100"}, {"name": "comm_type", "int64Val": "0"},
                  {"name": "is_cpu_op", "boolVal": False}]},
    ]  # fmt: skip
    trace = read(as_jsonizer(*nodes))
    assert kinds(trace) == {"compute": 1, "allreduce": 1}
    assert trace.program(0)[1].after == (0,)


def test_json_of_the_feeder() -> None:
    graph = {
        "ngpus": 8,
        "workload_graph": [
            {"Id": 1, "Name": "a", "NodeType": 4, "ctrlDeps": [3], "data_deps": [], "runtime": 5, "is_cpu_op": True},
            {
                "Id": 2,
                "NodeType": 7,
                "data_deps": [1],
                "runtime": 9,
                "is_cpu_op": False,
                "comm_type": 7,
                "comm_size": 80,
            },
            {"Id": 3, "NodeType": 7, "data_deps": [2], "runtime": 9, "is_cpu_op": False},
        ],
    }
    trace = read(json.dumps(graph))
    assert (trace.ranks, trace.alike) == (8, True)
    assert kinds(trace) == {"compute": 1, "reduce_scatter": 1}
    assert trace.left_out == {"communication on a GPU without a size (comm_size)": 1}
    assert trace.program(5)[1].measured_s == pytest.approx(9e-6)


def test_one_ranks_trace_is_one_rank_until_the_user_says_more() -> None:
    file = et(node(1, COLL, comm_type=2, comm_size=10))
    assert read(file).ranks == 1
    copied = read(file, ranks=16)
    assert (copied.ranks, copied.program(9)[0].size_bytes) == (16, 160)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="are 2 files, one per rank, and 3 ranks are asked for; leave --ranks out"):
        read(file, file, ranks=3)
