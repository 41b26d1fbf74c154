"""PyTorch's execution traces: which communication one rank called for, in JSON, one file per rank. Reader.

Schemas 1.0.1 (flat nodes: ``inputs``, ``parent``) and 1.0.2 to 1.1.1 (``inputs.values``, ``ctrl_deps``, ``attrs``).
Communication is ``record_param_comms``: ``c10d::...`` above it and ``nccl:...`` below it are the same call on other
levels. Its inputs are a tensor, if it has one, a request, a process group, a rank, the name, and two lists of
splits, whatever else stands behind them. Only NCCL writes it: of gloo and others, ``c10d::...`` is the call
(:mod:`traffic.work.formats.pytorch_dispatched`). Operators have no time of their own here, so that none is played.

A collective is issued without waiting for its end; ``wait`` holds the host back, and so all that it issues later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats import names
from traffic.work.formats.group_table import (
    ONE_RANKS_MESSAGES,
    DescribedGroups,
    GroupTable,
    one_name_each,
    ranks_in,
    with_users,
)
from traffic.work.formats.pytorch_dispatched import ALONE, COMMUNICATION, Dispatched
from traffic.work.formats.pytorch_nodes import (
    Call,
    attributes_of,
    elements_of,
    in_elements,
    splits_of,
    type_of,
    values_of,
)
from traffic.work.formats.sizes import of_inputs
from traffic.work.formats.trace import Asked, Program, Trace, TraceFile, ranks_of
from traffic.work.formats.values import first_of, mapping, shown, size_bytes, whole
from traffic.work.graph import ALL_RANKS
from traffic.work.operations import ANY, HOST, CollectiveCall, Compute, Operation, Receive, Send

FORMAT = "PyTorch execution trace"
_GROUPS = "process_group:init"
_ROOTED = (names.BROADCAST, names.REDUCE, names.GATHER, names.SCATTER)
_NO_GROUP = "calls over gloo and the like, which do not say which of several process groups they belong to"


@dataclass
class _File:
    """A file that was read: calls in order, groups that it says, how many ranks there are, and what else is in it."""

    name: str
    calls: list[Call] = field(default_factory=list)
    groups: DescribedGroups = field(default_factory=DescribedGroups)
    ranks: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)


def is_trace(part: Any) -> bool:
    """Whether a JSON document is a trace of PyTorch."""
    return isinstance(part, dict) and isinstance(part.get("nodes"), list) and "schema" in part


def read_pytorch(files: Sequence[tuple[TraceFile, Mapping[str, Any]]], asked: Asked) -> Trace:
    """Return the graph of a trace, files with their JSON in the order of ranks. Raises ConfigError."""
    read = [_read(file, document) for file, document in files]
    source = read[0].name
    said, means = one_name_each([_groups_of(one) for one in read])
    if len(read) > 1 and asked.ranks not in (None, len(read)):
        what = f"are {len(read)} files, one per rank, and {asked.ranks} ranks are asked for"
        raise ConfigError(source, [f"{what}; leave --ranks out, or give one rank's file to be copied"])
    groups = with_users(asked, said)
    ranks = ranks_of(asked, read[0].ranks or ranks_in(groups), source) if len(read) == 1 else len(read)
    table = GroupTable(source, ranks, groups, single=len(read) == 1)
    programs = [_program(one, rank, table, means[rank]) for rank, one in enumerate(read)]
    left_out = sum((one.left_out for one in read), Counter[str]())
    program = table.for_all(programs, left_out)
    copied = table.alike
    return Trace(source, FORMAT, ranks, program, table.groups, copied, dict(left_out), is_copied=copied)


def _groups_of(file: _File) -> dict[str, tuple[int, ...]]:
    """Return the ranks of the groups that a file's calls name, where it says them; empty for all.

    A group without a description is that of all ranks, if it is the only one: older traces name it by a number of the
    process.
    """
    named = [(call.group, call) for call in file.calls if call.collective != names.WAIT and call.group is not None]
    found = {group: file.groups.ranks[group] for group, _ in named if group in file.groups.ranks}
    found |= {group: call.ranks for group, call in named if call.ranks and group not in found}
    unknown = {group for group, _ in named} - set(found)
    return found | (dict.fromkeys([ALL_RANKS], ()) if len(unknown) == 1 else {})


def _read(file: TraceFile, document: Mapping[str, Any]) -> _File:
    found = _File(file.name)
    faults: list[str] = []
    calls: list[Call] = []
    dispatched = Dispatched(document["nodes"])
    for number, node in enumerate(document["nodes"]):
        try:
            entries = mapping(node, "a node")
            name = str(entries.get("name", ""))
            if name == COMMUNICATION:
                calls += _call(entries, found.left_out)
            elif more := dispatched.calls(entries):
                calls += more
            elif dispatched.is_alone(entries):
                found.left_out[ALONE] += 1
            elif _GROUPS in name:
                for text in values_of(entries, "inputs"):
                    found.groups.read(str(text))
                found.left_out["descriptions of process groups"] += 1
            else:
                found.left_out["operators and labels, which have no time in such a trace"] += 1
        except ValueError as error:
            faults.append(f"node {number}, counted from 0: {error}")
    if faults:
        raise ConfigError(file.name, first_of(faults))
    # Ids are in the order of execution, the file's is not.
    found.calls = sorted(_with_groups(calls, found), key=lambda call: call.id)
    found.ranks = found.groups.largest or max((len(call.sent) for call in calls), default=0) or None
    return found


def _with_groups(calls: Sequence[Call], file: _File) -> Iterator[Call]:
    """Yield calls with the names of their groups. One that says none is of the only group that there is, if all that
    are described have the same ranks; else it is left out."""
    everyone = tuple(range(file.groups.largest or 0))
    only = {ranks or everyone: name for name, ranks in reversed(file.groups.ranks.items())}
    unnamed = next(iter(only.values()), ALL_RANKS) if len(only) <= 1 else None
    for call in calls:
        group = unnamed if call.group is None else file.groups.names.get(call.group, call.group)
        if group is not None:
            yield replace(call, group=group)
        elif call.collective == names.WAIT:
            yield replace(call, group="")
        else:
            file.left_out[_NO_GROUP] += 1


def _call(node: Mapping[str, Any], left_out: Counter[str]) -> Iterator[Call]:
    """Yield the call that a node is; none if it is nothing that ranks do together."""
    values = values_of(node, "inputs")
    texts = [place for place, value in enumerate(values) if isinstance(value, str)]
    at = next((place for place in texts if names.collective_named(values[place])), texts[-1] if texts else None)
    attributes = attributes_of(node)
    spelled = str(values[at]) if at is not None else str(attributes.get("collective_name", ""))
    collective = names.collective_named(spelled)
    if collective is None or collective == names.INIT:
        left_out[
            f"calls of {spelled or 'no name'!r}, which are not communication" if collective is None else "init"
        ] += 1
        return
    front = values[:at] if at is not None else []
    if len(front) < 3:
        raise ValueError(
            f"{shown(spelled)}: has {len(front)} inputs in front of the name; request, group, rank belong there"
        )
    request, group, peer = front[-3], front[-2], front[-1]
    behind = values[at + 1 :] if at is not None else []
    into, out_of = elements_of(values_of(node, "inputs")[:1]), elements_of(values_of(node, "outputs")[:1])
    dtype = names.type_named(str(attributes.get("dtype", ""))) or type_of(node)
    width = (dtype[1] if dtype else 0) or into[1] or out_of[1]
    into = into if into[0] else (_said(attributes, "in_msg_nelems"), width)
    out_of = out_of if out_of[0] else (_said(attributes, "out_msg_nelems"), width)
    yield Call(
        id=whole(node.get("id"), "id"),
        collective=collective,
        request=str(request[0] if isinstance(request, list) and request else request),
        group=str(attributes.get("pg_name") or (group[0] if isinstance(group, list) and group else group)),
        peer=whole(peer, "rank", -(2**31)),
        into=into,
        out_of=out_of,
        sent=_sent(behind, attributes, into[0], out_of[0]),
        ranks=_ranks(behind, attributes),
        dtype=dtype[0] if dtype else "",
    )


def _said(attributes: Mapping[str, Any], name: str) -> int:
    return whole(attributes.get(name, 0), name)


def _sent(behind: Sequence[Any], attributes: Mapping[str, Any], into: int, out_of: int) -> tuple[int, ...]:
    """Return how many elements go to each place of the group, if the call says.

    Of the two lists, inputs' stands first. They count rows of the first dimension: elements follow from the tensor.
    """
    lists = [splits_of(one) for one in behind[:2]] if len(behind) >= 2 else []
    if not any(lists):
        lists = [splits_of(attributes.get(name, ())) for name in ("in_split_size", "out_split_size")]
    found = lists[0] if lists else ()
    return in_elements(found, into)


def _ranks(behind: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the ranks of the group, if the call says from where, at which distance, and how many."""
    said = [attributes.get(name) for name in ("global_rank_start", "global_rank_stride", "pg_size")]
    if None in said:
        said = list(behind[2:5])
    if len(said) < 3 or not all(isinstance(one, int) for one in said):
        return ()
    start, stride, size = (whole(one, "rank", -(2**31)) for one in said)
    if start < 0 or stride < 1 or not 1 <= size <= 10**6:
        return ()
    return tuple(range(start, start + stride * size, stride))


def _program(file: _File, rank: int, table: GroupTable, means: Mapping[str, str]) -> Program:
    operations: list[Operation] = []
    issued: dict[str, int] = {}
    faults: list[str] = []
    waited: int | None = None
    for call in file.calls:
        try:
            if call.collective == names.WAIT:
                if call.request not in issued:
                    file.left_out["waits for what was called before the trace begins"] += 1
                operations.append(_wait((issued[call.request],) if call.request in issued else ()))
                waited = len(operations) - 1
                continue
            assert call.group is not None, "each has one, or is left out"
            # A file that has no description of its only group has one entry, that of all.
            group = means.get(call.group, call.group if call.group in table.groups else next(_alone(means), call.group))
            made = _communication(replace(call, group=group), rank, table, () if waited is None else (waited,))
        except ValueError as error:
            faults.append(f"node {call.id} ({call.collective}): {error}")
            continue
        if made is None:
            file.left_out[ONE_RANKS_MESSAGES] += 1
            continue
        issued[call.request] = len(operations)
        operations.append(made)
        if call.waits:
            operations.append(_wait((issued[call.request],)))
            waited = len(operations) - 1
    if faults:
        raise ConfigError(file.name, first_of(faults))
    return tuple(operations)


def _wait(after: tuple[int, ...]) -> Operation:
    return Compute(duration_s=0.0, name=names.WAIT, stream=HOST, after=after)


def _alone(means: Mapping[str, str]) -> Iterator[str]:
    yield from (name for name in means if name == ALL_RANKS)


def _communication(call: Call, rank: int, table: GroupTable, after: tuple[int, ...]) -> Operation | None:
    group = table.group_of(call.group, rank)
    ranks = table.size(group)
    bytes_in, bytes_out = size_bytes(call.into[0] * call.into[1]), size_bytes(call.out_of[0] * call.out_of[1])
    common: dict[str, Any] = {"after": after, "name": call.collective}
    if call.collective in (names.SEND, names.RECEIVE, names.RECEIVE_ANY):
        sends = call.collective == names.SEND
        if table.single:
            return None
        anyone = call.collective == names.RECEIVE_ANY or (not sends and call.peer < 0)
        peer = ANY if anyone else table.member(group, call.peer)
        kind = Send if sends else Receive
        return kind(**common, peer=peer, size_bytes=(bytes_in if sends else bytes_out) or bytes_in, tag=call.tag)
    collective = call.collective
    sent: tuple[int, ...] = ()
    if collective == names.SEND_RECEIVE:
        raise ValueError("a send and a receive in one call, without saying with whom")
    total = of_inputs(collective, bytes_in, ranks)
    if collective == names.ALL_GATHER and bytes_out > 0:
        total = bytes_out
    elif collective == names.SCATTER:
        total = max(bytes_in, bytes_out * ranks)
    elif collective == names.ALL_TO_ALL_V:
        sent = _by_place(call, ranks)
        total = sum(sent)
        if not call.sent and bytes_in % ranks == 0:
            collective, sent, total = names.ALL_TO_ALL, (), bytes_in
    root = call.peer if collective in _ROOTED and 0 <= call.peer < ranks else 0
    dtype = call.dtype or names.type_for(total)
    return CollectiveCall(
        **common, collective=collective, size_bytes=total, group=group, root=root, sent_bytes=sent, dtype=dtype,
        stream=f"communication {group}",
    )  # fmt: skip


def _by_place(call: Call, ranks: int) -> tuple[int, ...]:
    """Return the bytes to each place of the group: as the call says, or evenly."""
    elements, width = call.into
    if not call.sent:
        return tuple((elements * (one + 1) // ranks - elements * one // ranks) * width for one in range(ranks))
    if len(call.sent) != ranks:
        raise ValueError(
            f"has splits for {len(call.sent)} ranks, and its group has {ranks}; say --ranks {len(call.sent)}"
        )
    return tuple(one * width for one in call.sent)
