"""What ``fabric exec`` adds to a program's own words: on data that crossed no NIC, and on what hosts do not have."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from app.commands.passing_on import Sink
from fabric.model.identity import NodeId

MOST_FILES = 10_000
"""Of the directories that hosts share on purpose, how many files are looked at."""
_MOST_NAMED = 5
_NO_GPUS = (b"Distributed package doesn't have NCCL built in", b"ProcessGroupNCCL is only supported with GPUs")
"""What torch.distributed says of its backend ``nccl``: built for the CPU, and with CUDA on a machine without a GPU."""
_KEPT = max(map(len, _NO_GPUS)) - 1


class ListeningSink(Sink):
    """A stream that also notes whether a program has asked for what hosts do not have."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self._last = b""
        self.has_asked_for_gpus = False

    def write(self, text: bytes) -> None:
        """Write, and pass on at once. Raises BrokenPipeError if nobody reads it any more."""
        heard = self._last + text
        self.has_asked_for_gpus |= any(words in heard for words in _NO_GPUS)
        self._last = heard[-_KEPT:]
        super().write(text)


def gpus_note(sinks: Sequence[ListeningSink]) -> str:
    """Return advice for a program that asked torch.distributed for ``nccl``; empty if none did."""
    if not any(sink.has_asked_for_gpus for sink in sinks):
        return ""
    return (
        "note: hosts have no GPUs, and torch.distributed's backend nccl needs them: call init_process_group('gloo'), "
        "which sends the same tensors; --service-level nccl puts them into NCCL's lane; or let --gpu h100 stand in for "
        "GPUs. To play NCCL's own algorithms: fabric run collectives"
    )


class SharedFiles:
    """The files below directories that hosts share on purpose, and the sockets where they start, as they were when
    this was made.

    ``directories``: those of ``--share``, whose files and sockets all count. In ``start``, where programs start, only
    sockets count, since programs write their output there.
    """

    def __init__(self, directories: Sequence[Path], start: Path) -> None:
        self._directories = directories
        self._start = start
        self._before = dict(self._found())

    def changed(self) -> list[str]:
        """Return the names of those that are new or were written since, in order."""
        return sorted(str(path) for path, state in self._found() if self._before.get(path) != state)

    def _found(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        left = MOST_FILES
        for directory in self._directories:
            for folder, _, names in os.walk(directory):
                for name in names[:left]:
                    yield from _state_of(Path(folder, name), sockets_only=False)
                left -= min(left, len(names))
                if not left:
                    return
        with os.scandir(self._start) as entries:
            for _, entry in zip(range(MOST_FILES), entries, strict=False):
                yield from _state_of(Path(entry.path), sockets_only=True)


def _state_of(path: Path, sockets_only: bool) -> Iterator[tuple[Path, tuple[int, int]]]:
    try:
        found = path.lstat()
    except OSError:  # It has gone meanwhile.
        return
    if stat.S_ISSOCK(found.st_mode) or (stat.S_ISREG(found.st_mode) and not sockets_only):
        yield path, (found.st_mtime_ns, found.st_size)


def shared_note(by_host: Mapping[NodeId, int], changed: Sequence[str]) -> str:
    """Return a note of files and sockets that programs of several hosts may have talked by; nothing if there are
    none."""
    if len(by_host) < 2 or not changed:
        return ""
    named = ", ".join(changed[:_MOST_NAMED])
    more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
    verb = "was" if len(changed) == 1 else "were"
    return (
        f"note: {named}{more}, which hosts share, {verb} written meanwhile: what programs of different hosts exchange "
        "by that crosses no NIC, and takes no time"
    )


def copies_note(copies: Sequence[tuple[str, str]]) -> str:
    """Return a note of what was copied over ``ssh``, by program and host; nothing if nothing was."""
    if not copies:
        return ""
    hosts: dict[str, list[str]] = {}
    for program, host in copies:
        hosts.setdefault(program, []).append(host)
    named = ", ".join(f"{program} ({', '.join(of_program)})" for program, of_program in hosts.items())
    return (
        f"note: copied over ssh by {named}, which crosses no NIC and takes no time: to time a copy, fetch it from a "
        "server on the host, such as rsync --daemon or nginx"
    )
