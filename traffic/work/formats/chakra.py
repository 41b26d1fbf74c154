"""MLCommons Chakra execution traces as graphs of work: one file per rank, whichever way it is written.

- order is that of ``data_deps``. ``ctrl_deps`` of real captures are a tree of calls, with circles and ids of nodes that
  are not in the file: Chakra's own feeder ignores them, too;
- an all-gather's size is what one rank puts in;
- the duration of a communication is what it took elsewhere: it is kept to compare with, and not played;
- kernels of one stream of a GPU run one after the other, as they did, which dependencies do not say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats import names
from traffic.work.formats.chakra_nodes import COLLECTIVES, ChakraFile, ChakraNode, NodeType
from traffic.work.formats.group_table import ONE_RANKS_MESSAGES, DescribedGroups, GroupTable, ranks_in, with_users
from traffic.work.formats.ordering import CircleError, in_order
from traffic.work.formats.sizes import of_inputs
from traffic.work.formats.trace import Asked, Program, Trace, ranks_of
from traffic.work.formats.values import WHOLE, first_of, mapping, rank_list, seconds, shown, size_bytes, whole
from traffic.work.operations import ANY, CollectiveCall, Compute, FileRead, FileWrite, Operation, Receive, Send

FORMAT = "Chakra"
OWN = "fabric"
"""The attribute in which our own files say in JSON what Chakra has no word for (``chakra_writing``)."""
MICROSECOND_S = 1e-6
_MESSAGES = (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_COMMUNICATION = (*_MESSAGES, NodeType.COMM_COLL_NODE)
_CPU_STREAM, _COMPUTE_STREAM = "cpu", "compute"
_KINDS = {
    NodeType.INVALID_NODE: "invalid nodes",
    NodeType.METADATA_NODE: "metadata nodes",
    NodeType.MEM_LOAD_NODE: "loads from memory without a duration",
    NodeType.MEM_STORE_NODE: "stores to memory without a duration",
    NodeType.STORAGE_NODE: "storage operations other than reads and writes of files",
    NodeType.BATCH_NODE: "batch nodes",
    NodeType.CHECKPOINT_NODE: "checkpoint nodes",
}
_CONTROL = "control dependencies, not kept to: they are the tree of calls"


def read_chakra(files: Sequence[ChakraFile], asked: Asked) -> Trace:
    """Return the graph of a trace, ``files`` in the order of ranks. Raises ConfigError."""
    source = files[0].name
    try:
        own = _own(files[0].attributes)
        said_here = {name: rank_list(ranks, f"group {name}") for name, ranks in own.get("groups", {}).items()}
    except ValueError as error:
        raise ConfigError(source, [str(error)]) from None
    described = DescribedGroups()
    for file in files:
        for node in file.nodes:
            if node.kind == NodeType.METADATA_NODE and "process_group" in node.name:
                for text in _texts(node.inputs):
                    described.read(text)
    said, largest = dict(described.ranks), described.largest
    said |= said_here
    if len(files) > 1 and asked.ranks not in (None, len(files)):
        what = f"are {len(files)} files, one per rank, and {asked.ranks} ranks are asked for"
        raise ConfigError(source, [f"{what}; leave --ranks out, or give one rank's file to be copied"])
    groups = with_users(asked, said)
    world = files[0].ranks or largest or ranks_in(groups)
    ranks = ranks_of(asked, world, source) if len(files) == 1 else len(files)
    table = GroupTable(source, ranks, groups, single=len(files) == 1)
    left_out: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    programs = [_RankReader(file, rank, table, left_out, notes).program() for rank, file in enumerate(files)]
    program = table.for_all(programs, left_out)
    return Trace(
        source,
        FORMAT,
        ranks,
        program,
        table.groups,
        table.alike,
        dict(left_out),
        tuple(f"{count:,} {what}" for what, count in notes.items()),
        str(own.get("name", "")),
        is_copied=table.alike,
    )


_OWN_TYPES: Mapping[str, tuple[type, ...]] = {
    "name": (str,), "groups": (dict,), "stream": (str,), "after_start": (list,), "measured_s": (float, int),
    "duration_s": (float, int, type(None)), "flops": (float, int), "collective": (str,), "size_bytes": (int,),
    "root": (int,), "algorithm": (str,), "dtype": (str,), "sent_bytes": (list,),
}  # fmt: skip


def _own(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an attribute of our own says. Raises ValueError."""
    text = attributes.get(OWN)
    if not isinstance(text, str):
        return {}
    try:
        found = mapping(json.loads(text), f"attribute {OWN}")
    except (ValueError, RecursionError):
        raise ValueError(f"attribute {OWN} {shown(text)}: is not JSON of ours; remove it") from None
    for key, value in found.items():
        if not isinstance(value, _OWN_TYPES.get(key, ())):
            raise ValueError(f"attribute {OWN}: {shown(key)} {shown(value)}: is nothing that we write; remove it")
    return found


def _texts(values: str) -> list[str]:
    """Return the texts of a node's inputs, which is a list of texts, or one of them."""
    try:
        found = json.loads(values)
    except (ValueError, RecursionError):
        return [values.removeprefix("['").removesuffix("']")]
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) and found else [values]


@dataclass
class _RankReader:
    """Makes the program of one rank; counts what it leaves out."""

    file: ChakraFile
    rank: int
    table: GroupTable
    left_out: Counter[str]
    notes: Counter[str]

    def program(self) -> Program:
        """Return the operations. Raises ConfigError with the nodes that cannot be read or played."""
        nodes = self.file.nodes
        place_of_id = {node.id: place for place, node in enumerate(nodes)}
        faults = []
        if len(place_of_id) < len(nodes):
            twice = [str(one) for one, count in Counter(node.id for node in nodes).items() if count > 1]
            faults.append(f"ids {', '.join(twice[:5])} are those of several nodes; each has its own")
        waits: list[list[int]] = []
        last = max(place_of_id, default=0)
        for node in nodes:
            if missing := [one for one in node.data_deps if one not in place_of_id]:
                what = f"{node}: data_deps {missing[0]}: no node of the file has this id"
                faults.append(f"{what}{WHOLE if missing[0] > last else ''}")
            waits.append([place_of_id[one] for one in node.data_deps if one in place_of_id])
        if faults:
            raise ConfigError(self.file.name, first_of(faults))
        self.notes += Counter({_CONTROL: sum(node.control_deps for node in nodes)})
        try:
            order = in_order(waits)
        except CircleError as error:
            circle = ", ".join(str(nodes[place]) for place in error.places[:5])
            raise ConfigError(self.file.name, [f"data_deps go in a circle, so none starts: {circle}"]) from None
        return self._in_order(order, waits)

    def _in_order(self, order: Sequence[int], waits: Sequence[Sequence[int]]) -> Program:
        on_gpu = any(_is_communication(node) and not _on_cpu(node) for node in self.file.nodes)
        operations: list[Operation] = []
        stands_for: dict[int, tuple[int, ...]] = {}  # The operations that a node's followers wait for.
        last_of_stream: dict[str, int] = {}
        faults: list[str] = []
        for place in order:
            node = self.file.nodes[place]
            after = tuple(dict.fromkeys(one for other in waits[place] for one in stands_for[other]))
            try:
                made = self._operation(node, after, on_gpu)
            except ValueError as error:
                faults.append(f"{node}: {error}")
                made = None
            if made is None:
                stands_for[place] = after
                continue
            if _is_captured(node) and not _on_cpu(node):
                made, last = _behind(made, last_of_stream.get(made.stream)), len(operations)
                last_of_stream[made.stream] = last
            stands_for[place] = (len(operations),)
            operations.append(made)
        if faults:
            raise ConfigError(self.file.name, first_of(faults))
        return tuple(operations)

    def _operation(self, node: ChakraNode, after: tuple[int, ...], on_gpu: bool) -> Operation | None:
        """Return what a node is as an operation; None if it cannot be played, which is counted. Raises ValueError."""
        own = _own(node.attributes)
        common: dict[str, Any] = {"after": after, "name": node.name, "stream": own.get("stream", _stream(node))}
        if "after_start" in own:
            common["after_start"] = tuple(whole(one, "after_start") for one in own["after_start"])
        duration_s = seconds(node.duration_us, MICROSECOND_S, "duration")
        if node.kind in _COMMUNICATION and (not _on_cpu(node) or not on_gpu) and _is_communication(node):
            common["measured_s"] = own.get("measured_s", duration_s or None)
            return self._communication(node, common, own)
        if node.kind == NodeType.COMP_NODE or (node.kind in _COMMUNICATION and _on_cpu(node)):
            if node.kind in _COMMUNICATION:
                self.notes["calls of communication on the CPU, played as the time that they took"] += 1
            return _compute(node, common, own, duration_s)
        if node.kind in (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE) and duration_s > 0:
            return Compute(**common, duration_s=duration_s)
        if node.storage is not None and node.storage.kind in ("read", "write"):
            kind = FileRead if node.storage.kind == "read" else FileWrite
            common["measured_s"] = own.get("measured_s", duration_s or None)
            offset = whole(node.storage.offset_bytes, "offset")
            return kind(
                **common, path=node.storage.path, offset_bytes=offset, size_bytes=size_bytes(node.storage.size_bytes)
            )
        unsized = "communication on a GPU without a size (comm_size)"
        self.left_out[unsized if node.kind in _COMMUNICATION else _KINDS[node.kind]] += 1
        return None

    def _communication(self, node: ChakraNode, common: dict[str, Any], own: Mapping[str, Any]) -> Operation | None:
        attributes = node.attributes
        size = size_bytes(attributes.get("comm_size", 0), "comm_size")
        if node.kind in _MESSAGES:
            tag = whole(attributes.get("comm_tag", 0), "comm_tag", ANY, 2**63)
            sends = node.kind == NodeType.COMM_SEND_NODE
            key, other = ("comm_dst", "comm_src") if sends else ("comm_src", "comm_dst")
            peer = whole(attributes.get(key, -2), key, 0 if sends else ANY, 10**6)
            mine = attributes.get(other)
            if mine not in (None, self.rank) and isinstance(mine, int) and mine >= 0:
                raise ValueError(
                    f"{other} {mine}: is in the file of rank {self.rank}; give the files in order of ranks"
                )
            if self.table.single and not self.table.alike and peer >= self.table.ranks:
                self.left_out[ONE_RANKS_MESSAGES] += 1
                return None
            if not self.table.single and peer >= self.table.ranks:
                there = f"there are ranks 0 to {self.table.ranks - 1}, and this is {self.rank}"
                raise ValueError(f"{key} {peer}: {there}; give the files of all ranks")
            return (Send if sends else Receive)(**common, peer=peer, size_bytes=size, tag=tag)
        kind = whole(attributes.get("comm_type", 0), "comm_type", 0, len(COLLECTIVES) - 1)
        group = self.table.group_of(_group_name(attributes), self.rank)
        collective = own.get("collective", COLLECTIVES[kind])
        total = of_inputs(collective, size, self.table.size(group))
        if not common["stream"]:
            common["stream"] = own.get("stream", f"communication {group}")
        details = {key: own[key] for key in ("size_bytes", "root", "algorithm", "dtype") if key in own}
        details.setdefault("size_bytes", total)
        details.setdefault("dtype", names.type_for(total))
        details.setdefault("root", self._root(attributes, group))
        sent = tuple(size_bytes(one) for one in own.get("sent_bytes", ()))
        return CollectiveCall(**common, collective=collective, group=group, sent_bytes=sent, **details)

    def _root(self, attributes: Mapping[str, Any], group: str) -> int:
        """Return the place of a collective's root: traces name the rank, or nothing."""
        root = next((attributes[key] for key in ("root_rank", "comm_root", "root") if key in attributes), None)
        if root is None:
            return 0
        return self.table.place(group, whole(root, "root", 0, 10**6))


def _compute(node: ChakraNode, common: dict[str, Any], own: Mapping[str, Any], duration_s: float) -> Compute:
    flops = float(whole(node.attributes.get("num_ops", 0), "num_ops"))
    if "duration_s" in own or "flops" in own:
        said = own.get("duration_s", duration_s)
        return Compute(
            **common,
            duration_s=None if said is None else seconds(said, 1, "duration_s"),
            flops=float(own.get("flops", flops)),
            measured_s=own.get("measured_s"),
        )
    if duration_s == 0 and flops > 0:
        return Compute(**common, flops=flops)
    return Compute(**common, duration_s=duration_s, flops=flops, measured_s=own.get("measured_s"))


def _behind(operation: Operation, last: int | None) -> Operation:
    """Return an operation that also waits for the last one of its stream."""
    return operation if last is None else replace(operation, after=tuple(dict.fromkeys((*operation.after, last))))


def _on_cpu(node: ChakraNode) -> bool:
    """Whether a node ran on a CPU: bool in some files, a number in others, and nothing in most generated ones."""
    return bool(node.attributes.get("is_cpu_op", False))


def _is_captured(node: ChakraNode) -> bool:
    """Whether a node says which stream it ran on, as those of real captures do."""
    return any(key in node.attributes for key in ("stream", "tid"))


def _is_communication(node: ChakraNode) -> bool:
    """Whether a node says how much is sent. A barrier sends nothing."""
    barrier = node.attributes.get("comm_type") == COLLECTIVES.index(names.BARRIER)
    return node.kind in _COMMUNICATION and ("comm_size" in node.attributes or barrier)


def _group_name(attributes: Mapping[str, Any]) -> str | None:
    name = attributes.get("pg_name", attributes.get("comm_group"))
    return None if name is None else str(name)


def _stream(node: ChakraNode) -> str:
    """Return the stream of a node. Messages have none: a send that waits would keep others from being sent."""
    number = node.attributes.get("stream", node.attributes.get("tid"))
    if _on_cpu(node):
        return f"{_CPU_STREAM} {number}" if number is not None else _CPU_STREAM
    if number is not None:
        return f"gpu {number}"
    return _COMPUTE_STREAM if node.kind not in _COMMUNICATION else ""
