"""Groups of ranks as a trace's operations name them, from the file itself or from the user."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.trace import Asked, Groups, TraceFile
from traffic.work.formats.values import documents, mapping, rank_list, sequence, shown, whole
from traffic.work.graph import ALL_RANKS

_OF_ALL = {"", "0", "default_pg", "default", ALL_RANKS}
"""Names that a group of all ranks has where nobody says which ranks it has."""
_SHOWN = 8


class GroupTable:
    """The groups of a trace of so many ranks.

    ``alike``: whether one rank's trace is copied to all: then each group must be that of all ranks. Raises ConfigError
    if a group has ranks that are not there.
    """

    def __init__(self, source: str, ranks: int, groups: Groups, alike: bool = False) -> None:
        self._source = source
        self.ranks = ranks
        self._alike = alike
        # An empty list is all ranks. A copied trace has other ranks than those that were captured.
        self.groups = {name: members or tuple(range(ranks)) for name, members in groups.items()} if not alike else {}
        self._captured = dict(groups) if alike else {}
        for name, members in self.groups.items():
            if (highest := max(members)) >= ranks:
                what = f"group {shown(name)} has rank {highest}, and the trace has {ranks} ranks, 0 to {ranks - 1}"
                raise ConfigError(source, [f"{what}; give the files of all ranks, or other groups"])

    def group_of(self, name: str | None, rank: int) -> str:
        """Return the group that an operation of a rank names. Raises ValueError if it is not known, or not in it."""
        name = name or ""
        if name in self.groups:
            if rank not in self.groups[name]:
                there = ", ".join(map(str, self.groups[name][:_SHOWN]))
                raise ValueError(f"group {shown(name)} is ranks {there}, and rank {rank} is not in it")
            return name
        members = self._captured.get(name, ())
        if self._alike and members not in ((), tuple(range(len(members)))):
            what = f"group {shown(name)} is ranks {', '.join(map(str, members[:_SHOWN]))}"
            raise ValueError(
                f"{what}: one rank's trace is copied only if all groups are of all; give every rank's file"
            )
        if name in _OF_ALL or name in self._captured:
            return ALL_RANKS
        known = f"known are {', '.join(map(shown, list(self.groups)[:_SHOWN]))}" if self.groups else "none is known"
        raise ValueError(f'group {shown(name)} has no ranks; {known}; say which in --groups FILE, as {{"ID": [0, 1]}}')

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
class SaidGroups:
    """Groups that PyTorch's files describe. ``ranks``: by the group's name, empty for all; ``names``: the name by
    each id that a process has for it, in older traces a number of its own; ``largest``: how many ranks there are."""

    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    largest: int | None = None

    def read(self, text: str) -> None:
        """Take what the text of a ``process_group:init`` node says. What is no JSON, as it was cut, says nothing."""
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
