"""What a reader makes of the files of a trace: a program for each rank, and what of the files cannot be played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fabric.errors import ConfigError
from traffic.work.graph import WorkGraph
from traffic.work.operations import Operation

Program = tuple[Operation, ...]
Groups = Mapping[str, tuple[int, ...]]
MOST_RANKS = 1_000_000
MOST_OPERATIONS = 20_000_000
"""Of a graph, all ranks together: more would not fit into memory."""


@dataclass(frozen=True)
class TraceFile:
    """A file of a trace, unpacked: its ``name`` for messages, its content, and the path of the file that it is in."""

    name: str
    data: bytes
    path: str = ""


@dataclass(frozen=True)
class Asked:
    """What the user says besides the files.

    ``ranks``: how many ranks play; None: as many as the files say. ``groups``: ranks by the id of their group.
    ``size_bytes``: S of an algorithm that has no size of its own.
    """

    ranks: int | None = None
    groups: Groups = field(default_factory=dict)
    size_bytes: int | None = None


@dataclass(frozen=True)
class Trace:
    """A trace that was read.

    ``program``: (rank) -> its operations. ``alike``: whether all ranks do the same, as when one rank's trace is copied.
    ``left_out``: what cannot be played, by kind, and how often it is there, in all files together. ``notes``: what a
    user should know of how the rest is played. ``name``: of the graph, if the file says one.
    ``is_copied``: whether it is one rank's, which all play.
    ``files``: the paths of its files; ``beside``: names of files among them that are not traces.
    """

    source: str
    format: str
    ranks: int
    program: Callable[[int], Program]
    groups: Groups = field(default_factory=dict)
    alike: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    name: str = ""
    files: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    is_copied: bool = False

    @property
    def what(self) -> str:
        """Its format, and whose it is, in words."""
        return f"{self.format} (one rank's, for all)" if self.is_copied else self.format

    def graph(self) -> WorkGraph:
        """Return the work of all ranks. Raises ConfigError if that does not fit into memory."""
        first = len(self.program(0))
        if first * self.ranks > MOST_OPERATIONS:
            many = f"{self.ranks:,} ranks with {first:,} operations each: {first * self.ranks:,} operations"
            raise ConfigError(self.source, [f"{many}, and {MOST_OPERATIONS:,} fit into memory; say fewer --ranks"])
        programs = tuple(self.program(rank) for rank in range(self.ranks))
        return WorkGraph(self.name or self.source, programs, dict(self.groups))


def ranks_of(asked: Asked, said: int | None, source: str) -> int:
    """Return how many ranks play: as asked, else as the file says, else 1. Raises ConfigError for too many."""
    found = asked.ranks if asked.ranks is not None else said if said is not None else 1
    if not 1 <= found <= MOST_RANKS:
        raise ConfigError(source, [f"{found:,} ranks: must be 1 to {MOST_RANKS:,}; say --ranks N"])
    return found
