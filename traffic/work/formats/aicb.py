"""AICB's physical workloads: a CSV with a row per call of a collective, of one rank, the same for all. Reader.

Columns are known by their names. A first line of its own may say which ranks there are, ``[rank0 ~ rank127]``. Sizes
are totals, of all-gathers, too; ``count`` repeats a row. Rows are in order, and each waits for the one before it, as
AICB plays them.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats import names
from traffic.work.formats.layout import Layout
from traffic.work.formats.trace import MOST_OPERATIONS, MOST_RANKS, Asked, Program, Trace, TraceFile
from traffic.work.formats.values import first_of, seconds, shown, size_bytes, text_of, whole
from traffic.work.graph import ALL_RANKS, RankWork
from traffic.work.operations import CollectiveCall, Compute

FORMAT = "AICB"
MILLISECOND_S = 1e-3
NEEDED = ("comm_type", "comm_group", "comm_group_size", "msg_size")
_RANKS = re.compile(r"\[\s*rank\s*(\d+)\s*~\s*rank\s*(\d+)\s*\]")
_AXES = {
    "all": None, "tp_group": ("tp",), "dp_group": ("ep", "dp_ep"), "pp_group": ("pp",), "ep_group": ("ep",),
    "ep_dp_group": ("dp_ep",), "ep_tp_group": ("tp", "ep"),
}  # fmt: skip
_NONE = ("", "None", "none", "nan")


@dataclass(frozen=True)
class _Row:
    """A row: ``collective`` "" if it computes for ``duration_s``."""

    stage: str
    collective: str
    kind: str
    size_bytes: int
    root: int
    count: int
    duration_s: float = 0.0


def read_aicb(file: TraceFile, asked: Asked) -> Trace:
    """Return the graph of a workload. Raises ConfigError with the lines that cannot be read."""
    said, first, table = _table(file)
    left_out: Counter[str] = Counter()
    rows: list[_Row] = []
    sizes: dict[str, int] = {}
    faults: list[str] = []
    for number, entries in enumerate(table, first):
        try:
            if (row := _row(entries, left_out, sizes)) is not None:
                rows.append(row)
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    if faults:
        raise ConfigError(file.name, first_of(faults))
    if not rows:
        raise ConfigError(file.name, ["has no row that can be played; is the file whole?"])
    if (many := sum(row.count for row in rows)) > MOST_OPERATIONS:
        raise ConfigError(
            file.name, [f"count: rows are {many:,} calls together, and {MOST_OPERATIONS:,} fit into memory"]
        )
    try:
        layout = _layout(sizes, said, asked)
    except ValueError as error:
        raise ConfigError(file.name, [str(error)]) from None
    notes = () if said is None or layout.ranks == said else (f"the file is of {said:,} ranks",)
    used = sorted({row.kind for row in rows if row.collective and row.kind != "all"})
    return Trace(
        file.name,
        FORMAT,
        layout.ranks,
        lambda rank: _program(rows, layout, rank),
        layout.groups(used),
        alike=True,
        left_out=dict(left_out),
        notes=notes,
    )


def _table(file: TraceFile) -> tuple[int | None, int, Sequence[Mapping[str, Any]]]:
    """Return how many ranks the file says there are, the line of its first row, and its rows by columns."""
    lines = text_of(file).splitlines()
    header = next((place for place, line in enumerate(lines) if _is_header(line)), None)
    if header is None:
        raise ConfigError(file.name, [f"has no line with the columns {', '.join(NEEDED)}"])
    said = None
    for line in lines[:header]:
        if match := _RANKS.search(line):
            said = int(match.group(2)[:9]) - int(match.group(1)[:9]) + 1
    csv.field_size_limit(2**31 - 1)
    try:
        return said, header + 2, list(csv.DictReader(lines[header:]))
    except csv.Error as error:
        raise ConfigError(file.name, [f"is no CSV: {error}"]) from None


def _is_header(line: str) -> bool:
    return set(NEEDED) <= {word.strip() for word in line.split(",")}


def is_workload(lines: Sequence[str]) -> bool:
    """Whether a text that begins with these lines is a workload of AICB."""
    return any(_is_header(line) for line in lines[:10])


def _row(entries: Mapping[str, Any], left_out: Counter[str], sizes: dict[str, int]) -> _Row | None:
    spelled = str(entries.get("comm_type") or "").strip()
    kind = str(entries.get("comm_group") or "").strip().removeprefix("CommGroup.")
    stage = str(entries.get("stage") or "")
    count = _number(entries.get("count"), "count", 1)
    name = spelled.removeprefix("CommType.")
    if name == "computation":
        took = str(entries.get("_elapsed_time") or "").strip()
        if took in _NONE:
            left_out["computing without a time"] += count
            return None
        return _Row(stage, "", kind, 0, 0, count, seconds(took, MILLISECOND_S, "_elapsed_time"))
    collective = names.collective_named(spelled)
    if collective in (names.SEND, names.RECEIVE):
        left_out["messages between pipeline stages (isend, irecv): rows are those of one stage"] += count
        return None
    if collective is None or collective in (names.WAIT, names.INIT, names.SEND_RECEIVE, names.RECEIVE_ANY):
        if not spelled:
            raise ValueError(f"{shown(str(dict(entries)))}: has no comm_type")
        left_out[f"rows of type {shown(name)}"] += count
        return None
    if kind not in _AXES:
        raise ValueError(f"comm_group {shown(kind)}: is none of {', '.join(_AXES)}")
    size = _number(entries.get("comm_group_size"), "comm_group_size", 1)
    if kind != "all" and sizes.setdefault(kind, size) != size:
        raise ValueError(
            f"comm_group_size {size}: {kind} has {sizes[kind]} ranks in rows above; groups keep their size"
        )
    collective = names.ALL_TO_ALL if collective == names.ALL_TO_ALL_V else collective
    total = 0 if collective == names.BARRIER else size_bytes(float(_number(entries.get("msg_size"), "msg_size", 0)))
    root = _number(entries.get("src"), "src", 0)
    return _Row(stage, collective, kind, total, root, count)


def _number(text: Any, what: str, default: int) -> int:
    found = str(text if text is not None else "").strip()
    if found in _NONE:
        return default
    return whole(found.removesuffix(".0"), what, 0, 10**15)


def _layout(sizes: Mapping[str, int], said: int | None, asked: Asked) -> Layout:
    tp, pp, ep = (sizes.get(f"{kind}_group", 1) for kind in ("tp", "pp", "ep"))
    least = tp * pp * ep
    dp = sizes.get("dp_group", ep * sizes.get("ep_dp_group", 1))
    ranks = asked.ranks if asked.ranks is not None else said if said is not None else tp * pp * max(dp, ep)
    if not 1 <= ranks <= MOST_RANKS or ranks % least:
        what = f"{ranks:,} ranks: tensor parallel {tp}, expert parallel {ep}, {pp} stages need a multiple of {least:,}"
        raise ValueError(f"{what}; say --ranks {max(least, min(ranks, MOST_RANKS) // least * least)}")
    axes = {"tp": tp, "ep": ep, "dp_ep": ranks // least, "pp": pp}
    return Layout(axes, {kind: of for kind, of in _AXES.items() if of is not None})


def _program(rows: Sequence[_Row], layout: Layout, rank: int) -> Program:
    work = RankWork()
    after: tuple[int, ...] = ()
    for row in rows:
        for _ in range(row.count):
            if not row.collective:
                made = work.add(Compute(duration_s=row.duration_s, name=row.stage, stream="compute", after=after))
            else:
                group = ALL_RANKS if row.kind == "all" else layout.group_of(rank, row.kind)
                ranks = layout.ranks if row.kind == "all" else layout.size(row.kind)
                call = CollectiveCall(
                    collective=row.collective, size_bytes=row.size_bytes, group=group, name=row.stage, after=after,
                    root=row.root if row.root < ranks else 0, stream=f"communication {row.kind}",
                    dtype=names.type_for(row.size_bytes),
                )  # fmt: skip
                made = work.add(call)
            after = (made,)
    return tuple(work.operations)
