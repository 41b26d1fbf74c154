"""The files of a trace: what the user names, unpacked, and in the order of ranks by the number in their names."""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fabric.errors import ConfigError
from traffic.work.formats.packed import unpacked
from traffic.work.formats.trace import TraceFile

_NUMBER = re.compile(r"\d+")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Sources:
    """Files that belong together, as the user named them."""

    name: str
    files: tuple[TraceFile, ...]
    among_others: bool = False
    """Whether files that are not traces may be among them, as in a folder."""


def paths_named(words: Sequence[str]) -> list[tuple[str, list[Path]]]:
    """Return the files that words name, for each trace: a folder or a pattern is one, and so are all files that are
    named one by one, which :func:`ordered` takes apart. Raises ConfigError if there are none."""
    found: list[tuple[str, list[Path]]] = []
    alone: list[Path] = []
    for word in words:
        path = Path(word)
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
            if not inside:
                raise ConfigError(word, ["is a folder without files; name that of a trace"])
            found.append((word, inside))
        elif not path.exists() and _PATTERN.search(word):
            matching = sorted(Path(one) for one in glob.glob(word) if Path(one).is_file())  # noqa: PTH207 - absolute, too
            if not matching:
                raise ConfigError(word, ["no file matches the pattern; is the folder right?"])
            found.append((word, matching))
        else:
            alone.append(path)
    return [*([(str(alone[0]), alone)] if alone else []), *found]


def read_sources(named: Sequence[tuple[str, Sequence[Path]]]) -> list[Sources]:
    """Return the files of traces, unpacked: those in a packed file are a trace by themselves. Raises ConfigError."""
    found: list[Sources] = []
    for name, paths in named:
        single: list[TraceFile] = []
        for path in paths:
            files = unpacked(path)
            if len(files) > 1:
                found.append(Sources(str(path), tuple(files), among_others=True))
            else:
                single += files
        if single:
            found.append(Sources(name, tuple(single), among_others=Path(name).is_dir()))
    return found


def ordered(names: Sequence[str]) -> list[list[str]]:
    """Return the names of the files of each trace, in the order of ranks: their names differ in one number.

    Raises ConfigError if that is not so, or if ranks are missing in between.
    """
    alike: Mapping[str, list[str]] = defaultdict(list)
    for name in names:
        alike[_NUMBER.sub("#", name)].append(name)
    return [trace for same in alike.values() for trace in _of_one_pattern(same)]


def _of_one_pattern(names: list[str]) -> list[list[str]]:
    if len(names) == 1:
        return [names]
    numbers = {name: [int(one) for one in _NUMBER.findall(name)] for name in names}
    width = len(numbers[names[0]])
    for place in reversed(range(width)):
        parts: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name in names:
            parts[(*numbers[name][:place], *numbers[name][place + 1 :])].append(name)
        ranks = [sorted(numbers[name][place] for name in part) for part in parts.values()]
        if all(len(part) > 1 for part in ranks):
            for part in ranks:
                _verify_complete(names[0], part)
            return [sorted(part, key=lambda name: numbers[name][place]) for part in parts.values()]
    # Names of Kineto have a time in them as well: the number that counts from 0 is the rank.
    for place in range(width):
        if sorted(numbers[name][place] for name in names) == list(range(len(names))):
            return [sorted(names, key=lambda name: numbers[name][place])]
    what = f"names of {len(names)} files differ in several numbers, and none counts from 0"
    raise ConfigError(names[0], [f"{what}; name them NAME.RANK, from 0 on"])


def _verify_complete(name: str, ranks: list[int]) -> None:
    missing = sorted(set(range(ranks[0], ranks[-1] + 1)) - set(ranks))
    if missing:
        raise ConfigError(
            name, [f"files of ranks {ranks[0]} to {ranks[-1]}, and {missing[0]} is missing; give all of them"]
        )
    if len(set(ranks)) < len(ranks):
        raise ConfigError(name, ["two files have the same number; name them NAME.RANK, from 0 on"])
