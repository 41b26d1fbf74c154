"""AICB's physical workloads: a CSV with a row per call of a collective, of ranks that all do the same. Reader.

Columns are known by their names. A line in front of these may say which ranks do so, ``[rank0 ~ rank127]``; with
several stages of a pipeline there are several such parts. Sizes are totals, of all-gathers, too; ``count`` repeats a
row. Rows are in order, and each waits for the one before it, but for messages next to each other, which go at once.

Times are nanoseconds of computing in a workload, and milliseconds in the log of one that was run, in which collectives
have times, too: these are kept to compare with.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats import names
from traffic.work.formats.layout import Layout
from traffic.work.formats.trace import MOST_OPERATIONS, MOST_RANKS, Asked, Program, Trace, TraceFile
from traffic.work.formats.values import WHOLE, first_of, seconds, shown, size_bytes, text_of, whole
from traffic.work.graph import ALL_RANKS, RankWork
from traffic.work.operations import CollectiveCall, Compute, Receive, Send

FORMAT = "AICB"
NANOSECOND_S, MILLISECOND_S = 1e-9, 1e-3
NEEDED = ("comm_type", "comm_group", "msg_size")
_RANKS = re.compile(r"rank\s*(\d{1,9})")
_TO = "~"
_ALL, _EMBEDDING = "all", "embedding_group"
_AXES: Mapping[str, tuple[str, ...]] = {
    "tp_group": ("tp",), "dp_group": ("ep", "dp_ep"), "pp_group": ("pp",), "ep_group": ("ep",),
    "ep_dp_group": ("dp_ep",), "ep_tp_group": ("tp", "ep"),
}  # fmt: skip
_NONE = ("", "None", "none", "nan")
_STEPS = {"next": 1, "prev": -1}


@dataclass(frozen=True)
class _Row:
    """A row: ``collective`` "" if it computes; ``time``: how long it took, as written, in the unit of the file;
    ``step``: of a message, to or from which stage."""

    stage: str
    collective: str
    kind: str
    size_bytes: int
    root: int
    count: int
    time: str = ""
    step: int = 0


@dataclass
class _Part:
    """The rows of some ranks; none are said of the only part of a file that does not say it."""

    ranks: tuple[int, ...] = ()
    rows: list[_Row] = field(default_factory=list)


@dataclass
class _File:
    """What is read: parts, the sizes of kinds of groups, what is left out, and what is wrong."""

    parts: list[_Part] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    is_log: bool = False
    faults: list[str] = field(default_factory=list)


def read_aicb(file: TraceFile, asked: Asked) -> Trace:
    """Return the graph of a workload. Raises ConfigError with the lines that cannot be read."""
    found = _read(file)
    _leave_out_lonely_calls(found)
    rows = [row for part in found.parts for row in part.rows]
    if not found.faults and not rows:
        found.faults.append("has no row that can be played")
    if (many := sum(row.count for row in rows)) > MOST_OPERATIONS:
        found.faults.append(f"count: rows are {many:,} calls together, and {MOST_OPERATIONS:,} fit into memory")
    if found.faults:
        raise ConfigError(file.name, first_of(found.faults))
    alike = len(found.parts) == 1
    try:
        layout, notes = _layout(found, asked)
        part_of = _parts_by_rank(found, layout)
    except ValueError as error:
        raise ConfigError(file.name, [str(error)]) from None
    if alike and (messages := sum(row.count for row in rows if row.step)):
        what = "messages between pipeline stages (isend, irecv): the file has the rows of one stage"
        found.left_out[what] += messages
        found.parts[0].rows = [row for row in rows if not row.step]
    groups = layout.groups(sorted({row.kind for row in rows if row.kind in _AXES and row.collective and not row.step}))
    if any(row.kind == _EMBEDDING for row in rows):
        groups |= {_embedding(layout, rank)[0]: _embedding(layout, rank)[1] for rank in range(layout.ranks)}
    return Trace(
        file.name,
        FORMAT,
        layout.ranks,
        lambda rank: _program(part_of(rank).rows, layout, rank, found.is_log),
        groups,
        alike,
        dict(found.left_out),
        tuple(notes),
    )


def _read(file: TraceFile) -> _File:
    found = _File()
    said: tuple[int, ...] = ()
    columns: list[str] = []
    csv.field_size_limit(2**31 - 1)
    for number, line in enumerate(text_of(file).splitlines(), 1):
        try:
            if line.lstrip().startswith("["):
                said = _ranks_said(line)
            elif _is_header(line):
                columns = [word.strip() for word in line.split(",")]
                found.parts.append(_Part(said))
                said = ()
            elif line.strip() and found.parts:
                row = _row(_by_column(columns, next(csv.reader([line]))), found)
                if row is not None:
                    found.parts[-1].rows.append(row)
        except (ValueError, csv.Error) as error:
            found.faults.append(f"line {number}: {error}")
    if not found.parts:
        found.faults.append(f"has no line with the columns {', '.join(NEEDED)}")
    return found


def _by_column(columns: Sequence[str], values: list[str]) -> dict[str, str]:
    """Return the values of a line by columns. Sizes of computing are tuples, whose commas nobody quotes. Raises
    ValueError for a line that ends too early."""
    at, more = columns.index("msg_size"), len(values) - len(columns)
    if more < 0:
        raise ValueError(f"has {len(values)} columns, and there are {len(columns)}{WHOLE}")
    if more > 0:
        values = [*values[:at], ",".join(values[at : at + more + 1]), *values[at + more + 1 :]]
    return dict(zip(columns, values, strict=False))


def _leave_out_lonely_calls(found: _File) -> None:
    """Leave out calls of the group of the first and the last stage that one of them makes and the other does not."""
    both = [sum(row.kind == _EMBEDDING for row in part.rows) for part in (found.parts[:1] + found.parts[1:][-1:])]
    most = min(both) if len(both) == 2 else 0
    for number, part in enumerate(found.parts):
        kept = most if number in (0, len(found.parts) - 1) else 0
        rows = []
        for row in part.rows:
            kept -= row.kind == _EMBEDDING
            if row.kind == _EMBEDDING and kept < 0:
                found.left_out[f"calls of {_EMBEDDING} that not both the first and the last stage make"] += row.count
            else:
                rows.append(row)
        part.rows = rows


def _ranks_said(line: str) -> tuple[int, ...]:
    numbers = [int(one) for one in _RANKS.findall(line)]
    if _TO in line and len(numbers) == 2:
        if not 0 <= numbers[1] - numbers[0] < MOST_RANKS:
            raise ValueError(f"{shown(line)}: must be {MOST_RANKS:,} ranks at most")
        return tuple(range(numbers[0], numbers[1] + 1))
    return tuple(numbers)


def _is_header(line: str) -> bool:
    return set(NEEDED) <= {word.strip() for word in line.split(",")}


def is_workload(lines: Sequence[str]) -> bool:
    """Whether a text that begins with these lines is a workload of AICB."""
    return any(_is_header(line) for line in lines[:10])


def _row(entries: Mapping[str, Any], found: _File) -> _Row | None:
    spelled = str(entries.get("comm_type") or "").strip()
    kind = str(entries.get("comm_group") or "").strip().removeprefix("CommGroup.")
    stage = str(entries.get("stage") or "")
    count = _number(entries.get("count"), "count", 1)
    name = spelled.removeprefix("CommType.")
    took = str(entries.get("_elapsed_time") or "").strip()
    took = "" if took in _NONE else took
    seconds(took or 0, NANOSECOND_S, "_elapsed_time")  # Which is checked here.
    if name == "computation":
        if not took:
            found.left_out["computing without a time"] += count
            return None
        return _Row(stage, "", kind, 0, 0, count, took)
    collective = names.collective_named(spelled)
    if collective is None or collective in (names.WAIT, names.INIT, names.SEND_RECEIVE, names.RECEIVE_ANY):
        if not spelled:
            raise ValueError(f"{shown(str(dict(entries)))}: has no comm_type")
        found.left_out[f"rows of type {shown(name)}"] += count
        return None
    total = 0 if collective == names.BARRIER else size_bytes(_number(entries.get("msg_size"), "msg_size", 0))
    if collective in (names.SEND, names.RECEIVE):
        way = str(entries.get("additional") or "").rpartition("_")[2]
        if way not in _STEPS:
            raise ValueError(f"additional {shown(way)}: a message is to or from next or prev, as send_next")
        return _Row(stage, collective, kind, total, 0, count, step=_STEPS[way])
    found.is_log = found.is_log or bool(took)
    if kind not in (*_AXES, _ALL, _EMBEDDING):
        raise ValueError(f"comm_group {shown(kind)}: is not one of {', '.join((*_AXES, _ALL, _EMBEDDING))}")
    size = _number(entries.get("comm_group_size"), "comm_group_size", 0)
    if size and kind in _AXES and found.sizes.setdefault(kind, size) != size:
        raise ValueError(f"comm_group_size {size}: {kind} has {found.sizes[kind]} ranks in rows above; keep one size")
    collective = names.ALL_TO_ALL if collective == names.ALL_TO_ALL_V else collective
    return _Row(stage, collective, kind, total, _number(entries.get("src"), "src", 0), count, took)


def _number(text: Any, what: str, default: int) -> int:
    found = str(text if text is not None else "").strip()
    if found in _NONE:
        return default
    return whole(found.removesuffix(".0"), what, 0, 10**15)


def _layout(found: _File, asked: Asked) -> tuple[Layout, list[str]]:
    """Return the layout of the ranks that play, and what to say of it. Raises ValueError."""
    sizes = {kind: found.sizes.get(f"{kind}_group") for kind in ("tp", "pp", "ep", "dp")}
    said = sum(len(part.ranks) for part in found.parts) or None
    if len(found.parts) > 1 and asked.ranks not in (None, said):
        raise ValueError(f"says what each of {said} ranks does, and {asked.ranks} are asked for; leave --ranks out")
    tp, ep = sizes["tp"] or 1, sizes["ep"] or 1
    pp = sizes["pp"] or len(found.parts)
    least = tp * pp * ep
    ranks = asked.ranks or said or tp * pp * max(sizes["dp"] or ep, ep)
    if not 1 <= ranks <= MOST_RANKS or ranks % least:
        what = f"{ranks:,} ranks: tensor parallel {tp}, expert parallel {ep}, {pp} stages need a multiple of {least:,}"
        raise ValueError(f"{what}; say --ranks {max(least, min(ranks, MOST_RANKS) // least * least)}")
    notes = [] if said in (None, ranks) else [f"the file is of {said:,} ranks"]
    if ranks == 1:
        notes.append("the file does not say how many ranks there are; say --ranks N")
    return Layout({"tp": tp, "ep": ep, "dp_ep": ranks // least, "pp": pp}, _AXES), notes


def _parts_by_rank(found: _File, layout: Layout) -> Any:
    """Return (rank) -> its part. Raises ValueError if a rank has none, or several."""
    if len(found.parts) == 1:
        return lambda rank: found.parts[0]
    parts = {rank: part for part in found.parts for rank in part.ranks}
    if sorted(rank for part in found.parts for rank in part.ranks) != list(range(layout.ranks)):
        raise ValueError(
            f"its {len(found.parts)} parts do not say once for each of ranks 0 to {layout.ranks - 1} what it does"
        )
    return parts.__getitem__


def _embedding(layout: Layout, rank: int) -> tuple[str, tuple[int, ...]]:
    """Return the group of the first and the last stage, which share the embedding, that goes with a rank."""
    name = layout.group_of(rank, "pp_group")
    first = int(name.rpartition(" ")[2])
    stages = layout.axes["pp"]
    last = first + (stages - 1) * (layout.ranks // stages)
    return f"{_EMBEDDING} {first}", (first,) if last == first else (first, last)


def _program(rows: Sequence[_Row], layout: Layout, rank: int, is_log: bool) -> Program:
    work = RankWork()
    after: tuple[int, ...] = ()
    at_once: list[int] = []
    for row in rows:
        for _ in range(row.count):
            if row.step:
                at_once.append(work.add(_message(row, layout, rank, after)))
                continue
            if at_once:
                after, at_once = tuple(at_once), []
            if not row.collective:
                duration_s = seconds(row.time, MILLISECOND_S if is_log else NANOSECOND_S, "_elapsed_time")
                made = work.add(Compute(duration_s=duration_s, name=row.stage, stream="compute", after=after))
            else:
                made = work.add(_call(row, layout, rank, after))
            after = (made,)
    return tuple(work.operations)


def _message(row: _Row, layout: Layout, rank: int, after: tuple[int, ...]) -> Send | Receive:
    stride = layout.ranks // layout.axes["pp"]
    peer = (rank + row.step * stride) % layout.ranks
    sends = row.collective == names.SEND
    # What goes to the next stage has another tag than what comes back.
    tag = int((row.step > 0) != sends)
    return (Send if sends else Receive)(peer=peer, size_bytes=row.size_bytes, tag=tag, name=row.stage, after=after)


def _measured_s(row: _Row) -> float | None:
    return seconds(row.time, MILLISECOND_S, "_elapsed_time") if row.time else None


def _call(row: _Row, layout: Layout, rank: int, after: tuple[int, ...]) -> CollectiveCall:
    if row.kind == _EMBEDDING:
        group, members = _embedding(layout, rank)
        ranks = len(members)
    elif row.kind == _ALL:
        group, ranks = ALL_RANKS, layout.ranks
    else:
        group, ranks = layout.group_of(rank, row.kind), layout.size(row.kind)
    return CollectiveCall(
        collective=row.collective, size_bytes=row.size_bytes, group=group, name=row.stage, after=after,
        root=row.root if row.root < ranks else 0, stream=f"communication {row.kind}",
        dtype=names.type_for(row.size_bytes), measured_s=_measured_s(row),
    )  # fmt: skip
