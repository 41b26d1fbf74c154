"""Chakra traces as JSON: the ``workload_graph`` of its feeder, and protobuf's JSON of its jsonizer. Reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.chakra_nodes import (
    COLLECTIVE_NAMES,
    ChakraFile,
    ChakraNode,
    NodeType,
    StorageOperation,
    node_type,
)
from traffic.work.formats.trace import MOST_RANKS, TraceFile
from traffic.work.formats.values import mapping, sequence, shown, whole

_GRAPH = "workload_graph"
_NODES = (_GRAPH, "nodes", "node")
_VALUE_KEY = re.compile(
    r"^(double|float|u?int32|u?int64|sint32|sint64|s?fixed32|s?fixed64|bool|string|bytes)_?(val|list)$"
)
_OF_NODE = {"id", "name", "type", "nodetype", "ctrldeps", "datadeps", "runtime", "durationmicros", "starttimemicros",
            "attr", "inputs", "outputs", "storage"}  # fmt: skip


def is_graph(parts: Sequence[Any]) -> bool:
    """Whether JSON documents are a Chakra trace."""
    if len(parts) == 1 and isinstance(parts[0], dict) and _GRAPH in parts[0]:
        return True
    return any(_is_node(part) for part in _nodes(parts)[:3])


def _is_node(part: Any) -> bool:
    found = {_plain(key) for key in part} if isinstance(part, dict) else set()
    return "nodetype" in found or ("type" in found and bool(found & {"attr", "datadeps", "durationmicros", "ctrldeps"}))


def read_nodes(file: TraceFile, parts: Sequence[Any]) -> ChakraFile:
    """Return the nodes of a file's JSON documents. Raises ConfigError, naming the node that cannot be read."""
    attributes: dict[str, Any] = {}
    ranks = None
    nodes = _nodes(parts)
    try:
        if len(parts) == 1 and isinstance(parts[0], dict) and "ngpus" in parts[0]:
            ranks = whole(parts[0]["ngpus"], "ngpus", 1, MOST_RANKS)
        if len(parts) > 1 and not _is_node(parts[0]):  # Its metadata.
            attributes = _attributes(mapping(parts[0], "metadata").get("attr", []))
            nodes = nodes[1:]
        found = tuple(_numbered_node(number, part) for number, part in enumerate(nodes))
    except ValueError as error:
        raise ConfigError(file.name, [str(error)]) from None
    return ChakraFile(file.name, found, attributes, ranks)


def _nodes(parts: Sequence[Any]) -> list[Any]:
    if len(parts) == 1:
        part = parts[0]
        if isinstance(part, dict):
            inner = next((part[key] for key in _NODES if isinstance(part.get(key), list)), None)
            return list(parts) if inner is None else inner
        return part if isinstance(part, list) else []
    return list(parts)


def _plain(key: str) -> str:
    return key.replace("_", "").lower()


def _numbered_node(number: int, part: Any) -> ChakraNode:
    try:
        return _node(number, mapping(part, "a node"))
    except ValueError as error:
        raise ValueError(f"node {number}, counted from 0: {error}") from None


def _node(number: int, part: Mapping[str, Any]) -> ChakraNode:
    keys = {_plain(key): value for key, value in part.items()}
    kind = keys.get("type", keys.get("nodetype", 0))
    if isinstance(kind, str) and not kind.isdigit():
        if kind not in NodeType.__members__:
            raise ValueError(f"type {shown(kind)}: is not one of {', '.join(NodeType.__members__)}")
        kind = NodeType[kind]
    attributes = {key: value for key, value in part.items() if _plain(key) not in _OF_NODE}
    attributes |= _attributes(keys.get("attr", []))
    inputs = keys.get("inputs") or {}
    storage = keys.get("storage")
    return ChakraNode(
        number=number,
        id=whole(keys.get("id", 0), "id"),
        name=str(keys.get("name", "")),
        kind=node_type(whole(kind, "type")),
        data_deps=tuple(whole(one, "data_deps") for one in sequence(keys.get("datadeps", []), "data_deps")),
        control_deps=len(sequence(keys.get("ctrldeps", []), "ctrl_deps")),
        duration_us=keys.get("durationmicros", keys.get("runtime", 0)),
        attributes=attributes,
        inputs=str(inputs.get("values", "")) if isinstance(inputs, dict) else "",
        storage=_storage(mapping(storage, "storage")) if storage is not None else None,
    )


def _attributes(listed: Any) -> dict[str, Any]:
    """Return attributes by name: each is an object with its name and one value, the key of which says its type."""
    found: dict[str, Any] = {}
    for one in sequence(listed, "attr"):
        entries = mapping(one, "an attribute")
        name = str(entries.get("name", ""))
        for key, value in entries.items():
            if match := _VALUE_KEY.match(key.replace("Val", "_val").replace("List", "_list")):
                found[name] = _value(match.group(1), match.group(2), value, name)
    if isinstance(kind := found.get("comm_type"), str) and kind in COLLECTIVE_NAMES:
        found["comm_type"] = COLLECTIVE_NAMES.index(kind)
    return found


def _value(kind: str, shape: str, value: Any, name: str) -> Any:
    """Return a value of JSON as the number that it is: protobuf writes those of 64 bits as texts."""
    if shape == "list":
        values = mapping(value, name).get("values", [])
        return [_value(kind, "val", one, name) for one in sequence(values, name)]
    if "int" in kind or "fixed" in kind:
        return whole(value, name, -(2**63))
    return value


def _storage(part: Mapping[str, Any]) -> StorageOperation:
    fs = part.get("fs")
    if not isinstance(fs, dict):
        return StorageOperation("page" if "page" in part else "block", "", 0, 0)
    kind = str(fs.get("op", "unknown")).lower().removeprefix("fs_op_")
    path = str(fs.get("pathname") or f"descriptor {fs.get('fd', 0)}")
    size = fs.get("sizeBytes", fs.get("size_bytes", 0))
    offset = whole(fs.get("offset", 0), "offset")
    return StorageOperation(
        {"pread": "read", "pwrite": "write"}.get(kind, kind), path, offset, whole(size, "sizeBytes")
    )
