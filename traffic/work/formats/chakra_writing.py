"""MLCommons Chakra execution traces: writer of ``.et`` files, one per rank.

What Chakra has no word for stands in an attribute of our own, so that :mod:`~traffic.work.formats.chakra` reads the
same graph back: streams, dependencies after a start, algorithms, types of elements, times between two microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats import names, wire
from traffic.work.formats.chakra import MICROSECOND_S, OWN
from traffic.work.formats.chakra_nodes import COLLECTIVES, NodeType
from traffic.work.formats.sizes import input_of
from traffic.work.graph import WorkGraph
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite, Operation, Receive, Send

SCHEMA = "0.0.4"
_PREAD, _PWRITE, _LEVEL_FS = 5, 6, 1
_MOST_OPS = 2**63 - 1
_STAND_FOR = {names.ALL_TO_ALL_V: names.ALL_TO_ALL}


def write_chakra(graph: WorkGraph) -> list[bytes]:
    """Return the file of each rank. Raises ConfigError if the graph has what Chakra cannot say."""
    groups = {name: list(ranks) for name, ranks in graph.groups.items()}
    own = _text_attribute(OWN, json.dumps({"name": graph.name, "groups": groups}))
    metadata = wire.of_bytes(1, SCHEMA.encode()) + wire.of_bytes(2, own)
    return [
        _behind_length(metadata)
        + b"".join(_behind_length(_node(graph, rank, place)) for place in range(len(graph.operations[rank])))
        for rank in range(graph.ranks)
    ]


def _behind_length(message: bytes) -> bytes:
    return wire.packed_varint(len(message)) + message


def _node(graph: WorkGraph, rank: int, place: int) -> bytes:
    one = graph.operations[rank][place]
    own: dict[str, Any] = {"stream": one.stream}
    if one.after_start:
        own["after_start"] = list(one.after_start)
    kind, duration_s, attributes, more = _of_kind(graph, rank, one, own)
    micros = round((duration_s or 0.0) / MICROSECOND_S)
    message = wire.of_number(1, place) + wire.of_bytes(2, one.name.encode()) + wire.of_number(3, kind)
    message += wire.of_numbers(5, one.after)
    if micros:
        message += wire.of_number(7, micros)
    for name, value in attributes.items():
        message += wire.of_bytes(
            10, _text_attribute(name, value) if isinstance(value, str) else _attribute(name, value)
        )
    return message + wire.of_bytes(10, _text_attribute(OWN, json.dumps(own))) + more


def _of_kind(
    graph: WorkGraph, rank: int, one: Operation, own: dict[str, Any]
) -> tuple[NodeType, float | None, Mapping[str, int | bool | str], bytes]:
    """Return the node type, a duration, attributes, further fields; what Chakra has no word for goes into ``own``."""
    if one.measured_s is not None:
        own["measured_s"] = one.measured_s
    if isinstance(one, Compute):
        own |= {"duration_s": one.duration_s, "flops": one.flops}
        ops = {"num_ops": int(one.flops)} if 0 < one.flops <= _MOST_OPS else {}
        return NodeType.COMP_NODE, one.duration_s, {"is_cpu_op": False, **ops}, b""
    if isinstance(one, Send | Receive):
        sends = isinstance(one, Send)
        ends = {"comm_src": rank if sends else one.peer, "comm_dst": one.peer if sends else rank}
        kind = NodeType.COMM_SEND_NODE if sends else NodeType.COMM_RECV_NODE
        values = {"is_cpu_op": False, "comm_size": one.size_bytes, "comm_tag": one.tag, **ends}
        return kind, one.measured_s, values, b""
    if isinstance(one, CollectiveCall):
        return NodeType.COMM_COLL_NODE, one.measured_s, _of_collective(graph, one, own), b""
    assert isinstance(one, FileRead | FileWrite), "all kinds of operations are known"
    operation = wire.of_number(1, _PREAD if isinstance(one, FileRead) else _PWRITE) + wire.of_bytes(
        2, one.path.encode()
    )
    operation += wire.of_number(4, one.offset_bytes) + wire.of_number(5, one.size_bytes)
    storage = wire.of_number(1, _LEVEL_FS) + wire.of_bytes(10, operation)
    return NodeType.STORAGE_NODE, one.measured_s, {}, wire.of_bytes(11, storage)


def _of_collective(graph: WorkGraph, one: CollectiveCall, own: dict[str, Any]) -> dict[str, int | bool | str]:
    stands_for = _STAND_FOR.get(one.collective, one.collective)
    if stands_for not in COLLECTIVES:
        raise ConfigError(
            graph.name, [f"{one.collective}: Chakra has no such collective; it has {', '.join(COLLECTIVES)}"]
        )
    own |= {"size_bytes": one.size_bytes, "root": one.root, "dtype": one.dtype}
    if stands_for != one.collective:
        own["collective"] = one.collective
    if one.sent_bytes:
        own["sent_bytes"] = list(one.sent_bytes)
    if one.algorithm is not None:
        own["algorithm"] = one.algorithm
    size = input_of(one.collective, one.size_bytes, len(graph.members(one.group)))
    kind = COLLECTIVES.index(stands_for)
    return {"is_cpu_op": False, "comm_type": kind, "comm_size": size, "pg_name": one.group}


def _attribute(name: str, value: int) -> bytes:
    """Return an attribute that is a bool or an integer of 64 bits."""
    return wire.of_bytes(1, name.encode()) + wire.of_number(27 if isinstance(value, bool) else 9, int(value))


def _text_attribute(name: str, value: str) -> bytes:
    return wire.of_bytes(1, name.encode()) + wire.of_bytes(29, value.encode())
