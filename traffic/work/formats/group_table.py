"""Groups of ranks as a trace's operations name them, from the file itself or from the user."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.trace import Asked, Groups, Program, TraceFile
from traffic.work.formats.values import documents, mapping, rank_list, sequence, shown, whole
from traffic.work.graph import ALL_RANKS
from traffic.work.operations import CollectiveCall, Operation, Receive, Send

_OF_ALL = {"", "0", "default_pg", "default", ALL_RANKS}
"""Names that a group of all ranks has where nobody says which ranks it has."""
ONE_RANKS_MESSAGES = "messages with ranks whose traces are not there"
_SHOWN = 8


class GroupTable:
    """The groups of a trace of so many ranks. Raises ConfigError if a group has ranks that are not there.

    ``single``: whether there is the trace of one rank only, which is copied to all. Its groups then stand for those of
    the others, if their ranks are at equal distances: of 16 ranks, group 0, 2, 4, 6 means 1, 3, 5, 7, and 8, 10,
    12, 14, and so on.
    """

    def __init__(self, source: str, ranks: int, groups: Groups, single: bool = False) -> None:
        self._source = source
        self.ranks = ranks
        self.single = single
        self.alike = alike = single and ranks > 1
        self._captured = dict(groups) if alike else {}
        # An empty list is all ranks.
        self.groups = {name: members or tuple(range(ranks)) for name, members in groups.items()} if not alike else {}
        for name, members in self.groups.items():
            if (highest := max(members)) >= ranks:
                what = f"group {shown(name)} has rank {highest}, and the trace has {ranks} ranks, 0 to {ranks - 1}"
                raise ConfigError(source, [f"{what}; give the files of all ranks, or other groups"])

    def group_of(self, name: str | None, rank: int) -> str:
        """Return the group that an operation of a rank names. Raises ValueError if it is not known, or not in it."""
        name = name or ""
        if name in self._captured:
            return self._copied(name, rank)
        if name in self.groups:
            if rank not in self.groups[name]:
                there = ", ".join(map(str, self.groups[name][:_SHOWN]))
                raise ValueError(f"group {shown(name)} is ranks {there}, and rank {rank} is not in it")
            return name
        if name in _OF_ALL:
            return ALL_RANKS
        known = f"known are {', '.join(map(shown, list(self.groups)[:_SHOWN]))}" if self.groups else "none is known"
        raise ValueError(f'group {shown(name)} has no ranks; {known}; say which in --groups FILE, as {{"ID": [0, 1]}}')

    def _copied(self, name: str, rank: int) -> str:
        """Return the group of a rank that a captured one stands for. Raises ValueError if there is none."""
        members = sorted(self._captured[name])
        if members in ([], list(range(len(members)))) and len(members) in (0, *self._largest()):
            return ALL_RANKS
        distance = members[1] - members[0] if len(members) > 1 else 1
        block = distance * len(members)
        what = f"group {shown(name)} is ranks {', '.join(map(str, members[:_SHOWN]))}"
        if members != list(range(members[0], members[0] + block, distance)):
            raise ValueError(f"{what}, not at equal distances, so that no other rank's follows; give all ranks' files")
        if self.ranks % block:
            more = -(-self.ranks // block) * block
            raise ValueError(f"{what}: such groups divide {block} ranks, and not {self.ranks}; say --ranks {more}")
        first = rank // block * block + rank % distance
        found = f"{name} at {first}"
        self.groups.setdefault(found, tuple(range(first, first + block, distance)))
        return found

    def _largest(self) -> tuple[int, ...]:
        """Return the size of the captured world, if a group is all of it."""
        sizes = [max(members) + 1 for members in self._captured.values() if members]
        return (max(sizes),) if sizes else ()

    def for_all(self, programs: Sequence[Program], left_out: Counter[str]) -> Callable[[int], Program]:
        """Return what each rank does: its own program, or if one stands for all that, each in groups of its own. Its
        messages are left out, and counted: they say whom one rank talks to."""
        if not self.alike:
            return programs.__getitem__
        program, count = without_messages(programs[0])
        if count:
            left_out[ONE_RANKS_MESSAGES] += count
        return self._copies(program)

    def _copies(self, program: Program) -> Callable[[int], Program]:
        captured = {self.group_of(name, 0): name for name in self._captured}
        used = {one.group for one in program if isinstance(one, CollectiveCall)} - {ALL_RANKS}
        if not used:
            return lambda rank: program
        names = {group: captured[group] for group in used}
        for rank in range(self.ranks):
            for name in names.values():
                self.group_of(name, rank)

        def of_rank(rank: int) -> Program:
            groups = {group: self.group_of(name, rank) for group, name in names.items()} | {ALL_RANKS: ALL_RANKS}
            return tuple(
                replace(one, group=groups[one.group]) if isinstance(one, CollectiveCall) else one for one in program
            )

        return of_rank

    def size(self, group: str) -> int:
        """Return how many ranks a group has."""
        return self.ranks if group == ALL_RANKS and group not in self.groups else len(self.groups[group])

    def place(self, group: str, rank: int) -> int:
        """Return the place of a rank in a group. Raises ValueError if it has none."""
        if group == ALL_RANKS and group not in self.groups:
            return rank
        return self.groups[group].index(rank)

    def member(self, group: str, place: int) -> int:
        """Return the rank at a place of a group. Raises ValueError if there is none."""
        members = range(self.ranks) if group == ALL_RANKS and group not in self.groups else self.groups[group]
        if not 0 <= place < len(members):
            raise ValueError(f"group {shown(group)} has {len(members)} ranks, and no place {place}")
        return members[place]


def without_messages(program: Program) -> tuple[Program, int]:
    """Return operations without messages, and how many these are. Who waits for one of them waits for what it does."""
    kept: list[Operation] = []
    stands: list[tuple[int, ...]] = []
    for one in program:
        after = tuple(dict.fromkeys(place for other in one.after for place in stands[other]))
        after_start = tuple(dict.fromkeys(place for other in one.after_start for place in stands[other]))
        if isinstance(one, Send | Receive):
            stands.append(after)
        else:
            stands.append((len(kept),))
            kept.append(replace(one, after=after, after_start=after_start))
    return tuple(kept), len(program) - len(kept)


def read_groups(file: TraceFile) -> dict[str, tuple[int, ...]]:
    """Return groups of a JSON file, ``{"id": [rank, ...]}``. Raises ConfigError."""
    parts = documents(file)
    try:
        if len(parts) != 1:
            raise ValueError(f"has {len(parts)} JSON documents; groups are one")
        return {name: rank_list(ranks, f"group {shown(name)}") for name, ranks in mapping(parts[0], "groups").items()}
    except ValueError as error:
        raise ConfigError(file.name, [f'{error}; groups are written as {{"1": [0, 1], "2": [2, 3]}}']) from None


def is_groups(part: Any) -> bool:
    """Whether a JSON document is a list of groups."""
    return (
        isinstance(part, dict)
        and bool(part)
        and all(isinstance(ranks, list) and all(isinstance(one, int) for one in ranks) for ranks in part.values())
    )


@dataclass
class DescribedGroups:
    """Groups that PyTorch's files describe. ``ranks``: by the group's name, empty for all; ``names``: the name by
    each id that a process has for it, in older traces a number of its own; ``largest``: how many ranks there are."""

    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    largest: int | None = None

    def read(self, text: str) -> None:
        """Take what the text of a ``process_group:init`` node says. What is not JSON, as it was cut, says nothing."""
        try:
            listed = json.loads(text)
            for one in sequence(listed if isinstance(listed, list) else [listed], "groups"):
                entries = mapping(one, "a group")
                ranks = _ranks_said(entries)
                size = whole(entries.get("group_size", len(ranks)), "group_size", 0, 10**6)
                self.largest = max(self.largest or 0, size, max(ranks, default=-1) + 1) or None
                ids = [str(entries[key]) for key in ("pg_name", "uid", "backend_id") if key in entries]
                self.ranks |= dict.fromkeys(ids[:1], ranks)
                self.names |= dict.fromkeys(ids, ids[0] if ids else "")
        except (ValueError, RecursionError):
            return


def one_name_each(per_file: Sequence[Groups]) -> tuple[dict[str, tuple[int, ...]], list[dict[str, str]]]:
    """Return the groups of all files, and for each file the name of the group that a name of its own means: processes
    may call different groups the same."""
    groups: dict[str, tuple[int, ...]] = {}
    names = []
    for of_file in per_file:
        means = {}
        for name, ranks in of_file.items():
            means[name] = name if groups.setdefault(name, ranks) == ranks else f"{name} of rank {min(ranks, default=0)}"
            groups.setdefault(means[name], ranks)
        names.append(means)
    return groups, names


def _ranks_said(entries: Mapping[str, Any]) -> tuple[int, ...]:
    ranks = entries.get("ranks", [])
    if isinstance(ranks, dict):  # Older ones: by global rank the place in the group.
        ranks = [whole(one, "ranks") for one in ranks]
    return rank_list(ranks, "ranks")


def with_users(asked: Asked, said: Groups) -> Groups:
    """Return the groups that hold: the user's, and those of the file that the user says nothing of."""
    return {**said, **asked.groups}


def ranks_in(groups: Groups) -> int | None:
    """Return how many ranks there are at least, by groups; None if these say nothing."""
    return max((max(members) + 1 for members in groups.values() if members), default=None)
