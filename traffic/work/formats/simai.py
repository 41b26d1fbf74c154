"""SimAI's workload files, which AICB writes, too: a table of layers, what each computes and which collectives it calls.

A row: name, an unused number, then for forward, input gradient and weight gradient the nanoseconds of computing, a
collective and its size, then an update time. All ranks do the same. SimAI's loop (``Workload.cc``) plays all rows
forward, then from the last to the first input gradient and weight gradient; only weight gradients' collectives overlap
with what follows. Sizes are totals, of all-gathers, too. A plain collective is of the tensor parallel group, that of a
weight gradient of the data parallel one; ``_EP`` and ``_DP_EP`` say another. ``DATA`` has collectives of weight
gradients only, and ``MICRO`` has nothing else: one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabric.errors import ConfigError
from traffic.work.formats import names
from traffic.work.formats.layout import Layout
from traffic.work.formats.trace import MOST_RANKS, Asked, Program, Trace, TraceFile
from traffic.work.formats.values import WHOLE, first_of, seconds, shown, size_bytes, text_of, whole
from traffic.work.graph import RankWork
from traffic.work.operations import CollectiveCall, Compute

FORMAT = "SimAI"
NANOSECOND_S = 1e-9
_MICRO, _DATA = "MICRO", "DATA"
_POLICIES = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER", _DATA, _MICRO)
_OTHER_POLICIES = ("MODEL", "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED", "HYBRID_DATA_MODEL",
                   "HYBRID_MODEL_DATA", "HYBRID_CUSTOMIZED", "DISTRIBUTED_INFERENCE")  # fmt: skip
_COLUMNS = 12
_TP, _EP, _DP, _DP_EP, _PP = "tp", "ep", "dp", "dp_ep", "pp"
_KINDS = {"": "", "EP": _EP, "DP_EP": _DP_EP, "DP": _DP, "TP": _TP}
_COLLECTIVES = {
    "ALLREDUCE": names.ALLREDUCE, "ALLGATHER": names.ALL_GATHER, "REDUCESCATTER": names.REDUCE_SCATTER,
    "ALLTOALL": names.ALL_TO_ALL, "BROADCAST": names.BROADCAST,
}  # fmt: skip
_COMPUTE = "compute"


@dataclass(frozen=True)
class _Part:
    """A third of a row: what is computed, and the collective behind it, on a kind of group."""

    duration_s: float
    collective: str
    kind: str
    size_bytes: int


@dataclass(frozen=True)
class _Row:
    name: str
    forward: _Part
    input_gradient: _Part
    weight_gradient: _Part


@dataclass
class _Header:
    """The numbers of the first line by their names, and layers at which activations are kept or computed again."""

    policy: str
    numbers: dict[str, int] = field(default_factory=dict)
    kept: tuple[int, ...] = ()
    again: tuple[int, ...] = ()


def is_workload(words: Sequence[str]) -> bool:
    """Whether a text that begins with these words is a workload of SimAI, or of ASTRA-sim 1, whose format it is."""
    return bool(words) and words[0] in (*_POLICIES, *_OTHER_POLICIES)


def read_simai(file: TraceFile, asked: Asked) -> Trace:
    """Return the graph of a workload. Raises ConfigError with the lines that cannot be read."""
    lines = text_of(file).splitlines()
    left_out: Counter[str] = Counter()
    try:
        header = _header(lines[0].split())
        layout, notes = _layout(header, asked)
    except ValueError as error:
        raise ConfigError(file.name, [f"line 1: {error}"]) from None
    rows = _rows(file.name, lines, left_out)
    if pipeline := header.numbers.get("pp_comm", 0):
        left_out[f"messages between pipeline stages (pp_comm {pipeline:,} B): no row says when"] += 1
    layers = (*header.kept, *header.again)
    if layers and (wrong := [one for one in layers if one >= len(rows)]):
        raise ConfigError(file.name, [f"line 1: checkpoint at layer {wrong[0]}, and there are {len(rows)} rows"])
    return Trace(
        file.name,
        FORMAT,
        layout.ranks,
        lambda rank: _program(rows, header, layout, rank),
        layout.groups(_kinds_used(rows)),
        alike=True,
        left_out=dict(left_out),
        notes=tuple(notes),
    )


def _header(words: Sequence[str]) -> _Header:
    if words[0] not in _POLICIES:
        raise ValueError(f"{words[0]}: only {', '.join(_POLICIES)} can be played; write the workload as one of them")
    found = _Header(words[0])
    place = 1
    while place < len(words):
        name, place = words[place].removesuffix(":"), place + 1
        numbers = []
        while place < len(words) and words[place].lstrip("-").isdigit():
            numbers.append(whole(words[place], name, 0, 10**15))
            place += 1
        if not numbers:
            raise ValueError(f"{shown(name)}: is followed by no number")
        if name in ("checkpoints", "checkpoint_initiates"):
            if numbers[0] != len(numbers) - 1:
                raise ValueError(f"{name}: says {numbers[0]}, and {len(numbers) - 1} layers follow")
            found.kept, found.again = (
                (tuple(numbers[1:]), found.again) if name == "checkpoints" else (found.kept, tuple(numbers[1:]))
            )
        else:
            found.numbers[name] = numbers[0]
    return found


def _layout(header: _Header, asked: Asked) -> tuple[Layout, list[str]]:
    """Return the layout of the ranks that play, and what to say of it."""
    tp, ep, pp = (
        whole(header.numbers.get(name, 1), name, 1, MOST_RANKS) for name in ("model_parallel_NPU_group", "ep", "pp")
    )
    said = header.numbers.get("all_gpus")
    notes = []
    ranks = asked.ranks
    if ranks is not None and pp > 1:
        notes.append(f"the {ranks:,} ranks are of one of the {pp} pipeline stages; the rows are")
        pp = 1
    if ranks is None:
        ranks = said if said else tp * ep * pp
        if not said:
            notes.append(f"the file does not say how many GPUs there are: {ranks:,}, the least; say --ranks for more")
    least = tp * ep * pp
    if ranks % least or not 1 <= ranks <= MOST_RANKS:
        what = f"{ranks:,} ranks: tensor parallel {tp}, expert parallel {ep}, {pp} stages need a multiple of {least:,}"
        raise ValueError(f"{what}; say --ranks {max(least, ranks // least * least):,}")
    axes = {_TP: tp, _EP: ep, _DP_EP: ranks // least, _PP: pp}
    kinds: Mapping[str, Sequence[str]] = {_TP: (_TP,), _EP: (_EP,), _DP: (_EP, _DP_EP), _DP_EP: (_DP_EP,)}
    return Layout(axes, kinds), notes


def _rows(source: str, lines: Sequence[str], left_out: Counter[str]) -> list[_Row]:
    faults: list[str] = []
    found: list[_Row] = []
    count = None
    for number, line in enumerate(lines[1:], 2):
        words = line.split()
        if not words:
            continue
        try:
            if count is None:
                count = whole(words[0], "how many rows there are", 1, 10**9)
            else:
                found.append(_row(words, left_out))
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    if count is None:
        faults.append("line 2: says how many rows follow; it is missing")
    elif len(found) + len(faults) != count:
        there = len(found) + len(faults)
        faults.insert(0, f"line 2: says {count:,} rows, and {there:,} follow{WHOLE if there < count else ''}")
    if faults:
        raise ConfigError(source, first_of(faults))
    return found


def _row(words: Sequence[str], left_out: Counter[str]) -> _Row:
    if len(words) != _COLUMNS:
        raise ValueError(f"{shown(' '.join(words))}: has {len(words)} columns, and rows have {_COLUMNS}")
    parts = [
        _part(words[place : place + 3], kind, left_out)
        for place, kind in ((2, _TP), (5, _TP), (8, _DP))
    ]  # fmt: skip
    if whole(words[11], "update time", 0, 10**15):
        left_out["update times of weights, for which SimAI's unit depends on the size"] += 1
    return _Row(words[0], *parts)


def _part(words: Sequence[str], plain: str, left_out: Counter[str]) -> _Part:
    duration_s = seconds(whole(words[0], "computing", 0, 10**15), NANOSECOND_S, "computing")
    size = size_bytes(words[2])
    name, _, suffix = words[1].partition("_")
    if words[1] == "NONE":
        return _Part(duration_s, "", plain, 0)
    if name not in _COLLECTIVES or suffix not in _KINDS:
        known = f"{', '.join(_COLLECTIVES)}, alone or with _EP or _DP_EP, and NONE"
        raise ValueError(f"{shown(words[1])}: cannot be played; the collectives that can be are {known}")
    if size == 0:
        left_out[f"collectives of 0 bytes ({words[1]}), which send nothing"] += 1
        return _Part(duration_s, "", plain, 0)
    return _Part(duration_s, _COLLECTIVES[name], _KINDS[suffix] or plain, size)


def _kinds_used(rows: Sequence[_Row]) -> list[str]:
    return sorted(
        {
            part.kind
            for row in rows
            for part in (row.forward, row.input_gradient, row.weight_gradient)
            if part.collective
        }
    )


def _program(rows: Sequence[_Row], header: _Header, layout: Layout, rank: int) -> Program:
    work = RankWork()
    last: int | None = None
    for row, what, part, blocks in _in_order(rows, header):
        after = () if last is None else (last,)
        if part.duration_s:
            last = work.add(
                Compute(duration_s=part.duration_s, name=f"{row.name} {what}", stream=_COMPUTE, after=after)
            )
            after = (last,)
        if part.collective:
            group = layout.group_of(rank, part.kind)
            called = work.add(
                CollectiveCall(
                    collective=part.collective, size_bytes=part.size_bytes, group=group, name=f"{row.name} {what}",
                    stream=f"communication {part.kind}", after=after, dtype=names.type_for(part.size_bytes),
                )
            )  # fmt: skip
            last = called if blocks else last
    return tuple(work.operations)


def _in_order(rows: Sequence[_Row], header: _Header) -> Iterator[tuple[_Row, str, _Part, bool]]:
    """Yield what a step does, in order: a row, what of it, that part, and whether what follows waits for its end."""
    if header.policy == _MICRO:
        for row in rows:
            yield row, "alone", row.weight_gradient, True
        return
    if header.policy == _DATA:
        for row in rows:
            yield row, "forward", replace(row.forward, collective=""), True
        for row in reversed(rows):
            yield row, "weight gradient", row.weight_gradient, False
            yield row, "input gradient", replace(row.input_gradient, collective=""), True
        return
    for row in rows:
        yield row, "forward", row.forward, True
    for place in range(len(rows) - 1, -1, -1):
        if place in header.again:
            begin = max((one for one in header.kept if one <= place), default=0)
            for row in rows[begin:place]:
                yield row, "forward again", row.forward, True
        yield rows[place], "input gradient", rows[place].input_gradient, True
        yield rows[place], "weight gradient", rows[place].weight_gradient, False
