"""Which format a file has, by its content: names mean nothing. And traces of whatever format, read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats import aicb, chakra, chakra_json, chakra_protobuf, goal, kineto, msccl, phases, pytorch, simai
from traffic.work.formats.files import Sources, ordered, paths_named, read_sources
from traffic.work.formats.group_table import is_groups, read_groups
from traffic.work.formats.trace import Asked, Trace, TraceFile
from traffic.work.formats.values import documents, shown, text_of
from traffic.work.formats.wire import fields, messages
from traffic.work.graph import WorkGraph
from traffic.work.graph_lines import graph_of_lines

CHAKRA, PYTORCH, KINETO, GROUPS, MATRIX = "Chakra", "PyTorch execution trace", "Kineto", "groups", "connection matrix"
GRAPH = "graph of work"
OF_ONE_RANK = (CHAKRA, PYTORCH, KINETO)
"""Formats that have a file per rank; the others have one for all."""
_WHOLE: dict[str, Callable[[TraceFile, Asked], Trace]] = {
    goal.FORMAT: goal.read_goal,
    simai.FORMAT: simai.read_simai,
    aicb.FORMAT: aicb.read_aicb,
    msccl.FORMAT: msccl.read_msccl,
    phases.FORMAT: phases.read_phases,
}
FORMATS = (
    "GOAL", "Chakra (.et, JSON)", "PyTorch execution trace", "Kineto", "SimAI and AICB text", "AICB CSV", "MSCCL XML",
    "a table of phases (CSV)", "a graph of our own (JSON lines)", "htsim's connection matrix",
)  # fmt: skip
_HEAD_LINES = 200
_JSON = "{["


class UnknownFormatError(ConfigError):
    """A text is not a trace. What is damaged is none of these."""


@dataclass(frozen=True)
class Recognised:
    """A file, its format, and its JSON documents if it is JSON."""

    file: TraceFile
    format: str
    parts: Sequence[Any] = ()


def recognised(file: TraceFile) -> Recognised:
    """Return a file with its format. Raises ConfigError if it has none that can be read."""
    if _is_chakra(file.data):
        return Recognised(file, CHAKRA)
    text = text_of(file)
    head = list(itertools.islice(text.splitlines(), _HEAD_LINES))
    if msccl.is_algorithm(text):
        return Recognised(file, msccl.FORMAT)
    words = " ".join(goal.without_comments(head)).split()
    for found, is_it in ((goal.FORMAT, goal.is_goal), (simai.FORMAT, simai.is_workload)):
        if is_it(words):
            return Recognised(file, found)
    for found, is_of in ((aicb.FORMAT, aicb.is_workload), (phases.FORMAT, phases.is_table)):
        if is_of(head):
            return Recognised(file, found)
    if text.strip() and text.lstrip()[0] in _JSON:
        return _of_json(file)
    lines = [line for line in head if line.strip() and not line.startswith("#")]
    if any(line.split()[0] in ("Tiers", "Podsize", "Tier") for line in lines):
        what = "is a topology file of htsim, and no trace"
        raise ConfigError(file.name, [f"{what}; replay a trace on it: fabric replay TRACE --topo {file.name}"])
    if lines and lines[0].split()[0] in ("Nodes", "Connections", "Triggers"):
        return Recognised(file, MATRIX)
    begins = f"begins with {shown(lines[0])!r}" if lines else "is empty"
    raise UnknownFormatError(file.name, [f"{begins}: is not a trace; there are {'; '.join(FORMATS)}"])


def _is_chakra(data: bytes) -> bool:
    """Whether data begin with Chakra's metadata: a message that has a version and attributes, each with a name."""
    try:
        first = next(messages(data), None)
        if first is None or (not first[1] and data[:1] != b"\0"):
            return False
        for number, kind, value in fields(first[1]):
            if number not in (1, 2) or kind != 2 or not isinstance(value, bytes):
                return False
            if number == 2 and not any(part == 1 for part, _, _ in fields(value)):
                return False
            if number == 1 and not value.decode().isprintable():
                return False
    except (ValueError, UnicodeDecodeError):
        return False
    return True


def _of_json(file: TraceFile) -> Recognised:
    parts = documents(file)
    if parts and _is_graph(parts[0]):
        return Recognised(file, GRAPH, parts)
    for found, is_it in ((PYTORCH, pytorch.is_trace), (KINETO, kineto.is_trace), (GROUPS, is_groups)):
        if len(parts) == 1 and is_it(parts[0]):
            return Recognised(file, found, parts)
    if chakra_json.is_graph(parts):
        return Recognised(file, CHAKRA, parts)
    keys = ", ".join(list(map(shown, parts[0]))[:5]) if isinstance(parts[0], dict) else shown(parts[0])
    raise ConfigError(file.name, [f"is JSON with {keys or 'nothing'}: is not a trace; there are {'; '.join(FORMATS)}"])


def read_traces(sources: Sequence[Sources], asked: Asked) -> list[Trace]:
    """Return traces, each of files, a folder, or a pattern that the user named. Raises ConfigError."""
    found: list[list[Recognised]] = []
    strange: list[str] = []
    asked_with = [asked]
    for one in sources:
        files, others = _recognised(one)
        strange += others
        for groups in (each for each in files if each.format == GROUPS):
            asked_with[0] = _with_groups(asked_with[0], groups)
        traces = [each for each in files if each.format != GROUPS]
        if traces:
            found += _apart(traces)
    return [_with_files(_read(files, asked_with[0]), files, strange) for files in found]


def _recognised(source: Sources) -> tuple[list[Recognised], list[str]]:
    """Return the files with their formats, and the names of those that are not traces, among others that are."""
    found, strange = [], []
    for file in source.files:
        try:
            found.append(recognised(file))
        except UnknownFormatError:
            if not source.among_others or (file is source.files[-1] and not found):
                raise
            strange.append(file.name)
    return found, strange


def _with_files(trace: Trace, files: Sequence[Recognised], strange: Sequence[str]) -> Trace:
    paths = tuple(dict.fromkeys(one.file.path for one in files))
    if not strange:
        return replace(trace, files=paths)
    beside = tuple(name.rpartition("/")[2] for name in strange)
    what = f"{len(beside)} files beside it are not traces: {', '.join(beside[:3])}"
    return replace(trace, files=paths, beside=beside, notes=(*trace.notes, what))


def graph_of_path(path: Path, asked: Asked | None = None) -> WorkGraph:
    """Return the graph of a trace of one file or folder. Raises ConfigError if it holds none, or several, or files that
    are none: nobody would be told that they are left out."""
    found = read_traces(read_sources(paths_named([str(path)])), asked or Asked())
    if len(found) != 1:
        raise ConfigError(str(path), [f"holds {len(found)} traces, and a job plays one; name the files of one"])
    if beside := found[0].beside:
        what = f"{', '.join(beside[:3])}{f' and {len(beside) - 3} more' if len(beside) > 3 else ''}"
        step = f"name the trace's file ({Path(found[0].files[0]).name}), or move them elsewhere"
        raise ConfigError(str(path), [f"holds a trace and other files: {what}; {step}"])
    return found[0].graph()


def _is_graph(part: Any) -> bool:
    """Whether a JSON document is the first line of a graph of our own."""
    return isinstance(part, dict) and "work_graph" in part and (not part.get("groups") or is_groups(part["groups"]))


def _graph(file: TraceFile, asked: Asked) -> Trace:
    graph = graph_of_lines(file.name, iter(text_of(file).splitlines()))
    if asked.ranks not in (None, graph.ranks):
        raise ConfigError(file.name, [f"has {graph.ranks} ranks, and {asked.ranks} are asked for; leave --ranks out"])
    return Trace(file.name, GRAPH, graph.ranks, graph.operations.__getitem__, graph.groups, name=graph.name)


def _with_groups(asked: Asked, groups: Recognised) -> Asked:
    return Asked(asked.ranks, {**read_groups(groups.file), **asked.groups}, asked.size_bytes)


def _apart(files: list[Recognised]) -> list[list[Recognised]]:
    """Return the traces that files are: those of one rank each together, in the order of ranks, others one each."""
    found = [[one] for one in files if one.format not in OF_ONE_RANK]
    for name in OF_ONE_RANK:
        same = [one for one in files if one.format == name]
        if name == KINETO and len(same) > 1 and (in_order := _by_said_rank(same)):
            found.append(in_order)
        elif same:
            by_name = {one.file.name: one for one in same}
            found += [[by_name[each] for each in names] for names in ordered([one.file.name for one in same])]
    return found


def _by_said_rank(files: list[Recognised]) -> list[Recognised] | None:
    """Return files in the order of the ranks that are in them; None if not all say one, or some say the same."""
    ranks = {}
    for one in files:
        about = one.parts[0].get("distributedInfo")
        rank = about.get("rank") if isinstance(about, dict) else None
        if not isinstance(rank, int) or rank in ranks:
            return None
        ranks[rank] = one
    return [ranks[rank] for rank in sorted(ranks)]


def _read(files: list[Recognised], asked: Asked) -> Trace:
    first = files[0]
    if first.format == GRAPH:
        return _graph(first.file, asked)
    if first.format == CHAKRA:
        nodes = [
            chakra_json.read_nodes(one.file, one.parts) if one.parts else chakra_protobuf.read_nodes(one.file)
            for one in files
        ]
        return chakra.read_chakra(nodes, asked)
    if first.format == PYTORCH:
        return pytorch.read_pytorch([(one.file, one.parts[0]) for one in files], asked)
    if first.format == KINETO:
        return kineto.read_kineto([(one.file, one.parts[0]) for one in files], asked)
    if first.format == MATRIX:
        what = "is a connection matrix of htsim, which has flows and no ranks"
        raise ConfigError(first.file.name, [f"{what}; replay it alone: fabric replay FILE --topology NAME"])
    return _WHOLE[first.format](first.file, asked)
