"""What a run is named by: the hash of all that decides its figures.

That is its resolved config, seed, engine and kernel, and by their contents the program, the files that the config
names, and the code of an experiment of one's own. Each of the latter has a name and a digest (:func:`deciding_parts`),
so that whoever finds another key can say what differs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.whose_packages import PACKAGES

_DIGITS = 16
_PART_DIGITS = 12
_PROGRAM_DIGITS = 8
KERNEL, PROGRAM = "kernel", "program"
"""Parts that every run has; the others are named by their paths."""
_HOME = Path(__file__).resolve().parents[2]
_ONLY_SHOWN = frozenset(
    {
        ("fabric", "report"),
        ("app", "commands"),
        ("app", "export"),
        ("app", "reproduction"),
        ("app", "sweeps"),
    }
)
"""Of the program, what reads results or starts runs, and decides no figure of one."""
_SOURCES = frozenset({".py", ".c", ".h", ".inc", ".patch", ".yaml"})
_OWN_SOURCES = _SOURCES | {".yml", ".json", ".csv", ".txt", ".sh"}
_RESULTS = ("manifest.json", "sweep.json")
"""What is in a directory of results, which may be in an experiment's folder, and is none of its code."""
_LONGEST_TEXT = 65_536
_PIECE_BYTES = 2**20


def run_key(
    config: Mapping[str, Any],
    seed: int,
    engine: str,
    kernel: str,
    memory_bytes: int | None = None,
    parts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the name of a run: the same for the same resolved config, seed, engine, kernel and ``parts``.

    ``memory_bytes``: of a guest, if it is not the usual one; it counts as a part of the engine, for figures may depend
    on it. ``parts``: digests of what else decides figures, by name, see :func:`deciding_parts`. It begins with a letter
    that no number has: readers of tables take digits around an ``e`` for one, and pandas 2.3 crashes on
    ``0e296164977664da``.
    """
    what = {"config": {**config, "seed": seed}, "engine": [engine, memory_bytes], "kernel": kernel}
    if parts:
        what["parts"] = dict(parts)
    return f"r{_digest(json.dumps(what, sort_keys=True).encode())[:_DIGITS]}"


def deciding_parts(texts: Iterable[str], read: Iterable[Path], foreign_folder: Path | None) -> dict[str, str]:
    """Return the digests of what decides a run's figures beside the values of its config: of the program, of files and
    of the code of an experiment in a ``foreign_folder``.

    ``texts``: those in its config, of which a word may be a file's path, as of a command; ``read``: files that were
    read to check it. Raises OSError if a file cannot be read.
    """
    found = {PROGRAM: program_digest()}
    files = {path.absolute() for path in (*read, *_files_in(texts))}
    if foreign_folder is not None:
        own = foreign_folder / f"{foreign_folder.name}.yaml"  # All of its values are in the config.
        files = {path for path in files if path != own} | {path for path in _own_sources(foreign_folder) if path != own}
    outside = (path for path in sorted(files) if not _is_ours(path))
    return found | {str(path): _digest_of_file(path) for path in outside if path.is_file()}


@cache
def program_digest() -> str:
    """Return the digest of the program's sources, wherever it is installed; without what only shows results."""
    return sources_digest(_HOME)


def sources_digest(root: Path) -> str:
    """Return the digest of sources below ``root``, as they are now."""
    hashed = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(_sources(root / package, _SOURCES)):
            name = path.relative_to(root)
            if name.parts[:2] not in _ONLY_SHOWN and name.name != "figures.py":
                hashed.update(f"{name.as_posix()}\0{_digest(path.read_bytes())}\0".encode())
    return hashed.hexdigest()[:_PART_DIGITS]


def program_name(root: Path = _HOME) -> str:
    """Return a name such as ``0.1.0-1e30ed72`` for what plays runs: two that differ in a source that decides figures
    have two names.

    What published setups ask for is in the keys of their runs, and how numbers are compared decides none of them; so
    :mod:`app.reproduction` does not count.
    """
    return f"{metadata.version('ai-fabric-emulator')}-{sources_digest(root)[:_PROGRAM_DIGITS]}"


def differing(expected: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Return in words which parts are others here than expected."""
    told = []
    for name in sorted({*expected, *here}):
        if expected.get(name) == here.get(name):
            continue
        if name == KERNEL:
            told.append(f"the kernel is {here.get(name)}, not {expected.get(name)}")
        elif name == PROGRAM:
            told.append("the program has other sources")
        else:
            lacks = "is missing" if name not in here else "was not there" if name not in expected else ""
            told.append(f"{name} {lacks or 'has other content'}")
    return told


def _is_ours(path: Path) -> bool:
    return any(path.is_relative_to(_HOME / package) for package in PACKAGES)


def _files_in(texts: Iterable[str]) -> Iterator[Path]:
    """Yield the files that texts name, whole or as a word of a command."""
    for text in texts:
        if len(text) > _LONGEST_TEXT:
            continue
        words = [text]
        with suppress(ValueError):  # A quotation without an end: no command.
            words += shlex.split(text)
        for word in dict.fromkeys(words):
            with suppress(OSError, ValueError):  # Too long for a path, or with a NUL.
                if word and Path(word).is_file():
                    yield Path(word)


def _own_sources(folder: Path) -> Iterator[Path]:
    """Yield the files of an experiment's folder, without results that are in it."""
    for path in _sources(folder, _OWN_SOURCES):
        if not any((above / name).exists() for above in _between(path, folder) for name in _RESULTS):
            yield path


def _between(path: Path, folder: Path) -> Iterator[Path]:
    return (above for above in path.parents if above != folder and above.is_relative_to(folder))


def _sources(folder: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        yield from (Path(root, name) for name in files if Path(name).suffix in suffixes)


def _digest_of_file(path: Path) -> str:
    found = path.stat()
    return _digest_at(path, found.st_size, found.st_mtime_ns, found.st_ino)


@lru_cache(maxsize=10_000)
def _digest_at(path: Path, *_: int) -> str:
    """Return a file's digest; read once for all points of a grid, as long as it stays the same."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            hashed.update(piece)
    return hashed.hexdigest()[:_PART_DIGITS]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
