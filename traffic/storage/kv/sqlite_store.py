"""A store over SQLite, in memory or in a file: every value with the version that wrote it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from traffic.storage.kv.store import MOST_RANGE_PAIRS, Commit, Conflict, Pair, Range, TooOld

KEPT_VERSIONS = 10_000
"""How far back can be read; FoundationDB keeps those of five seconds."""
_PRUNED_EVERY = 1_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS pairs (key BLOB NOT NULL, version INTEGER NOT NULL, value BLOB, PRIMARY KEY (key, version))
WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_version ON pairs (version);
CREATE TABLE IF NOT EXISTS versions (name TEXT PRIMARY KEY, version INTEGER NOT NULL);
INSERT OR IGNORE INTO versions VALUES ('latest', 0), ('oldest', 0);
"""
_NEWEST = "version = (SELECT MAX(version) FROM pairs AS other WHERE other.key = pairs.key AND other.version <= ?)"


class SqliteStore:
    """A :class:`traffic.storage.kv.store.Store` for the program that has it: one thread, one commit at a time.

    ``path``: where it is kept; None: in memory. What was in a file is there again, at the version that it had. A value
    that is cleared has a row without a value, until it is pruned.
    """

    def __init__(self, path: Path | None = None, kept_versions: int = KEPT_VERSIONS) -> None:
        self._database = sqlite3.connect(path or ":memory:", isolation_level=None)
        if path is not None:
            self._database.execute("PRAGMA journal_mode = WAL")
        self._database.executescript(_SCHEMA)
        self._kept = kept_versions
        self._latest, self._oldest = (self._version(name) for name in ("latest", "oldest"))

    def _version(self, name: str) -> int:
        row = self._database.execute("SELECT version FROM versions WHERE name = ?", (name,)).fetchone()
        return int(row[0])

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _require(self, version: int) -> None:
        if version < self._oldest:
            raise TooOld(f"version {version} is no longer kept, the oldest is {self._oldest}; begin a new transaction")
        if version > self._latest:
            raise ValueError(f"version {version} is not there yet, the latest is {self._latest}; ask for read_version")

    async def read_version(self) -> int:
        """Return the version of the latest commit."""
        return self._latest

    async def get(self, key: bytes, version: int) -> bytes | None:
        """Return the value of a key at a version, or None. Raises TooOld."""
        self._require(version)
        found = self._database.execute(
            "SELECT value FROM pairs WHERE key = ? AND version <= ? ORDER BY version DESC LIMIT 1", (key, version)
        ).fetchone()
        return found[0] if found else None

    async def range(self, range_: Range, version: int, limit: int, reverse: bool = False) -> list[Pair]:
        """Return the first pairs of a range at a version. Raises TooOld."""
        self._require(version)
        if not 1 <= limit <= MOST_RANGE_PAIRS:
            raise ValueError(f"a limit of {limit} pairs; it can be 1 to {MOST_RANGE_PAIRS}")
        order = "DESC" if reverse else "ASC"
        query = f"SELECT key, value FROM pairs WHERE key >= ? AND key < ? AND value IS NOT NULL AND {_NEWEST}"
        words = f"{query} ORDER BY key {order} LIMIT ?"
        return [Pair(*row) for row in self._database.execute(words, (range_.begin, range_.end, version, limit))]

    async def commit(self, commit: Commit) -> int:
        """Write all of it or nothing; return its version, that of the reads if it writes nothing. Raises Conflict, and
        TooOld."""
        self._require(commit.read_version)
        for range_ in commit.reads:
            if (changed := self._changed(range_, commit.read_version)) is not None:
                raise Conflict(f"{changed[0]!r} was changed by version {changed[1]}, after {commit.read_version}")
        if not commit.writes:
            return commit.read_version
        version = self._latest + 1
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._write(commit, version)
            self._database.execute("UPDATE versions SET version = ? WHERE name = 'latest'", (version,))
            oldest = version - self._kept if version % _PRUNED_EVERY == 0 else 0
            if oldest > self._oldest:
                self._prune(oldest)
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._latest, self._oldest = version, max(self._oldest, oldest)
        return version

    def _changed(self, range_: Range, version: int) -> tuple[bytes, int] | None:
        """Return a key of a range that was written or cleared after a version, and by which."""
        # Few versions are newer than one that is being read at, and many keys may be in a range.
        found = self._database.execute(
            "SELECT key, version FROM pairs INDEXED BY by_version WHERE version > ? AND key >= ? AND key < ? LIMIT 1",
            (version, range_.begin, range_.end),
        ).fetchone()
        return tuple(found) if found else None

    def _write(self, commit: Commit, version: int) -> None:
        for range_ in commit.clears:
            self._database.execute(
                "INSERT OR REPLACE INTO pairs SELECT key, ?, NULL FROM pairs"
                f" WHERE key >= ? AND key < ? AND value IS NOT NULL AND {_NEWEST}",
                (version, range_.begin, range_.end, version),
            )
        self._database.executemany(
            "INSERT OR REPLACE INTO pairs VALUES (?, ?, ?)",
            ((pair.key, version, pair.value) for pair in commit.pairs_at(version)),
        )

    def _prune(self, oldest: int) -> None:
        """Forget what nobody can read any more: all but the newest of each key's values up to ``oldest``."""
        self._database.execute(
            "DELETE FROM pairs WHERE version < ? AND EXISTS"
            " (SELECT 1 FROM pairs AS other WHERE other.key = pairs.key AND other.version > pairs.version"
            " AND other.version <= ?)",
            (oldest, oldest),
        )
        self._database.execute("DELETE FROM pairs WHERE version <= ? AND value IS NULL", (oldest,))
        self._database.execute("UPDATE versions SET version = ? WHERE name = 'oldest'", (oldest,))
