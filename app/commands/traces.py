"""Options of commands that read traces, and the traces that they name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabric.errors import UsageError
from fabric.units import parse_size_bytes

if TYPE_CHECKING:
    from traffic.work.formats.trace import Asked, Trace

TRACE = (
    "files of a trace, one for all ranks or one per rank; a folder, a packed file (.tar, .gz), or a pattern in quotes; "
    "GOAL, Chakra, PyTorch execution trace, Kineto, SimAI, AICB, MSCCL (docs/replay.md)"
)
_LONGEST_NAME = 30


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    """Let a command say how traces are to be read."""
    ranks = "how many ranks play, where one rank's trace stands for all (default: what the trace says)"
    parser.add_argument("--ranks", type=int, metavar="N", help=ranks)
    groups = 'a JSON file with the ranks of groups that the trace names, {"ID": [0, 1]} (default: none)'
    parser.add_argument("--groups", type=Path, metavar="FILE", help=groups)
    size = "size of the data of an MSCCL algorithm, e.g. 16MiB (default: 1MiB)"
    parser.add_argument("--size", type=_size, metavar="SIZE", help=size)


def _size(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def asked_of(options: argparse.Namespace) -> Asked:
    """Return what options say of traces. Raises ConfigError for a file of groups that cannot be read."""
    from traffic.work.formats.group_table import read_groups
    from traffic.work.formats.packed import unpacked
    from traffic.work.formats.trace import MOST_RANKS, Asked

    if options.ranks is not None and not 1 <= options.ranks <= MOST_RANKS:
        raise UsageError(f"--ranks {options.ranks}: must be 1 to {MOST_RANKS:,}")
    groups: dict[str, tuple[int, ...]] = {}
    for file in [] if options.groups is None else unpacked(options.groups):
        groups |= read_groups(file)
    return Asked(options.ranks, groups, options.size)


def traces_of(words: Sequence[str], asked: Asked) -> list[Trace]:
    """Return the traces that words name. Raises ConfigError."""
    from traffic.work.formats.files import paths_named, read_sources
    from traffic.work.formats.recognise import read_traces

    traces = read_traces(read_sources(paths_named(words)), asked)
    _require_of_use(asked, traces)
    return traces


def _require_of_use(asked: Asked, traces: Sequence[Trace]) -> None:
    """Raise UsageError if something is asked that none of the traces goes by."""
    from traffic.work.formats import msccl
    from traffic.work.formats.recognise import OF_ONE_RANK

    formats = {trace.format for trace in traces}
    there = f"{traces[0].source} is {traces[0].what}" if len(traces) == 1 else f"there are {', '.join(formats)}"
    if asked.size_bytes is not None and msccl.FORMAT not in formats:
        raise UsageError(f"--size: is for algorithms of MSCCL, and {there}, which says sizes itself; omit it")
    if asked.groups and not formats & {*OF_ONE_RANK}:
        raise UsageError(f"--groups: is for {', '.join(OF_ONE_RANK)}, and {there}, which says groups itself; omit it")


def job_names(traces: Sequence[Trace]) -> list[str]:
    """Return a name for the job of each trace, from those of its files."""
    found: list[str] = []
    for trace in traces:
        base = Path(trace.files[0]).name.lower()
        stem = re.sub(r"[^a-z0-9_-]+", "-", base.partition(".")[0]).strip("-_") or "trace"
        stem = stem[:_LONGEST_NAME].strip("-_") if stem[0].isalnum() else "trace"
        number = 2
        name = stem
        while name in found:
            name, number = f"{stem}-{number}", number + 1
        found.append(name)
    return found


def trace_settings(words: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return ``traces`` of a config for the traces that words name. Raises ConfigError for what cannot be read."""
    asked = asked_of(options)
    traces = traces_of(words, asked)
    groups = {name: list(ranks) for name, ranks in asked.groups.items()}
    found = []
    for name, trace in zip(job_names(traces), traces, strict=True):
        said = {"ranks": asked.ranks, "groups": groups or None, "size": asked.size_bytes}
        # Those that lie among the trace's files, too: the run reads only what is named.
        files = [str(Path(one).absolute()) for one in trace.files]
        found.append({"name": name, "files": files, **{key: value for key, value in said.items() if value is not None}})
    return found
