"""When a phase is played again: where other programs took what it needed of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fabric.measure.verdict import Check, Status

_MOST_OF_RUN, _ALWAYS_S = 0.5, 30.0
"""Attempts that are set aside take at most this part of what the attempts that count have taken so far, those of the
present phase apart, and so long in addition: a machine that is too slow does not become faster, and a run is not to
take three times as long to say so. But runs begin with short phases, and a backup disturbs several of them."""


@dataclass(frozen=True)
class SetAside:
    """An attempt at a phase, or at a calibration, that the machine disturbed, so that another one was made: its times
    are seconds of the run.

    ``number`` counts the attempts at its phase, from 1; ``reasons`` are those of the checks that it failed.
    """

    phase: str
    number: int
    started_s: float
    ended_s: float
    reasons: tuple[str, ...]


@dataclass
class Attempts:
    """The attempts at the phases of a run. ``most``: how many at a phase, at most."""

    most: int = 1
    set_aside: list[SetAside] = field(default_factory=list)
    _counted_s: float = 0.0

    def number(self, phase: str) -> int:
        """Return the number of the attempt at a phase that is under way, from 1."""
        return 1 + sum(one.phase == phase for one in self.set_aside)

    def is_to_be_repeated(self, phase: str, checks: Sequence[Check]) -> bool:
        """Whether another attempt follows one whose checks of the machine are these."""
        if all(check.status is Status.FAITHFUL for check in checks) or self.number(phase) >= self.most:
            return False
        earlier_s = sum(one.ended_s - one.started_s for one in self.set_aside if one.phase != phase)
        return earlier_s <= _ALWAYS_S + _MOST_OF_RUN * self._counted_s

    def count(self, seconds: float) -> None:
        """Count an attempt of ``seconds`` that is the last at its phase."""
        self._counted_s += seconds
