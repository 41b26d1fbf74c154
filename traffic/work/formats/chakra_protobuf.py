"""Chakra's ``.et`` files: a stream of messages, each behind its length, the first of which is metadata. Reader."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.chakra_nodes import ChakraFile, ChakraNode, NodeType, StorageOperation, node_type
from traffic.work.formats.trace import TraceFile
from traffic.work.formats.wire import Value, fields, messages, numbers, signed, zigzag

_FILE_OPERATIONS = {
    1: "open", 2: "close", 3: "read", 4: "write", 5: "read", 6: "write", 7: "fsync", 8: "fdatasync",
    9: "sync_file_range",
}  # fmt: skip


def read_nodes(file: TraceFile) -> ChakraFile:
    """Return the nodes of a file. Raises ConfigError, naming the message that cannot be read."""
    attributes: Mapping[str, Any] = {}
    nodes: list[ChakraNode] = []
    number = -1
    try:
        for number, (at, message) in enumerate(messages(file.data)):
            try:
                if number == 0:
                    attributes = _metadata(message)
                else:
                    nodes.append(_node(number - 1, message))
            except ValueError as error:
                what = "the metadata" if number == 0 else f"node {number - 1}"
                raise ValueError(f"{what} at byte {at:,}: {error}") from None
    except ValueError as error:
        raise ConfigError(file.name, [f"{error}; the file is damaged, or no Chakra trace"]) from None
    if number < 0:
        raise ConfigError(file.name, ["is empty; a Chakra trace begins with metadata"])
    return ChakraFile(file.name, tuple(nodes), attributes)


def _metadata(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, _, value in fields(message):
        if number == 1:
            found["version"] = _text(value)
        elif number == 2:
            name, attribute = _attribute(value)
            found[name] = attribute
    return found


def _node(number: int, message: bytes) -> ChakraNode:
    data_deps: list[int] = []
    attributes: dict[str, Any] = {}
    found: dict[str, Any] = {"id": 0, "name": "", "kind": NodeType.INVALID_NODE}
    for field, kind, value in fields(message):
        if field in (1, 7):
            found["id" if field == 1 else "duration_us"] = _number(value)
        elif field == 2:
            found["name"] = _text(value)
        elif field == 3:
            found["kind"] = node_type(_number(value))
        elif field == 4:
            found["control_deps"] = found.get("control_deps", 0) + len(numbers(kind, value))
        elif field == 5:
            data_deps += numbers(kind, value)
        elif field == 8:
            found["inputs"] = next((_text(one) for part, _, one in fields(_bytes(value)) if part == 1), "")
        elif field == 10:
            name, attribute = _attribute(value)
            attributes[name] = attribute
        elif field == 11:
            found["storage"] = _storage(_bytes(value))
    return ChakraNode(number=number, data_deps=tuple(data_deps), attributes=attributes, **found)


def _storage(message: bytes) -> StorageOperation:
    """Return an access to a file; what is seen on a level below is called by that."""
    found: dict[int, Value] = {}
    for field, _, value in fields(message):
        if field == 10:
            found = {part: one for part, _, one in fields(_bytes(value))}
        elif field in (11, 12):
            return StorageOperation("page" if field == 11 else "block", "", 0, 0)
    kind = _FILE_OPERATIONS.get(_number(found.get(1, 0)), "unknown")
    path = _text(found.get(2, b"")) or f"descriptor {_number(found.get(3, 0))}"
    return StorageOperation(kind, path, _number(found.get(4, 0)), _number(found.get(5, 0)))


def _attribute(value: Value) -> tuple[str, Any]:
    name, found = "", None
    for field, kind, one in fields(_bytes(value)):
        if field == 1:
            name = _text(one)
        elif field in _VALUES:
            found = _VALUES[field](one)
        elif field in _LISTS:
            found = [_LISTS[field](each) for part in fields(_bytes(one)) for each in numbers(part[1], part[2])]
        elif kind == 2:
            found = one  # A list of what nothing here asks for.
    return name, found


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise ValueError("has bytes where a number belongs")
    return value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("has a number where a message belongs")
    return value


def _text(value: Value) -> str:
    return _bytes(value).decode("utf-8", errors="replace")


def _fixed(layout: str) -> Callable[[Value], Any]:
    def read(value: Value) -> Any:
        if not isinstance(value, bytes) or len(value) != struct.calcsize(layout):
            raise ValueError("has another value where one of fixed length belongs")
        return struct.unpack(layout, value)[0]

    return read


def _signed(value: Value) -> int:
    return signed(_number(value))


_VALUES: dict[int, Callable[[Value], Any]] = {
    3: _fixed("<d"), 5: _fixed("<f"), 7: _signed, 9: _signed, 11: _number, 13: _number,
    15: lambda value: zigzag(_number(value)), 17: lambda value: zigzag(_number(value)), 19: _fixed("<I"),
    21: _fixed("<Q"), 23: _fixed("<i"), 25: _fixed("<q"), 27: lambda value: bool(_number(value)), 29: _text, 31: _bytes,
}  # fmt: skip
"""How the value of an attribute is read, by the number of its field (AttributeProto's oneof)."""
_LISTS: dict[int, Callable[[int], int]] = {8: signed, 10: signed, 12: int, 14: int, 16: zigzag, 18: zigzag}
