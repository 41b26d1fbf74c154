"""GOAL, the text of LogGOPSim and ATLAHS: what each rank computes, sends and receives. Reader.

The grammar is that of their ``txt2bin``. ``requires`` waits for an end, ``irequires`` for a start; ``calc`` is in
nanoseconds. Computing on one ``cpu`` is serial, so is sending by one ``nic``; what is left out is 0. Labels are a
rank's own, and may be used before they are defined. A source or tag of -1 is any. Comments stand on lines of their own;
one that begins with ``// fabric:`` says in JSON of the next operation what GOAL has no word for (``goal_writing``).
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.ordering import CircleError, in_order
from traffic.work.formats.trace import MOST_RANKS, Asked, Program, Trace, TraceFile
from traffic.work.formats.values import count, first_of, mapping, seconds, shown, size_bytes, text_of, whole
from traffic.work.operations import ANY, Compute, Operation, Receive, Send

FORMAT = "GOAL"
ANNOTATION = "// fabric:"
NANOSECOND_S = 1e-9
_TOKEN = re.compile(r"[{}:]|[A-Za-z_]\w*|-?\d+b?\b|\S")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*$")
_OPERATIONS = ("calc", "send", "recv")
_OPTIONS = ("tag", "cpu", "nic")
_MOST_FAULTS = 20
_MOST_NUMBER = 2**32 - 1
"""Also what a tag of -1 is stored as, which means any."""


@dataclass
class _Rank:
    """A rank as it is read: operations with their lines, what they wait for by label, and labels by place."""

    line: int
    operations: list[Operation] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    waits: list[tuple[int, str, str, str]] = field(default_factory=list)


def read_goal(file: TraceFile, asked: Asked) -> Trace:
    """Return the graph of a GOAL file. Raises ConfigError with the lines that cannot be read or played."""
    reader = _Reader(file.name)
    for number, line in enumerate(without_comments(text_of(file).splitlines()), 1):
        reader.read(number, line)
    programs = reader.programs()
    if asked.ranks not in (None, len(programs)):
        what = f"has {len(programs):,} ranks, and {asked.ranks:,} are asked for"
        raise ConfigError(file.name, [f"{what}; a GOAL file says what each rank does: leave --ranks out"])
    return Trace(file.name, FORMAT, len(programs), programs.__getitem__, name=reader.name)


def without_comments(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a file, those of comments empty, but for our own."""
    inside = False
    for line in lines:
        begun = line.strip()
        if inside or begun.startswith("/*"):
            inside = "*/" not in begun
            yield begun.partition("*/")[2] if "*/" in begun else ""
        else:
            yield "" if begun.startswith("//") and not begun.startswith(ANNOTATION) else line


class _Reader:
    """Reads lines, and keeps what is wrong with them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._faults: list[str] = []
        self._ranks: dict[int, _Rank] = {}
        self._count: int | None = None
        self._rank: _Rank | None = None
        self._opening: _Rank | None = None
        self._said: Mapping[str, Any] = {}
        self.name = ""

    def read(self, number: int, line: str) -> None:
        """Read a line."""
        try:
            if line.strip().startswith(ANNOTATION):
                self._said = _annotation(line)
                if self._count is None:
                    self.name, self._said = str(self._said.get("graph", "")), {}
                return
            words = deque(_TOKEN.findall(line))
            while words:
                self._statement(number, words)
        except ValueError as error:
            if len(self._faults) <= _MOST_FAULTS:
                self._faults.append(f"line {number}: {error}")

    def _statement(self, line: int, words: deque[str]) -> None:
        word = words.popleft()
        if word == "{" and self._opening is not None:
            self._rank, self._opening = self._opening, None
        elif word == "}" and self._rank is not None:
            self._rank = None
        elif self._rank is not None:
            self._in_rank(self._rank, line, word, words)
        elif word == "num_ranks" and words:
            self._count = whole(words.popleft(), "num_ranks", 1, MOST_RANKS)
        elif word == "rank" and words:
            self._open(line, whole(words.popleft(), "rank", 0, MOST_RANKS))
        else:
            raise ValueError(f"{shown(word)!r} stands outside of a rank; there are num_ranks N and rank R {{ ... }}")

    def _open(self, line: int, rank: int) -> None:
        if self._count is None or rank >= self._count:
            raise ValueError(f"rank {rank}: num_ranks is {self._count or 'not said'}; ranks are 0 to num_ranks - 1")
        if rank in self._ranks:
            raise ValueError(f"rank {rank} is on line {self._ranks[rank].line}, too; put all of it into one block")
        self._opening = self._ranks[rank] = _Rank(line)

    def _in_rank(self, rank: _Rank, line: int, word: str, words: deque[str]) -> None:
        label = None
        if words and words[0] == ":" and _IDENTIFIER.match(word):
            if word in rank.labels:
                first = rank.lines[rank.labels[word]]
                raise ValueError(f"label {shown(word)} is on line {first}, too; labels of a rank differ")
            words.popleft()
            label, word = word, words.popleft() if words else ""
        if word in _OPERATIONS:
            said, self._said = self._said, {}
            rank.operations.append(_annotated(_operation(word, words), said))
            rank.lines.append(line)
            if label is not None:
                rank.labels[label] = len(rank.operations) - 1
        elif label is None and len(words) > 1 and words[0] in ("requires", "irequires"):
            rank.waits.append((line, word, words.popleft(), words.popleft()))
        else:
            raise ValueError(f"{shown(word)!r} is neither {', '.join(_OPERATIONS)}, nor LABEL requires LABEL")

    def programs(self) -> list[Program]:
        """Return the operations of all ranks. Raises ConfigError with all faults."""
        if self._count is None:
            raise ConfigError(self._source, self._faults or ["has no line 'num_ranks N'; GOAL files begin with one"])
        if self._rank is not None or self._opening is not None:
            last = max(self._ranks)
            self._faults.append(f"ends within rank {last}, which begins on line {self._ranks[last].line}; is it whole?")
        found: list[Program] = []
        if self._faults:  # What follows from them says nothing new.
            raise ConfigError(self._source, first_of(self._faults, _MOST_FAULTS))
        for rank in range(self._count):
            if rank not in self._ranks:
                self._faults.append(f"has no rank {rank}, and num_ranks is {self._count}; add 'rank {rank} {{ }}'")
                if len(self._faults) > _MOST_FAULTS:
                    break
                continue
            try:
                found.append(self._linked(self._ranks[rank]))
            except ValueError as error:
                self._faults.append(f"rank {rank}: {error}")
        if self._faults:
            raise ConfigError(self._source, first_of(self._faults, _MOST_FAULTS))
        return found

    def _linked(self, rank: _Rank) -> Program:
        """Return a rank's operations with what they wait for, each behind that."""
        ends: list[list[int]] = [[] for _ in rank.operations]
        starts: list[list[int]] = [[] for _ in rank.operations]
        for line, waiting, word, other in rank.waits:
            for label in (waiting, other):
                if label not in rank.labels:
                    raise ValueError(f"line {line}: label {shown(label)} is nowhere in the rank; define it")
            (ends if word == "requires" else starts)[rank.labels[waiting]].append(rank.labels[other])
        for line, one in zip(rank.lines, rank.operations, strict=True):
            self._verify_peer(line, one)
        try:
            order = in_order([[*end, *start] for end, start in zip(ends, starts, strict=True)])
        except CircleError as error:
            lines = ", ".join(str(rank.lines[place]) for place in error.places)
            raise ValueError(f"the operations on lines {lines} wait for each other, so none starts") from None
        place_of = {old: new for new, old in enumerate(order)}
        return tuple(
            replace(
                rank.operations[old],
                after=tuple(dict.fromkeys(place_of[one] for one in ends[old])),
                after_start=tuple(dict.fromkeys(place_of[one] for one in starts[old])),
            )
            for old in order
        )

    def _verify_peer(self, line: int, operation: Operation) -> None:
        if not isinstance(operation, Send | Receive) or (isinstance(operation, Receive) and operation.peer == ANY):
            return
        assert self._count is not None, "ranks were read"
        if operation.peer >= self._count:
            raise ValueError(f"line {line}: unknown rank {operation.peer}; ranks are 0 to {self._count - 1}")


def _operation(word: str, words: deque[str]) -> Operation:
    """Return the operation that begins with a word, and take its words."""
    if word == "calc":
        duration_s = seconds(whole(_next(words, "calc"), "calc"), NANOSECOND_S, "calc")
        options = _options(words)
        return Compute(duration_s=duration_s, stream=f"cpu {options['cpu']}")
    size = _next(words, word)
    if not size.endswith("b"):
        raise ValueError(f"size {shown(size)}: sizes end in b, as 1024b")
    size_b = size_bytes(size.removesuffix("b"))
    towards = "to" if word == "send" else "from"
    if _next(words, word) != towards:
        raise ValueError(f"{word} {size}: is followed by {towards} RANK")
    if word == "send":
        peer = whole(_next(words, towards), towards, 0, MOST_RANKS)
        options = _options(words)
        if options["tag"] == ANY:
            raise ValueError("tag -1: any tag is what a recv may say; give the send's own")
        return Send(peer=peer, size_bytes=size_b, tag=options["tag"], stream=f"nic {options['nic']}")
    peer = whole(_next(words, towards), towards, ANY, MOST_RANKS)
    return Receive(peer=peer, size_bytes=size_b, tag=_options(words)["tag"])


def _next(words: deque[str], before: str) -> str:
    if not words:
        raise ValueError(f"the line ends behind {before}")
    return words.popleft()


def _options(words: deque[str]) -> dict[str, int]:
    """Take tag, cpu and nic."""
    found: dict[str, int] = {}
    while words and words[0] in _OPTIONS:
        name = words.popleft()
        if name in found:
            raise ValueError(f"{name} is there twice; keep one of them")
        number = whole(_next(words, name), name, ANY if name == "tag" else 0, _MOST_NUMBER)
        found[name] = ANY if number == _MOST_NUMBER else number
    if words and words[0].startswith("/"):
        raise ValueError("comments stand on lines of their own; move this one")
    return {name: found.get(name, 0) for name in _OPTIONS}


def _annotation(line: str) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(line.strip().removeprefix(ANNOTATION)), "what the comment says")
    except (ValueError, RecursionError):
        raise ValueError(f"{ANNOTATION} is followed by JSON; remove the comment, or write it right") from None


def _annotated(operation: Operation, said: Mapping[str, Any]) -> Operation:
    """Return an operation with what a comment says of it."""
    changes: dict[str, Any] = {}
    for key, value in said.items():
        if key in ("name", "stream") and isinstance(value, str):
            changes[key] = value
        elif key in ("measured_s", "duration_s", "flops") and isinstance(value, float | int):
            changes[key] = count(value, key) if key == "flops" else seconds(value, 1, key)
        elif key == "duration_s" and value is None:
            changes[key] = None
        else:
            raise ValueError(f"{shown(key)}: {shown(value)} in a comment is not one of name, stream, times and flops")
    if not isinstance(operation, Compute) and {"duration_s", "flops"} & set(changes):
        raise ValueError("a comment says duration_s or flops of a message, which has none; remove it")
    return replace(operation, **changes)


def is_goal(words: Sequence[str]) -> bool:
    """Whether a text that begins with these words is GOAL."""
    return "num_ranks" in words[:1] or (" ".join(words[:2]) == ANNOTATION and "num_ranks" in words)
