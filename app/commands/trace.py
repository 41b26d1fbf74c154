"""``fabric trace``: what is in traces of other projects, and graphs written in their formats. Brings nothing up."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.options import add_json_option
from app.commands.outputs import write_whole
from app.commands.traces import TRACE, add_trace_options, asked_of, traces_of
from fabric.errors import UsageError
from runs.console import OUT, print_tables, tell

if TYPE_CHECKING:
    from traffic.work.formats.counts import KindCount
    from traffic.work.formats.trace import Trace

_MOST_RANKS = 16
"""Ranks of which the table has a column each, if they differ."""
_MOST_GROUPS = 20
_MOST_CHECKED = 2_000_000
"""Operations of a graph that is looked through for what cannot end."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric trace``."""
    commands = parser.add_subparsers(required=True, metavar="show|write")
    show = commands.add_parser("show", help="count what is in traces: operations per rank and kind, bytes, groups")
    show.add_argument("traces", nargs="+", metavar="TRACE", help=TRACE)
    add_trace_options(show)
    add_json_option(show)
    show.set_defaults(command=show_traces)
    write = commands.add_parser("write", help="write a trace in another format: goal or chakra")
    formats = ("goal", "chakra")
    write.add_argument("format", choices=formats, metavar="goal|chakra", help="goal: one file; chakra: one per rank")
    write.add_argument("traces", nargs="+", metavar="TRACE", help=TRACE)
    out = "the file of goal, or the folder of chakra's files RANK.et, which is made"
    write.add_argument("-o", "--out", required=True, type=Path, metavar="PATH", help=out)
    add_trace_options(write)
    write.set_defaults(command=write_trace)


def show_traces(options: argparse.Namespace, _: list[str]) -> int:
    """Print what is in traces; exit code 2 if one of them cannot be played, or not to its end."""
    from traffic.work.formats.counts import as_json

    traces = [_with_note(trace) for trace in traces_of(options.traces, asked_of(options))]
    faults = [_faults(trace) for trace in traces]
    if options.json:
        print(
            json.dumps([{**as_json(one), "faults": told} for one, told in zip(traces, faults, strict=True)], indent=1)
        )
    else:
        for trace, told in zip(traces, faults, strict=True):
            _print(trace, told)
    return 2 if any(faults) else 0


def _with_note(trace: Trace) -> Trace:
    """Return a trace with the note that it is too large to look for what cannot end, if it is."""
    if _is_looked_through(trace):
        return trace
    what = f"more than {_MOST_CHECKED:,} operations, so what cannot end was not looked for; say fewer --ranks to see"
    return replace(trace, notes=(*trace.notes, what))


def _is_looked_through(trace: Trace) -> bool:
    return len(trace.program(0)) * trace.ranks <= _MOST_CHECKED


def _faults(trace: Trace) -> list[str]:
    """Return why a trace cannot be played, or not to its end; nothing if it is too large to be looked through."""
    from fabric.errors import ConfigError
    from traffic.work.checks import require_playable
    from traffic.work.formats.playing import nothing_sent, playable
    from traffic.work.formats.values import first_of

    if (nothing := nothing_sent(trace)) is not None:
        return [nothing]
    if not _is_looked_through(trace):
        return []
    try:
        require_playable(playable(trace.graph().timed(1.0)))
    except ConfigError as error:
        return first_of(error.faults)
    return []


def _print(trace: Trace, faults: Sequence[str]) -> None:
    from traffic.work.formats.counts import ranks_counted

    per_rank = ranks_counted(trace)
    same = trace.alike or all(one == per_rank[0] for one in per_rank)
    alike = "all do the same" if same else "they differ"
    what = "1 rank" if trace.ranks == 1 else f"{trace.ranks:,} ranks ({alike})"
    OUT.print(f"{trace.source}: {trace.what}, {what}", soft_wrap=True)
    if any(per_rank):
        print_tables([_counts_table(trace, per_rank[:1] if same else per_rank)])
    if trace.groups:
        names = list(trace.groups)
        rows = [[name, f"{len(trace.groups[name]):,}", _listed(trace.groups[name])] for name in names[:_MOST_GROUPS]]
        note = f"and {len(names) - _MOST_GROUPS:,} more" if len(names) > _MOST_GROUPS else None
        print_tables([{"title": "Groups", "columns": ["group", "size", "ranks"], "rows": rows, "note": note}])
    if trace.left_out:
        rows = [[kind, f"{count:,}"] for kind, count in trace.left_out.items()]
        print_tables([{"title": "Cannot be played, and is left out", "columns": ["what", "how many"], "rows": rows}])
    for note in trace.notes:
        OUT.print(f"note: {note}", soft_wrap=True)
    for fault in faults:
        OUT.print(f"cannot be played: {fault}", soft_wrap=True)


def _listed(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_RANKS]))
    return f"{shown}, ..." if len(ranks) > _MOST_RANKS else shown


def _counts_table(trace: Trace, per_rank: list[dict[str, KindCount]]) -> dict[str, object]:
    from fabric.units import format_time
    from traffic.work.formats.counts import kinds

    times = trace.ranks if len(per_rank) == 1 else 1
    rows = []
    for kind in kinds(per_rank):
        of_kind = [one[kind] for one in per_rank if kind in one]
        counts = [one[kind].operations if kind in one else 0 for one in per_rank]
        sizes = [one[kind].size_bytes if kind in one else 0 for one in per_rank]
        took = max(one.duration_s for one in of_kind)
        measured = max(one.measured_s for one in of_kind)
        flops = max(one.flops for one in of_kind)
        rows.append(
            [
                kind,
                _range(counts),
                f"{sum(counts) * times:,}",
                _range(sizes) if max(sizes) else "-",
                format_time(took) if took else "-",
                f"{flops:.4g}" if flops else "-",
                format_time(measured) if measured else "-",
            ]
        )
    columns = ["kind", "per rank", "in all", "bytes per rank", "computing", "FLOP without a time", "where captured"]
    note = "times, summed over streams, FLOPs: of the rank with most; sizes of collectives by nccl-tests' convention"
    return {"title": "Operations", "columns": columns, "rows": rows, "note": note}


def _range(values: list[int]) -> str:
    return f"{values[0]:,}" if len(set(values)) == 1 else f"{min(values):,} to {max(values):,}"


def write_trace(options: argparse.Namespace, _: list[str]) -> int:
    """Write a trace in another format."""
    from traffic.work.formats.chakra_writing import write_chakra
    from traffic.work.formats.goal_writing import write_goal
    from traffic.work.formats.lowering import lowered

    traces = traces_of(options.traces, asked_of(options))
    if len(traces) != 1:
        raise UsageError(f"trace write: {len(traces)} traces, and one is written at a time; name the files of one")
    graph = traces[0].graph()
    if options.format == "goal":
        write_whole(options.out, write_goal(lowered(graph)).encode())
        tell(f"goal: {options.out}")
        return 0
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"{options.out}: cannot be made a folder ({error.strerror})"
        raise UsageError(f"{what}; name another with --out") from error
    for rank, data in enumerate(write_chakra(graph)):
        write_whole(options.out / f"{rank}.et", data)
    tell(f"chakra: {graph.ranks} files in {options.out}")
    return 0
