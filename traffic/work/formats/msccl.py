"""MSCCL's algorithms in XML: what the thread blocks of each GPU send, receive, reduce and copy, chunk by chunk. Reader.

A chunk is the size S, by nccl-tests' convention, divided by ``nchunksperloop``. The steps of a thread block follow one
another, and may wait for a step of another one (``depid``, ``deps``). What two blocks send each other on a channel
arrives in order. To reduce or copy takes no time here.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fabric.errors import ConfigError
from traffic.work.formats.ordering import CircleError, in_order
from traffic.work.formats.trace import Asked, Program, Trace, TraceFile
from traffic.work.formats.values import MOST_BYTES, WHOLE, first_of, shown, text_of, whole
from traffic.work.operations import Compute, Operation, Receive, Send

FORMAT = "MSCCL"
DEFAULT_BYTES = 2**20
SENDING = ("s", "rcs", "rrs", "rrcs")
RECEIVING = ("r", "rcs", "rrc", "rrs", "rrcs")
LOCAL = ("re", "cpy", "nop", "rrc", "rrs", "rrcs")
"""Types of steps; a type may be several: ``rrs`` receives, reduces and sends."""
_TYPES = sorted({*SENDING, *RECEIVING, *LOCAL})
_MOST_RANKS, _MOST_COUNT = 10**5, 10**6
_FRONT = re.compile(r"^\s*(?:(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE.*?\]>)\s*)*", re.DOTALL)
"""What may stand in front of an element: a declaration, comments."""


@dataclass(frozen=True)
class _Step:
    """A step, by its GPU's thread block and number; ``waits``: for which step of which block, or None."""

    block: int
    number: int
    kind: str
    count: int
    waits: tuple[int, int] | None


def is_algorithm(text: str) -> bool:
    """Whether a text is an algorithm of MSCCL."""
    return _FRONT.sub("", text).startswith("<algo")


def read_msccl(file: TraceFile, asked: Asked) -> Trace:
    """Return the graph of an algorithm for the size that is asked for. Raises ConfigError."""
    text = text_of(file)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ConfigError(file.name, ["defines entities, which no algorithm needs; remove them"])
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        whole = WHOLE if str(error).startswith(("unclosed token", "no element found")) else ""
        raise ConfigError(file.name, [f"is not XML: {error}{whole}"]) from None
    try:
        ranks = _attribute(root, "ngpus", 1, _MOST_RANKS)
        chunks = _attribute(root, "nchunksperloop", 1, _MOST_COUNT)
        size = _size(asked, chunks)
        gpus = {_attribute(gpu, "id", 0, ranks - 1): gpu for gpu in root.iter("gpu")}
        if missing := [one for one in range(ranks) if one not in gpus]:
            raise ValueError(f"has no gpu {missing[0]}, and ngpus is {ranks}; add it, or lower ngpus")
        if asked.ranks not in (None, ranks):
            raise ValueError(f"is for {ranks} GPUs, and {asked.ranks} ranks are asked for; leave --ranks out")
    except ValueError as error:
        raise ConfigError(file.name, [str(error)]) from None
    faults: list[str] = []
    programs: list[Program] = []
    for rank in range(ranks):
        try:
            programs.append(_program(gpus[rank], rank, ranks, size // chunks))
        except ValueError as error:
            faults.append(f"gpu {rank}: {error}")
    if faults:
        raise ConfigError(file.name, first_of(faults))
    name, kind = root.get("name", ""), root.get("coll", "")
    notes = [f"algorithm {name} ({kind}) of {size:,} B in {chunks} chunks; say another --size"]
    least, most = (_attribute(root, key, 0, 2**63, default) for key, default in (("minBytes", 0), ("maxBytes", 2**63)))
    if not least <= size <= (most or 2**63):
        notes.append(f"the file means it for {least:,} to {most:,} B")
    return Trace(file.name, FORMAT, ranks, programs.__getitem__, notes=tuple(notes))


def _size(asked: Asked, chunks: int) -> int:
    if asked.size_bytes is None:
        return -(-DEFAULT_BYTES // chunks) * chunks
    size = whole(asked.size_bytes, "--size", 1, MOST_BYTES)
    if size % chunks:
        less = size // chunks * chunks
        near = f"{less:,} or {less + chunks:,}" if less else f"{chunks:,}"
        raise ValueError(f"--size {size:,}: is not divisible by the {chunks} chunks of the algorithm; say {near}")
    return size


def _attribute(element: ElementTree.Element, name: str, least: int, most: int, default: int | None = None) -> int:
    found = element.get(name)
    if found is None and default is not None:
        return default
    if found is None:
        raise ValueError(f"{element.tag}: has no {name}")
    return whole(found, f"{element.tag}: {name}", least, most)


def _program(gpu: ElementTree.Element, rank: int, ranks: int, chunk_bytes: int) -> Program:
    operations: list[Operation] = []
    first_of_step: dict[tuple[int, int], int] = {}
    last_of_step: dict[tuple[int, int], int] = {}
    waits: dict[tuple[int, int], tuple[int, int]] = {}
    blocks: set[int] = set()
    for block in gpu.iter("tb"):
        number = _attribute(block, "id", 0, _MOST_COUNT)
        if number in blocks:
            raise ValueError(f"tb {number} is there twice; number them")
        blocks.add(number)
        ends = {name: _attribute(block, name, -1, ranks - 1) for name in ("send", "recv")}
        channel = _attribute(block, "chan", 0, _MOST_COUNT)
        if rank in ends.values():
            raise ValueError(f"tb {number}: sends to or receives from its own GPU; let it copy (cpy)")
        before: int | None = None
        for element in block.iter("step"):
            step = _step(element, number)
            key = (number, step.number)
            if key in first_of_step:
                raise ValueError(f"tb {number}: step {step.number} is there twice; number them")
            first_of_step[key] = len(operations)
            for made in _operations(step, ends, channel, chunk_bytes):
                operations.append(replace(made, after=() if before is None else (before,)))
                before = len(operations) - 1
            last_of_step[key] = len(operations) - 1
            if step.waits is not None:
                waits[key] = step.waits
    for key, other in waits.items():
        if other not in last_of_step:
            raise ValueError(
                f"tb {key[0]}, step {key[1]}: waits for step {other[1]} of tb {other[0]}, which is not there"
            )
        one = operations[first_of_step[key]]
        operations[first_of_step[key]] = replace(one, after=tuple(dict.fromkeys((*one.after, last_of_step[other]))))
    return _sorted(operations)


def _step(element: ElementTree.Element, block: int) -> _Step:
    kind = element.get("type", "")
    number = _attribute(element, "s", 0, _MOST_COUNT)
    if kind not in _TYPES:
        raise ValueError(f"tb {block}, step {number}: type {shown(kind)}: is not one of {', '.join(_TYPES)}")
    depends = (_attribute(element, "depid", -1, _MOST_COUNT, -1), _attribute(element, "deps", -1, _MOST_COUNT, -1))
    count = _attribute(element, "cnt", 0, _MOST_COUNT, 1)
    return _Step(block, number, kind, count, depends if min(depends) >= 0 else None)


def _operations(step: _Step, ends: Mapping[str, int], channel: int, chunk_bytes: int) -> list[Operation]:
    """Return what a step does, in order: receive, then reduce or copy, then send."""
    name, size = f"tb {step.block} step {step.number} {step.kind}", step.count * chunk_bytes
    found: list[Operation] = []
    for kinds, end in ((RECEIVING, "recv"), (SENDING, "send")):
        if step.kind in kinds and ends[end] < 0:
            raise ValueError(f"{name}: tb {step.block} has no {end}; say which GPU")
    if step.kind in RECEIVING:
        found.append(Receive(peer=ends["recv"], size_bytes=size, tag=channel, name=name))
    if step.kind in LOCAL:
        found.append(Compute(duration_s=0.0, name=name))
    if step.kind in SENDING:
        found.append(Send(peer=ends["send"], size_bytes=size, tag=channel, name=name))
    return found


def _sorted(operations: list[Operation]) -> Program:
    """Return operations each behind what it waits for. Raises ValueError if they wait in a circle."""
    try:
        order = in_order([one.after for one in operations])
    except CircleError as error:
        circle = ", ".join(operations[place].name for place in error.places[:5])
        raise ValueError(f"steps wait for each other, so none starts: {circle}") from None
    place_of = {old: new for new, old in enumerate(order)}
    return tuple(replace(operations[old], after=tuple(place_of[one] for one in operations[old].after)) for old in order)
