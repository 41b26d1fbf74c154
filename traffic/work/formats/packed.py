"""Files that are packed, with gzip, in an archive of tar, or both: what is in them, in memory."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from fabric.errors import ConfigError
from traffic.work.formats.trace import TraceFile
from traffic.work.formats.values import WHOLE

MOST_BYTES = 2 * 2**30
"""Of a trace, unpacked: what fits into memory with the graph that becomes of it."""
_GZIP = b"\x1f\x8b"
_TAR_AT, _TAR = 257, b"ustar"
_MOST_DEPTH = 4
_CHUNK_BYTES = 2**20


def unpacked(path: Path) -> list[TraceFile]:
    """Return a file, or the files in it in the order of their names. Raises ConfigError."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(str(path), [f"has {path.stat().st_size:,} bytes, and {MOST_BYTES:,} at most can be read"])
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror or error}; name a file or folder"]) from None
    found = list(_inside(TraceFile(str(path), data, str(path)), MOST_BYTES))
    if not found:
        raise ConfigError(str(path), ["has no files in it; pack the traces of all ranks"])
    return found


def _inside(file: TraceFile, left_bytes: int, depth: int = 0) -> Iterator[TraceFile]:
    """Yield the files in a file, or itself."""
    if depth > _MOST_DEPTH:
        raise ConfigError(file.name, [f"is packed more than {_MOST_DEPTH} times; unpack it"])
    if file.data.startswith(_GZIP):
        yield from _inside(replace(file, data=_gunzipped(file, left_bytes)), left_bytes, depth + 1)
    elif file.data[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        for one in _members(file):
            yield from _inside(one, left_bytes, depth + 1)
    else:
        yield file


def _gunzipped(file: TraceFile, most_bytes: int) -> bytes:
    parts, read = [], 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(file.data)) as opened:
            while part := opened.read(_CHUNK_BYTES):
                parts.append(part)
                read += len(part)
                if read > most_bytes:
                    raise ConfigError(file.name, [f"unpacks to more than {most_bytes:,} bytes, the most that is read"])
    except (OSError, EOFError, zlib.error) as error:
        whole = WHOLE if isinstance(error, EOFError) else ""
        raise ConfigError(file.name, [f"cannot be unpacked with gzip: {error}{whole}"]) from None
    return b"".join(parts)


def _members(file: TraceFile) -> Iterator[TraceFile]:
    """Yield the files of an archive, without what macOS adds to them."""
    try:
        with tarfile.open(fileobj=io.BytesIO(file.data), mode="r:") as archive:
            for member in sorted((one for one in archive if one.isfile()), key=lambda one: one.name):
                base = member.name.rpartition("/")[2]
                opened = archive.extractfile(member)
                if opened is not None and not base.startswith("."):
                    yield TraceFile(f"{file.name}/{member.name}", opened.read(), file.path)
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        whole = WHOLE if "unexpected end" in str(error) else ""
        raise ConfigError(file.name, [f"cannot be unpacked with tar: {error}{whole}"]) from None
