"""Graphs as JSON lines, our own format.

The first line says what it is, how many ranks there are and the groups; each other line is an operation, those
of a rank in order::

    {"work_graph": "step", "ranks": 2, "groups": {"dp0": [0, 1]}}
    {"rank": 0, "kind": "compute", "duration_s": 0.1, "stream": "compute"}
    {"rank": 0, "kind": "collective", "collective": "allreduce", "size_bytes": 1024, "group": "dp0", "after": [0]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from fabric.errors import ConfigError
from traffic.work.graph import WorkGraph
from traffic.work.operations import CollectiveCall, Compute, FileRead, FileWrite, Operation, Receive, Send

KINDS: Mapping[str, type[Operation]] = {
    "compute": Compute,
    "send": Send,
    "receive": Receive,
    "collective": CollectiveCall,
    "read": FileRead,
    "write": FileWrite,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
MARK = "work_graph"


def is_ours(path: Path) -> bool:
    """Return whether a file is a graph in this format, by its first line."""
    with path.open("rb") as file:
        return f'"{MARK}"'.encode() in file.readline(1_000_000)


def lines_of(graph: WorkGraph) -> Iterator[str]:
    """Yield the lines of a graph, without their ends."""
    groups = {name: list(members) for name, members in graph.groups.items()}
    yield json.dumps({MARK: graph.name, "ranks": graph.ranks, "groups": groups})
    for rank, _, one in graph.all_operations():
        values = {
            field.name: value for field in fields(one) if (value := getattr(one, field.name)) != _default_of(field)
        }
        yield json.dumps({"rank": rank, "kind": _NAMES[type(one)], **values})


def _default_of(field: Field[Any]) -> Any:
    return field.default if field.default is not MISSING else MISSING


MOST_RANKS = 1_000_000


def graph_of_lines(source: str, lines: Iterator[str] | Any) -> WorkGraph:
    """Return the graph of lines. Raises ConfigError naming the line of the first fault."""
    numbered = enumerate(lines, start=1)
    try:
        _, head = next(numbered, (1, "{}"))
        first = _object(source, 1, head)
        ranks = first.get("ranks")
        if MARK not in first or type(ranks) is not int or not 1 <= ranks <= MOST_RANKS:
            raise ConfigError(source, [f'line 1: give "{MARK}", a name, and "ranks", 1 to {MOST_RANKS:,}'])
        operations: list[list[Operation]] = [[] for _ in range(ranks)]
        for number, line in numbered:
            if line.strip():
                rank, one = _operation(source, number, line, ranks)
                operations[rank].append(one)
        groups = _groups_of(source, first.get("groups", {}))
    except UnicodeDecodeError as error:
        raise ConfigError(source, [f"is not text: {error.reason}"]) from error
    return WorkGraph(str(first[MARK]), tuple(map(tuple, operations)), groups)


def _groups_of(source: str, said: object) -> dict[str, tuple[int, ...]]:
    if not isinstance(said, dict):
        raise ConfigError(source, [f'line 1: groups {said!r}: write {{"NAME": [0, 1]}}'])
    for name, members in said.items():
        if not isinstance(members, list) or any(type(one) is not int for one in members):
            raise ConfigError(source, [f"line 1: group {name} {members!r}: give a list of ranks"])
    return {name: tuple(members) for name, members in said.items()}


def _object(source: str, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(source, [f"line {number}: is not JSON: {error}"]) from error
    if not isinstance(found, dict):
        raise ConfigError(source, [f"line {number}: is not an object of JSON; write one a line"])
    return found


def _operation(source: str, number: int, line: str, ranks: int) -> tuple[int, Operation]:
    values = _object(source, number, line)
    rank, name = values.pop("rank", None), values.pop("kind", None)
    if not isinstance(rank, int) or not 0 <= rank < ranks:
        raise ConfigError(source, [f"line {number}: rank {rank}: ranks are 0 to {ranks - 1}"])
    if name not in KINDS:
        raise ConfigError(source, [f"line {number}: kind {name!r}: use one of {', '.join(KINDS)}"])
    kind = KINDS[name]
    known = {field.name: field for field in fields(kind)}
    if unknown := sorted(values.keys() - known.keys()):
        raise ConfigError(source, [f"line {number}: {name} has no {', '.join(unknown)}; it has {', '.join(known)}"])
    if missing := [key for key, field in known.items() if field.default is MISSING and key not in values]:
        raise ConfigError(source, [f"line {number}: {name} needs {', '.join(missing)}"])
    for key, value in values.items():
        values[key] = _typed(source, number, key, value, str(known[key].type))
    if kind is Compute and values.get("duration_s") is None and not values.get("flops"):
        raise ConfigError(
            source, [f"line {number}: {name} needs duration_s or flops, and says neither; write duration_s: 0 for none"]
        )
    return rank, kind(**values)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "str | None": (str, type(None)),
    "float | None": (int, float, type(None)),
}


def _typed(source: str, number: int, key: str, value: Any, declared: str) -> Any:
    if declared == "tuple[int, ...]":
        if isinstance(value, list) and all(type(one) is int for one in value):
            return tuple(value)
    elif isinstance(value, _TYPES[declared]) and not isinstance(value, bool):
        return value
    raise ConfigError(source, [f"line {number}: {key} {value!r}: give {declared.replace('tuple[int, ...]', 'a list')}"])
