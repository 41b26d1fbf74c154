"""What a verdict is: checks of something measured against two limits, each with its margin, and their worst."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any


class Status(str, Enum):
    """How far a run can be believed."""

    FAITHFUL = "faithful"
    DEGRADED = "degraded"
    INVALID = "invalid"


_ORDER = list(Status)
EXIT_CODE_INVALID = 3


@dataclass(frozen=True)
class Check:
    """A measurement against two limits: up to the first it is faithful, beyond the second invalid.

    ``phase``: where ``value`` was measured; empty if not in a phase. ``by_phase``: the values of all phases, of which
    ``value`` is the worst.
    """

    name: str
    value: float
    faithful_up_to: float
    invalid_beyond: float
    text: str
    phase: str = ""
    by_phase: Mapping[str, float] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The status of this check."""
        if self.value <= self.faithful_up_to:
            return Status.FAITHFUL
        return Status.INVALID if self.value > self.invalid_beyond else Status.DEGRADED

    @property
    def margin(self) -> float | None:
        """The fraction of the limit that is left before the run is no longer faithful, negative beyond it; None if the
        limit is zero."""
        return 1 - self.value / self.faithful_up_to if self.faithful_up_to > 0 else None

    def as_json(self) -> dict[str, Any]:
        """Return the check as a manifest holds it."""
        return {
            "name": self.name,
            "status": self.status.value,
            "value": self.value,
            "faithful_up_to": self.faithful_up_to,
            "invalid_beyond": None if math.isinf(self.invalid_beyond) else self.invalid_beyond,
            "margin": self.margin,
            "phase": self.phase,
            "by_phase": dict(self.by_phase),
            "text": self.text,
        }


@dataclass(frozen=True)
class Verdict:
    """The worst of all checks."""

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """How far the run can be believed."""
        return max((check.status for check in self.checks), key=_ORDER.index, default=Status.FAITHFUL)

    @property
    def reasons(self) -> list[str]:
        """Why it is not faithful: the invalid checks first."""
        failed = [check for check in self.checks if check.status is not Status.FAITHFUL]
        failed.sort(key=lambda check: -_ORDER.index(check.status))
        return [f"{check.status.value}: {check.text}" for check in failed]

    @property
    def closest(self) -> list[Check]:
        """The checks that have a margin, the smallest first."""
        return sorted((check for check in self.checks if check.margin is not None), key=_margin)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a manifest holds it."""
        checks = [check.as_json() for check in self.checks]
        return {"status": self.status.value, "reasons": self.reasons, "checks": checks}


def worst_of_phases(checks: Iterable[Sequence[Check]]) -> list[Check]:
    """Return the worst check of each name, from the checks of every phase; its text names the phase, and in how
    many others it is not faithful either."""
    by_name: dict[str, list[Check]] = {}
    for of_phase in checks:
        for check in of_phase:
            by_name.setdefault(check.name, []).append(check)
    return [_worst(found) for found in by_name.values()]


def _worst(checks: Sequence[Check]) -> Check:
    worst = max(checks, key=_badness)
    others = sum(check.status is not Status.FAITHFUL for check in checks) - 1
    where = f"phase {worst.phase}" + (f" (and {others} more)" if others > 0 else "")
    by_phase: dict[str, float] = {}
    for check in checks:
        by_phase[check.phase] = max(check.value, by_phase.get(check.phase, check.value))
    return replace(worst, text=f"{where}: {worst.text}", by_phase=by_phase)


def _badness(check: Check) -> tuple[int, float]:
    """Limits may differ from phase to phase; then the one nearer to its own limit counts."""
    return _ORDER.index(check.status), check.value / check.faithful_up_to if check.faithful_up_to > 0 else check.value


def _margin(check: Check) -> float:
    assert check.margin is not None, "only checks with a margin are sorted by it"
    return check.margin
