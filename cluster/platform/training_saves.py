"""The state of a training, and checkpoints of it in a folder: a module without imports beside those of programs."""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

from cluster.platform.gang import LANE_BYTES, Gang
from cluster.platform.user import FOLDER


def say(text: str) -> None:
    """Print a line at once, and in one piece: where several threads print, ``print`` may put theirs before its end."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class SavesLostError(Exception):
    """Where checkpoints are cannot be reached."""


class NoSavesError(Exception):
    """What was asked for is not there, and will not be: to begin again would not help."""


class State:
    """What a training has learned: a vector of lanes after a number of steps."""

    def __init__(self, values: int) -> None:
        self.values, self.step, self.value = values, 0, 0

    def add(self, step: int, gradient: int) -> None:
        """Take a step."""
        self.step, self.value = step, self.value + gradient

    def to_bytes(self) -> bytes:
        """Return the vector."""
        return self.value.to_bytes(self.values * LANE_BYTES, "little")

    def take(self, step: int, data: bytes | bytearray) -> None:
        """Be as after a step."""
        self.step, self.value = step, int.from_bytes(data, "little")

    @property
    def checksum(self) -> int:
        """CRC-32 of the vector."""
        return zlib.crc32(self.to_bytes())


class ModelSize(NamedTuple):
    """What a checkpoint has beside the vector: the state of a model, sharded over the ranks. ``copy_Bps``: how fast a
    rank's part comes from its GPUs (None: at once)."""

    size_bytes: int
    tensors: int
    copy_Bps: float | None  # noqa: N815 - bytes, not bits


class Saves(Protocol):
    """Where checkpoints go. All ranks call these at the same steps; only :attr:`is_written` is a rank's own."""

    def __enter__(self) -> Saves:
        """Open it. Raises SavesLostError if it cannot be reached, NoSavesError if there is none."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""

    def restore(self, gang: Gang, state: State) -> None:
        """Let the state be that of the newest checkpoint; leave it as it is if there is none."""

    def begin(self, gang: Gang, state: State) -> None:
        """Begin to write a checkpoint of the state as it is now."""

    @property
    def is_written(self) -> bool:
        """Whether this rank's part is written, or has failed."""

    def wait(self) -> None:
        """Return once it is."""

    def complete(self, gang: Gang, silent_s: float) -> str:
        """Make the checkpoint complete; return why it cannot be, or nothing."""


class FolderSaves:
    """Each rank writes all of the state into a folder of its node. What a node has is lost with it; of those that are
    left the newest counts."""

    def __init__(self, folder: str, job: str, keep: int) -> None:
        own = os.environ.get(FOLDER)
        above = Path(own).parent if own else Path()
        self._folder = Path(folder) if folder else above / f"checkpoints-{job or 'alone'}"
        self._keep = keep
        self._fault = ""

    def __enter__(self) -> FolderSaves:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NoSavesError(f"{self._folder}: {error}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _saved(self, state: State) -> dict[int, Path]:
        """Return the files that are whole, and of states as large as this one, by their steps."""
        found = {}
        for path in self._folder.glob("*.state"):
            data = _content(path) if path.stem.isdecimal() else None
            if data is not None and len(data) == state.values * LANE_BYTES:
                found[int(path.stem)] = path
            else:
                say(f"{path.name} is not a checkpoint of this training, and is left alone")
        return found

    def restore(self, gang: Gang, state: State) -> None:
        """Let all ranks have the newest state that one of them has: it is summed with nothing of the others."""
        mine = self._saved(state)
        newest = max(mine, default=0)
        steps = gang.sums([newest if rank == gang.rank else 0 for rank in range(gang.world)])
        step = max(steps)
        if not step:
            return
        data = _content(mine[step]) if steps.index(step) == gang.rank else None
        value = int.from_bytes(data, "little") if data is not None else 0
        whole = gang.allreduce(value, state.values)
        state.take(step, whole.to_bytes(state.values * LANE_BYTES, "little"))

    def begin(self, gang: Gang, state: State) -> None:
        """Write the state."""
        data = state.to_bytes()
        new = self._folder / f"{state.step}.new"
        try:
            new.write_bytes(hashlib.sha256(data).digest() + data)
            new.replace(self._folder / f"{state.step}.state")
            self._fault = ""
        except OSError as error:
            self._fault = str(error)
        for step, path in sorted(self._saved(state).items())[: -self._keep]:
            if step < state.step:
                with suppress(OSError):
                    path.unlink()

    @property
    def is_written(self) -> bool:
        """True: it was written at once."""
        return True

    def wait(self) -> None:
        """Return: it is written."""

    def complete(self, gang: Gang, silent_s: float) -> str:
        """Return why no rank has written it, if so: what one has counts."""
        (count,) = gang.sums([0 if self._fault else 1], silent_s)
        return "" if count else self._fault


def _content(path: Path) -> bytes | None:
    """Return the state of a file, or None if it is not whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None
