"""Algorithms of users as MSCCL's XML (Microsoft's MSCCL, MSCCLang, ASPLOS 2023): read, checked, and made a program.

An ``algo`` has a ``gpu`` per rank, with thread blocks (``tb``) that talk to one peer each way over a channel and carry
out their steps in order. A step may wait for a step of another thread block of its GPU. A chunk is the size S over
``nchunksperloop``; all-gather's and reduce-scatter's S is the whole, so a rank's own part has 1/n of the chunks.

The steps are carried out here over chunks, not over data. So a file is refused that reads what nothing has written,
adds up what does not belong together, waits forever, leaves messages over, or ends with another result than its
collective's; and one whose result depends on which thread block is faster: two steps use the same chunk, one writes
it, and neither waits for the other. Slots of MSCCL's connections are not counted: nothing here runs out of them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from traffic.collectives.chunk_connection import Edge
from traffic.collectives.chunk_program import (
    DATA,
    OUTPUT,
    SCRATCH,
    ChunkProgram,
    Message,
    Place,
    ProgramError,
    ProgramTrace,
)
from traffic.collectives.collective import Collective, Layout
from traffic.collectives.operations.all_gather import ALL_GATHER
from traffic.collectives.operations.all_to_all import ALL_TO_ALL
from traffic.collectives.operations.allreduce import ALLREDUCE
from traffic.collectives.operations.broadcast import BROADCAST
from traffic.collectives.operations.reduce import REDUCE
from traffic.collectives.operations.reduce_scatter import REDUCE_SCATTER
from traffic.collectives.program_schedule import program_algorithm

MOST_BYTES = 64 * 2**20
COLLECTIVES: Mapping[str, Collective] = {
    "allreduce": ALLREDUCE,
    "allgather": ALL_GATHER,
    "reducescatter": REDUCE_SCATTER,
    "reduce_scatter": REDUCE_SCATTER,
    "alltoall": ALL_TO_ALL,
    "broadcast": BROADCAST,
    "reduce": REDUCE,
}
"""By the names that files have for them."""
_PARTS_IN, _PARTS_OUT = ("allgather",), ("reducescatter", "reduce_scatter")
"""Collectives of which a rank's input, or output, has the chunks of one rank only."""
_ROOMS = {"i": "input", "o": "output", "s": "scratch"}
_TAKES = ("r", "rrc", "rcs", "rrs", "rrcs")
_SENDS = ("s", "rcs", "rrs", "rrcs")
_LOCAL = ("cpy", "re", "nop")
_HIDDEN = "hidden"
"""The room of what a step adds up only to send it on."""


class Step(NamedTuple):
    """A step of a thread block; places are (i, o or s, chunk). ``after``: a thread block and its step to wait for."""

    kind: str
    source: Place
    target: Place
    chunks: int
    after: tuple[int, int] | None


@dataclass(frozen=True)
class ThreadBlock:
    """A thread block: whom it sends to and receives from (None: nobody), over which channel, and its steps."""

    number: int
    send: int | None
    receive: int | None
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class MscclAlgorithm:
    """What a file says. ``gpus``: the thread blocks of each, by number; ``in_place``: its output is in its input."""

    name: str
    collective: str
    ranks: int
    chunks: int
    in_place: bool
    gpus: tuple[tuple[ThreadBlock, ...], ...]

    def __call__(self, layout: Layout) -> ChunkProgram:
        """Return its program. Raises ProgramError for other ranks than the file is for, or if it is wrong."""
        if layout.ranks != self.ranks:
            raise ProgramError(f"{self.name}: is for {self.ranks} GPUs, not for {layout.ranks} ranks; use as many")
        return _program(self)

    @property
    def played(self) -> Collective:
        """The collective, with this algorithm alone, by its name. Raises ProgramError if it is wrong."""
        collective = COLLECTIVES[self.collective]
        _program(self)
        return collective.with_algorithm(self.name, program_algorithm(self, collective.expected))


@lru_cache(maxsize=32)
def _program(algorithm: MscclAlgorithm) -> ChunkProgram:
    try:
        return _Execution(algorithm).program()
    except ProgramError as error:
        raise ProgramError(f"{algorithm.name}: {error}") from None


# Reading -------------------------------------------------------------------------------------------------------------


def read_msccl(path: Path) -> MscclAlgorithm:
    """Return the algorithm of a file. Raises ProgramError naming the file and what of it is wrong, and OSError."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ProgramError(f"{path}: has {size:,} bytes; an algorithm has up to {MOST_BYTES:,}")
    try:
        return parse_msccl(path.read_text(encoding="utf-8", errors="replace"))
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from None


def parse_msccl(text: str) -> MscclAlgorithm:
    """Return the algorithm of a text, whose steps are possible, each for itself. Raises ProgramError."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ProgramError(f"is not XML: {error}") from None
    if root.tag != "algo":
        raise ProgramError(f"begins with <{root.tag}>; an algorithm of MSCCL begins with <algo>")
    found = _Element(root, "algo")
    collective = found.text("coll")
    if collective not in COLLECTIVES:
        raise ProgramError(f"coll={collective!r} is not played; use one of {', '.join(COLLECTIVES)}")
    ranks, chunks = found.number("ngpus", 2, 4096), found.number("nchunksperloop", 1, 1 << 20)
    if collective not in ("allreduce", "broadcast", "reduce") and chunks % ranks:
        raise ProgramError(f"nchunksperloop={chunks} are not equally many for each of {ranks} GPUs")
    in_place = found.number("inplace", 0, 1, default=0) == 1
    if in_place and collective == "alltoall":
        raise ProgramError("inplace=1: an all-to-all's blocks change their places; use inplace=0 and the output 'o'")
    gpus = tuple(_gpu(one, rank, ranks) for rank, one in enumerate(_numbered(root, "gpu", ranks)))
    return MscclAlgorithm(found.text("name", "msccl") or "msccl", collective, ranks, chunks, in_place, gpus)


@dataclass(frozen=True)
class _Element:
    """An element of the file; ``where`` names it in messages."""

    element: ElementTree.Element
    where: str

    def text(self, key: str, default: str | None = None) -> str:
        """Return an attribute."""
        found = self.element.get(key, default)
        if found is None:
            raise ProgramError(f"{self.where}: has no {key}")
        return found

    def number(self, key: str, least: int, most: int, default: int | None = None) -> int:
        """Return a whole number in a range."""
        text = self.text(key, None if default is None else str(default))
        try:
            value = int(text)
        except ValueError:
            raise ProgramError(f"{self.where}: {key}={text!r} is not a whole number") from None
        if not least <= value <= most:
            raise ProgramError(f"{self.where}: {key}={value} is not from {least} to {most}")
        return value


def _numbered(parent: ElementTree.Element, tag: str, count: int | None = None) -> list[ElementTree.Element]:
    """Return the children of a kind by their ids, which are 0, 1, ..., each once."""
    found = list(parent.iter(tag))
    ids = [_Element(one, tag).number("id", 0, max(0, len(found) - 1)) for one in found]
    if len(set(ids)) != len(ids) or (count is not None and len(ids) != count):
        wanted = "" if count is None else f"; there must be {count}"
        raise ProgramError(f"has <{tag}> of the ids {', '.join(map(str, ids))}, not 0, 1, ... once each{wanted}")
    return [one for _, one in sorted(zip(ids, found, strict=True), key=lambda pair: pair[0])]


def _gpu(element: ElementTree.Element, rank: int, ranks: int) -> tuple[ThreadBlock, ...]:
    blocks = tuple(
        _thread_block(_Element(one, f"gpu {rank}, tb {number}"), number, rank, ranks)
        for number, one in enumerate(_numbered(element, "tb"))
    )
    for way in ("send", "receive"):
        used: dict[tuple[int, int], int] = {}
        for block in blocks:
            peer = getattr(block, way)
            if peer is not None and (other := used.setdefault((peer, block.channel), block.number)) != block.number:
                raise ProgramError(
                    f"gpu {rank}: thread blocks {other} and {block.number} both {way} with {peer} on channel "
                    f"{block.channel}; give one another channel"
                )
    for block in blocks:
        for number, step in enumerate(block.steps):
            if step.after is not None and not _is_there(blocks, step.after):
                raise ProgramError(
                    f"gpu {rank}, tb {block.number}, step {number}: waits for thread block {step.after[0]}, step "
                    f"{step.after[1]}, which is not there"
                )
    return blocks


def _is_there(blocks: Sequence[ThreadBlock], place: tuple[int, int]) -> bool:
    block, step = place
    return 0 <= block < len(blocks) and 0 <= step < len(blocks[block].steps)


def _thread_block(found: _Element, number: int, rank: int, ranks: int) -> ThreadBlock:
    peers = [found.number(key, -1, ranks - 1) for key in ("send", "recv")]
    if rank in peers:
        raise ProgramError(f"{found.where}: talks to its own GPU; use cpy")
    send, receive = (None if peer == -1 else peer for peer in peers)
    elements = sorted(found.element.iter("step"), key=lambda one: _Element(one, found.where).number("s", 0, 1 << 20))
    steps = tuple(_step(_Element(one, f"{found.where}, step {place}"), place) for place, one in enumerate(elements))
    for place, step in enumerate(steps):
        if (step.kind in _SENDS and send is None) or (step.kind in _TAKES and receive is None):
            raise ProgramError(
                f"{found.where}, step {place}: type={step.kind!r}, and the thread block has no such peer"
            )
    return ThreadBlock(number, send, receive, found.number("chan", 0, 1 << 16), steps)


def _step(found: _Element, place: int) -> Step:
    if (number := found.number("s", 0, 1 << 20)) != place:
        raise ProgramError(f"{found.where}: has s={number}; steps are 0, 1, ... once each")
    kind = found.text("type")
    if kind not in (*_TAKES, *_SENDS, *_LOCAL):
        raise ProgramError(
            f"{found.where}: type={kind!r} is not one of {', '.join(sorted({*_TAKES, *_SENDS, *_LOCAL}))}"
        )
    waits = (found.number("depid", -1, 1 << 20, -1), found.number("deps", -1, 1 << 20, -1))
    places = [(found.text(f"{side}buf", "i"), found.number(f"{side}off", -1, 1 << 20, 0)) for side in ("src", "dst")]
    for room, _ in places:
        if room not in _ROOMS:
            raise ProgramError(f"{found.where}: buffer {room!r} is not one of {', '.join(_ROOMS)}")
    count = found.number("cnt", 0 if kind == "nop" else 1, 1 << 20, 1)
    return Step(kind, places[0], places[1], count, None if waits[0] == -1 else waits)


# Carrying out --------------------------------------------------------------------------------------------------------


@dataclass
class _Access:
    """Who used a chunk of a GPU, by the numbers of steps: the last that wrote it, and all that have read it since."""

    wrote: int | None = None
    read: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Running:
    """A step that is being carried out: its number among all, where it is, and the steps that surely came before."""

    number: int
    rank: int
    block: int
    step: int
    before: int

    def __str__(self) -> str:
        return f"gpu {self.rank}, tb {self.block}, step {self.step}"


class _Execution:
    """Carries an algorithm out over chunks, a step at a time, wherever one can go on."""

    def __init__(self, algorithm: MscclAlgorithm) -> None:
        self._algorithm = algorithm
        self._collective = COLLECTIVES[algorithm.collective]
        self._trace = ProgramTrace(Layout(algorithm.ranks), [1] * algorithm.chunks, self._collective.input)
        self._done = [[0] * len(blocks) for blocks in algorithm.gpus]
        self._known: list[int] = []
        self._where: list[_Running] = []
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._under_way: dict[Edge, deque[tuple[Message, int]]] = defaultdict(deque)
        self._accesses: dict[tuple[int, Place], _Access] = defaultdict(_Access)

    def program(self) -> ChunkProgram:
        """Carry all out and return the program. Raises ProgramError."""
        blocks = [(rank, block) for rank, own in enumerate(self._algorithm.gpus) for block in own]
        going = True
        while going:
            going = False
            for rank, block in blocks:
                while self._can_go_on(rank, block):
                    self._go_on(rank, block)
                    going = True
        self._verify_ended()
        room = DATA if self._algorithm.in_place else OUTPUT
        return self._trace.program(self._collective.expected, room)

    def _verify_ended(self) -> None:
        for rank, blocks in enumerate(self._algorithm.gpus):
            for block in blocks:
                number = self._done[rank][block.number]
                if number < len(block.steps):
                    raise ProgramError(
                        f"gpu {rank}, tb {block.number}, step {number}: never gets what it waits for: "
                        f"{self._awaited(rank, block, block.steps[number])}"
                    )
        for edge, left in self._under_way.items():
            if left:
                raise ProgramError(
                    f"gpu {edge.dialer} sends {len(left)} chunks more to gpu {edge.listener} on channel "
                    f"{edge.channel} than that receives"
                )

    def _awaited(self, rank: int, block: ThreadBlock, step: Step) -> str:
        if step.after is not None and self._done[rank][step.after[0]] <= step.after[1]:
            return f"thread block {step.after[0]}, step {step.after[1]}"
        return f"{step.chunks} chunks from gpu {block.receive} on channel {block.channel}"

    def _can_go_on(self, rank: int, block: ThreadBlock) -> bool:
        number = self._done[rank][block.number]
        if number == len(block.steps):
            return False
        step = block.steps[number]
        if step.after is not None and self._done[rank][step.after[0]] <= step.after[1]:
            return False
        if step.kind not in _TAKES:
            return True
        assert block.receive is not None, "parse_msccl() has verified it"
        return len(self._under_way[Edge(block.channel, block.receive, rank)]) >= step.chunks

    def _go_on(self, rank: int, block: ThreadBlock) -> None:
        number = self._done[rank][block.number]
        step = block.steps[number]
        taken = []
        if step.kind in _TAKES:
            assert block.receive is not None
            waiting = self._under_way[Edge(block.channel, block.receive, rank)]
            taken = [waiting.popleft() for _ in range(step.chunks)]
        running = self._running(rank, block, number, [sender for _, sender in taken])
        for place in range(step.chunks):
            self._one(running, block, step, place, taken[place][0] if taken else None)
        self._done[rank][block.number] += 1

    def _running(self, rank: int, block: ThreadBlock, step: int, senders: Sequence[int]) -> _Running:
        own = [(rank, block.number, step - 1)] if step else []
        if (after := block.steps[step].after) is not None:
            own.append((rank, *after))
        before = 0
        for number in (*senders, *(self._numbers[one] for one in own)):
            before |= self._known[number] | 1 << number
        found = _Running(len(self._known), rank, block.number, step, before)
        self._numbers[rank, block.number, step] = found.number
        self._known.append(before)
        self._where.append(found)
        return found

    def _one(self, running: _Running, block: ThreadBlock, step: Step, place: int, taken: Message | None) -> None:
        """Carry out what a step does with one of its chunks."""
        source = self._place(running, step.source, place, step.kind in ("s", "rrc", "rrs", "rrcs", "cpy", "re"))
        target = self._place(running, step.target, place, step.kind not in ("s", "rrs", "nop"))
        try:
            if step.kind in ("cpy", "re"):
                self._reads(running, source)
                self._writes(running, target, also_reads=step.kind == "re")
                self._trace.move(running.rank, source, target, adds=step.kind == "re")
            elif step.kind == "s":
                self._send(running, block, source)
            elif taken is not None:
                self._take(running, block, step.kind, source, target, taken)
        except ProgramError as error:
            raise ProgramError(f"{running}: {error}") from None

    def _take(
        self, running: _Running, block: ThreadBlock, kind: str, source: Place, target: Place, taken: Message
    ) -> None:
        adds = kind in ("rrc", "rrs", "rrcs")
        if kind == "rrs":
            target = (_HIDDEN, running.number << 20 | target[1])
        if adds:
            self._reads(running, source)
        self._writes(running, target)
        self._trace.take(taken, target, source if adds else None)
        if kind in _SENDS:
            self._send(running, block, target)

    def _send(self, running: _Running, block: ThreadBlock, place: Place) -> None:
        assert block.send is not None, "parse_msccl() has verified it"
        self._reads(running, place)
        message = self._trace.send(running.rank, block.send, place, block.channel)
        self._under_way[message.edge].append((message, running.number))

    def _place(self, running: _Running, written: Place, further: int, is_used: bool) -> Place:
        """Return a place of the file as one of the trace: in place, input and output are one room."""
        room, number = written[0], written[1] + further
        algorithm, per_rank = self._algorithm, self._algorithm.chunks // self._algorithm.ranks
        if room == "s":
            return SCRATCH, number
        is_part = algorithm.collective in (_PARTS_IN if room == "i" else _PARTS_OUT)
        most = per_rank if is_part else algorithm.chunks
        if is_used and not 0 <= number < most:
            raise ProgramError(f"{running}: chunk {number} of the {_ROOMS[room]}, which has 0 to {most - 1}")
        if is_part:
            number += running.rank * per_rank
        return (DATA if room == "i" or algorithm.in_place else OUTPUT), number

    # What may not happen at the same time ----------------------------------------------------------------------------

    def _reads(self, running: _Running, place: Place) -> None:
        access = self._accesses[running.rank, place]
        self._verify_before(running, place, [] if access.wrote is None else [access.wrote])
        access.read.append(running.number)

    def _writes(self, running: _Running, place: Place, also_reads: bool = False) -> None:
        access = self._accesses[running.rank, place]
        self._verify_before(running, place, [*access.read, *([] if access.wrote is None else [access.wrote])])
        access.wrote, access.read = running.number, [running.number] if also_reads else []

    def _verify_before(self, running: _Running, place: Place, others: Sequence[int]) -> None:
        for other in others:
            if other != running.number and not running.before >> other & 1:
                raise ProgramError(
                    f"uses chunk {place[1]} of {place[0]} as {self._where[other]} does, and neither waits for the "
                    "other; let one depend on the other (depid, deps)"
                )
