"""Chunks in files, so that a service that is started again finds them: a file of bytes per chunk, and one table.

A write behind a chunk's end goes into its file; what copies on write goes into a new one, and the old one is removed
once that is committed. The table (SQLite) has what the replica knows of each chunk, and is written after the bytes: so
a program that is killed at any moment leaves each chunk as it was before an update, or with that pending, or with it
committed. Files are not flushed: they outlive the program, not a loss of power.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fabric.errors import TrafficError
from traffic.storage.chains import ChunkId
from traffic.storage.payload import ChunkContent, Patchwork, Raw, Recipe, Removed
from traffic.storage.service.replica import Applied, Chunk, Stored
from traffic.storage.updates import Action, Change

_SCHEMA = "CREATE TABLE IF NOT EXISTS chunks (file INTEGER, place INTEGER, known TEXT, PRIMARY KEY (file, place))"
_TABLE = "chunks.sqlite"


@dataclass(frozen=True)
class InFile:
    """Bytes of a file, read when they are asked for."""

    path: Path
    size_bytes: int

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        """Return the bytes of a stretch. Raises TrafficError if the file is shorter."""
        length = min(length, self.size_bytes - offset)
        with self.path.open("rb") as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) < length:
            raise TrafficError(f"{self.path}: {len(data)} B at {offset}, of {length}: it was changed by another")
        return [memoryview(data)]


@dataclass(frozen=True)
class _Window:
    """A stretch of a content: what a pending write brought."""

    content: ChunkContent
    at: int
    size_bytes: int

    def pieces(self, offset: int, length: int) -> list[memoryview]:
        return self.content.pieces(self.at + offset, min(length, self.size_bytes - offset))


class ChunkFiles:
    """The files of one service, in a folder of its own. Raises TrafficError if the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[ChunkId, dict[str, str]] = {}
        """Of each chunk the files of its ``committed`` and its ``pending`` version; empty: it is a removal. One that
        was there before the run has none, since its recipe tells all."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._table = sqlite3.connect(folder / _TABLE, isolation_level=None)
            self._table.execute("PRAGMA journal_mode = WAL")
            self._table.execute("PRAGMA synchronous = OFF")
            self._table.execute(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise TrafficError(f"service.chunk_files: {folder}: {error}; name a folder that can be written") from error

    def close(self) -> None:
        """Close the table."""
        self._table.close()

    def load(self) -> dict[ChunkId, Chunk]:
        """Return the chunks that are there, and remove files that belong to none."""
        found: dict[ChunkId, Chunk] = {}
        for file, place, known in self._table.execute("SELECT file, place, known FROM chunks"):
            chunk = ChunkId(file, place)
            found[chunk] = self._read(chunk, json.loads(known))
        named = {name for names in self._names.values() for name in names.values()}
        for path in self._folder.glob("*.chunk"):
            if path.name not in named:
                path.unlink()
        return found

    # What a replica asks.

    def take_in(self, chunk: ChunkId, held: Chunk, *, is_copy: bool) -> None:
        """Write a pending version: into the chunk's file, or as a copy into a new one."""
        assert held.pending is not None, "it is pending"
        names = self._names.setdefault(chunk, {})
        before, pending = held.committed, held.pending
        if pending.is_removed:
            names["pending"] = ""
        elif before is None or is_copy or not names.get("committed"):
            names["pending"] = self._write_new(chunk, pending)
            held.pending = self._in_new_file(pending, names["pending"])
        else:
            names["pending"] = names["committed"]
            self._write_behind(names["pending"], before.content.size_bytes, pending.content)
        self._keep(chunk, held)

    def _in_new_file(self, stored: Stored, name: str) -> Stored:
        """Return a version whose bytes were copied to a new file, as it is once the old one is gone."""
        content = stored.content
        parts = [stretch.content for stretch in content.stretches] if isinstance(content, Patchwork) else [content]
        if not any(isinstance(part, InFile) for part in parts):
            return stored
        return replace(stored, content=InFile(self._folder / name, content.size_bytes))

    def replace(self, chunk: ChunkId, held: Chunk) -> None:
        """Write a whole chunk as it is committed elsewhere."""
        assert held.committed is not None, "it is committed"
        name = "" if held.committed.is_removed else self._write_new(chunk, held.committed)
        self._use(chunk, held, name)

    def commit(self, chunk: ChunkId, held: Chunk) -> None:
        """Keep that a pending version is committed."""
        self._use(chunk, held, self._names[chunk]["pending"])

    def forget(self, chunk: ChunkId) -> None:
        """Remove all of a chunk."""
        self._table.execute("DELETE FROM chunks WHERE file = ? AND place = ?", (chunk.file, chunk.index))
        self._unlink(self._names.pop(chunk, {}).values())

    # How.

    def _use(self, chunk: ChunkId, held: Chunk, name: str) -> None:
        before = set(self._names.get(chunk, {}).values())
        self._names[chunk] = {"committed": name}
        self._keep(chunk, held)
        self._unlink(before - {name})

    def _unlink(self, names: Any) -> None:
        for name in filter(None, names):
            (self._folder / name).unlink(missing_ok=True)

    def _write_new(self, chunk: ChunkId, stored: Stored) -> str:
        name = f"{chunk.file:x}-{chunk.index:x}-{stored.version}-{stored.request:x}.chunk"
        if name in self._names.get(chunk, {}).values():
            name = f"again-{name}"
        with (self._folder / name).open("wb") as file:
            file.writelines(stored.content.pieces(0, stored.content.size_bytes))
        return name

    def _write_behind(self, name: str, start: int, content: ChunkContent) -> None:
        end = content.size_bytes
        if end <= start:
            return
        with (self._folder / name).open("r+b") as file:
            file.seek(start)
            file.writelines(content.pieces(start, end - start))

    def _keep(self, chunk: ChunkId, held: Chunk) -> None:
        known = json.dumps(_described(held, self._names[chunk]))
        self._table.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", (chunk.file, chunk.index, known))

    def _read(self, chunk: ChunkId, known: Any) -> Chunk:
        names: dict[str, str] = {}
        versions: dict[str, Stored | None] = {"committed": None, "pending": None}
        for which in versions:
            if (said := known[which]) is not None:
                if (name := said.pop("name")) is not None:
                    names[which] = name
                versions[which] = _stored(said, self._content(chunk, said, name))
        self._names[chunk] = names
        last = {int(client): Applied(**applied) for client, applied in known["last"].items()}
        return Chunk(known["chain"], versions["committed"], versions["pending"], last, known["replaced_in"])

    def _content(self, chunk: ChunkId, said: dict[str, Any], name: str | None) -> ChunkContent:
        size = said.pop("size_bytes")
        if name is None:
            return Recipe(chunk, said["request"], size)
        return InFile(self._folder / name, size) if name else Removed()


def _described(held: Chunk, names: dict[str, str]) -> dict[str, Any]:
    versions = {"committed": held.committed, "pending": held.pending}
    return {
        "chain": held.chain,
        "replaced_in": held.replaced_in,
        "last": {str(client): asdict(applied) for client, applied in held.last.items()},
        **{which: stored and _described_version(stored, names.get(which)) for which, stored in versions.items()},
    }


def _described_version(stored: Stored, name: str | None) -> dict[str, Any]:
    change = stored.change
    return {
        "name": name,
        "size_bytes": stored.content.size_bytes,
        "change": change and [change.action, change.offset, change.length, change.checksum],
        **dict(_plain(stored)),
    }


def _plain(stored: Stored) -> Iterator[tuple[str, Any]]:
    for key in ("version", "request", "checksum", "zone", "chain_version", "block_bytes", "is_made"):
        yield key, getattr(stored, key)


def _stored(said: dict[str, Any], content: ChunkContent) -> Stored:
    change = said.pop("change")
    stored = Stored(content=content, **said)
    if change is None:
        return stored
    action, offset, length, checksum = change
    payload = _Window(content, offset, length) if action == Action.WRITE else Raw(b"")
    return replace(stored, change=Change(Action(action), offset, length, checksum, payload))
