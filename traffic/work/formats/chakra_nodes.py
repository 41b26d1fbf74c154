"""Nodes of MLCommons Chakra execution traces, as its schema has them (schema/protobuf/et_def.proto), whatever they were
read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from traffic.work.formats import names


class NodeType(IntEnum):
    """Kinds of nodes."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7
    STORAGE_NODE = 8
    BATCH_NODE = 9
    CHECKPOINT_NODE = 10


COLLECTIVES = (
    names.ALLREDUCE, names.REDUCE, names.ALL_GATHER, names.GATHER, names.SCATTER, names.BROADCAST, names.ALL_TO_ALL,
    names.REDUCE_SCATTER, names.REDUCE_SCATTER, names.BARRIER,
)  # fmt: skip
"""By the number of a node's ``comm_type`` (CollectiveCommType)."""
COLLECTIVE_NAMES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StorageOperation:
    """An access to a file: ``kind`` is ``read``, ``write``, or what else it is called in the schema."""

    kind: str
    path: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraNode:
    """A node. ``number``: which one of the file it is, from 0 on. ``inputs``: the values of its inputs as text."""

    number: int
    id: int
    name: str
    kind: NodeType
    data_deps: tuple[int, ...] = ()
    control_deps: int = 0
    duration_us: Any = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: str = ""
    storage: StorageOperation | None = None

    def __str__(self) -> str:
        return f"node {self.id} ({self.name[:60]})" if self.name else f"node {self.id}"


@dataclass(frozen=True)
class ChakraFile:
    """What a file says: its nodes, and attributes of the whole."""

    name: str
    nodes: tuple[ChakraNode, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ranks: int | None = None


def node_type(number: int) -> NodeType:
    """Return a kind of nodes by its number. Raises ValueError."""
    try:
        return NodeType(number)
    except ValueError:
        raise ValueError(f"type {number}: is not one of Chakra's, 0 to {max(NodeType)}") from None
