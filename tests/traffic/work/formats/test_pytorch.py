"""PyTorch's traces: schemas, sizes, groups, splits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabric.errors import ConfigError
from tests.traffic.work.formats.reading import kinds, operations, read
from traffic.work.operations import CollectiveCall, Receive, Send

TENSOR = [10, 11, 0, 60, 2, "cuda:0"]


def call(id: int, name: str, *, tensor: Any = None, out: Any = None, splits: Any = ((), ()), rank: int = 0,
         group: Any = ("0", "default"), request: Any = 1, **attributes: Any) -> dict[str, Any]:  # fmt: skip
    """Return a nested node, as schemas from 1.0.2 on have it."""
    front = [] if tensor is None else [tensor]
    values = [*front, request, list(group) if isinstance(group, tuple) else group, rank, name, *map(list, splits)]
    return {
        "id": id, "name": "record_param_comms", "ctrl_deps": 1,
        "inputs": {"values": values, "shapes": [], "types": ["Tensor(c10::BFloat16)"] if tensor else []},
        "outputs": {"values": [] if out is None else [out], "shapes": [], "types": []},
        "attrs": [{"name": key, "type": "string", "value": value} for key, value in attributes.items()],
    }  # fmt: skip


def groups_node(*groups: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(list(groups))
    return {"id": 0, "name": "## process_group:init ##", "ctrl_deps": 1, "inputs": {"values": [text]}, "outputs": {}}


def trace(*nodes: dict[str, Any], schema: str = "1.1.1-chakra.0.0.4") -> str:
    return json.dumps({"schema": schema, "pid": 1, "nodes": list(nodes)})


@pytest.mark.parametrize(
    ("name", "out", "collective", "total"),
    [
        ("allreduce", TENSOR, "allreduce", 120), ("allreduce_coalesced", TENSOR, "allreduce", 120),
        ("_allgather_base", [1, 2, 0, 240, 2, "cuda:0"], "all_gather", 480), ("all_gather", None, "all_gather", 480),
        ("_reduce_scatter_base", [1, 2, 0, 15, 2, "cuda:0"], "reduce_scatter", 120),
        ("broadcast", TENSOR, "broadcast", 120),
        ("all_to_all", TENSOR, "all_to_all", 120), ("gather", None, "gather", 480), ("reduce", TENSOR, "reduce", 120),
    ],
)  # fmt: skip
def test_what_size_means(name: str, out: Any, collective: str, total: int) -> None:
    (made,) = read(*[trace(call(1, name, tensor=TENSOR, out=out))] * 4).program(1)
    assert (made.collective, made.size_bytes, made.dtype) == (collective, total, "bf16")  # type: ignore[attr-defined]


def test_sizes_come_from_attributes_where_no_tensor_says_them() -> None:
    node = call(1, "allreduce", collective_name="allreduce", in_msg_nelems=50, out_msg_nelems=50, dtype="Float")
    (made,) = read(trace(node), trace(node)).program(0)
    assert (made.size_bytes, made.dtype) == (200, "fp32")  # type: ignore[attr-defined]


def test_splits_count_rows_and_the_first_list_is_what_a_rank_sends() -> None:
    rows = call(1, "all_to_allv", tensor=TENSOR, out=TENSOR, splits=([4, 2], [1, 5]))
    (made,) = read(trace(rows), trace(rows)).program(0)
    assert (made.sent_bytes, made.size_bytes) == ((80, 40), 120)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="were cut when they were captured"):
        read(trace(call(1, "all_to_allv", tensor=TENSOR, in_split_size="[1, 2, ...]")), trace(rows))
    with pytest.raises(ConfigError, match="has splits for 2 ranks, and its group has 3; say --ranks 2"):
        read(*[trace(rows)] * 3)


def test_peers_of_messages_are_places_in_the_group() -> None:
    groups = groups_node(
        {"pg_name": "5", "ranks": [1, 3], "group_size": 2}, {"pg_name": "0", "ranks": [], "group_size": 4}
    )
    send = call(1, "send", tensor=TENSOR, out=TENSOR, group=("5", "pp"), rank=1)
    receive = call(1, "recv", tensor=TENSOR, out=TENSOR, group=("5", "pp"), rank=0)
    other = call(1, "barrier")
    made = read(trace(groups, other), trace(groups, send), trace(groups, other), trace(groups, receive))
    assert operations(made, 1, Send)[0].peer == 3
    assert operations(made, 3, Receive)[0].peer == 1
    assert (operations(made, 3, Receive)[0].size_bytes, kinds(made, 0)) == (120, {"barrier": 1})


def test_a_group_is_the_same_whatever_number_a_process_has_for_it() -> None:
    files = [
        trace(groups_node({"pg_name": "0", "backend_id": number, "ranks": [], "group_size": 2}),
              call(1, "allreduce", tensor=TENSOR, group=number), schema="1.0.2-chakra.0.0.4")
        for number in (111, 222)
    ]  # fmt: skip
    made = read(*files)
    assert {operations(made, rank, CollectiveCall)[0].group for rank in range(2)} == {"0"}
    undescribed = read(*[trace(call(1, "allreduce", tensor=TENSOR, group=number)) for number in (111, 222)])
    assert {operations(undescribed, rank, CollectiveCall)[0].group for rank in range(2)} == {"all"}


def test_ranks_of_a_group_follow_from_its_first_its_distance_and_its_size() -> None:
    said: dict[str, Any] = {"global_rank_start": 1, "global_rank_stride": 2, "pg_size": 4, "pg_name": "7"}
    made = read(trace(call(1, "allreduce", tensor=TENSOR, **said)), ranks=16)
    assert [operations(made, rank, CollectiveCall)[0].group for rank in (0, 1, 9)] == ["7 at 0", "7 at 1", "7 at 9"]
    assert made.groups["7 at 9"] == (9, 11, 13, 15)
    with pytest.raises(ConfigError, match="such groups divide 8 ranks, and not 12; say --ranks 16"):
        read(trace(call(1, "allreduce", tensor=TENSOR, **said)), ranks=12)


def test_waits_hold_back_what_is_issued_later_only() -> None:
    nodes = [call(1, "allreduce", tensor=TENSOR, request=7), call(2, "allreduce", tensor=TENSOR, request=8),
             call(3, "wait", request=7), call(4, "allreduce", tensor=TENSOR, request=9)]  # fmt: skip
    made = read(*[trace(*reversed(nodes))] * 2).program(0)
    assert [one.after for one in made] == [(), (), (0,), (2,)]


def test_flat_nodes_of_schema_1_0_1() -> None:
    node = {"id": 1, "name": "record_param_comms", "parent": 2, "inputs": [[TENSOR], 5, 94, 0, "allreduce", [], []],
            "input_types": ["GenericList[Tensor(float)]", "Int"], "outputs": [[TENSOR]]}  # fmt: skip
    made = read(*[trace(node, schema="1.0.1")] * 2)
    assert kinds(made) == {"allreduce": 1}
    assert operations(made, 0, CollectiveCall)[0].group == "all"
