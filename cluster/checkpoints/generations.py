"""Which checkpoints there are, which are kept, which are removed.

A checkpoint is complete when its index is there, which is written last: what has chunks and no index was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fabric.errors import ConfigError


@dataclass(frozen=True)
class Keeping:
    """What is kept: the last ``last`` complete ones, and each whose step is a multiple of ``every``; 0: none."""

    last: int = 2
    every: int = 0

    def __post_init__(self) -> None:
        if self.last < 1 or self.every < 0:
            raise ConfigError(
                "keep", [f"last {self.last}, every {self.every}; keep at least the last 1, and every >= 0"]
            )


@dataclass(frozen=True)
class Generations:
    """Steps of checkpoints: those that are complete, and those that were begun and are not."""

    complete: tuple[int, ...] = ()
    begun: tuple[int, ...] = ()

    @property
    def latest(self) -> int | None:
        """The step to restore; None if there is none."""
        return max(self.complete, default=None)

    def removable(self, keeping: Keeping, writing: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the steps whose checkpoints may be removed: complete ones that are not kept, and those that were begun
        and that nobody writes any more. Without a complete one nothing of those that are complete is removed."""
        kept = set(sorted(self.complete)[-keeping.last :])
        if keeping.every:
            kept |= {step for step in self.complete if step % keeping.every == 0}
        dead = set(self.begun) - set(self.complete) - set(writing)
        return tuple(sorted((set(self.complete) - kept) | dead))


INDEX, UNFINISHED_INDEX = "index.json", "index.new"
"""Names of the index of a checkpoint: once it is whole, and while it is written."""


def generations(names: Iterable[str]) -> Generations:
    """Return the checkpoints that files are of: ``STEP/index.json``, ``STEP/index.new`` and ``STEP/NUMBER``; a
    directory without files is ``STEP/``. Raises ConfigError for a name that is none of these."""
    complete, begun, faults = set[int](), set[int](), []
    for name in names:
        step, slash, rest = name.partition("/")
        if not slash or not step.isdecimal() or not (rest in ("", INDEX, UNFINISHED_INDEX) or rest.isdecimal()):
            faults.append(f"{name!r} is not a file of a checkpoint; these are STEP/index.json and STEP/NUMBER")
        elif rest == INDEX:
            complete.add(int(step))
        else:
            begun.add(int(step))
    if faults:
        raise ConfigError("checkpoints", faults)
    return Generations(tuple(sorted(complete)), tuple(sorted(begun)))
