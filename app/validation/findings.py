"""A fault of a fabric, and the outcome of a test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fabric.model.network import Port


class FaultKind(str, Enum):
    """What may be wrong with a fabric."""

    STATE = "no carrier"
    WIRING = "miswired"
    SPEED = "too slow"
    LOSS = "loses frames"
    BANDWIDTH = "pairs fall short"
    CONSERVATION = "packets vanish"
    STORAGE = "storage"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, with the ports it is about: both ends of a link, of two links if they are exchanged."""

    kind: FaultKind
    ports: tuple[Port, ...]
    name: str
    measured: str
    expected: str

    def __str__(self) -> str:
        return f"{self.name}: {self.kind.value}: {self.measured}; expected {self.expected}"

    def as_json(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        ports = [str(port) for port in self.ports]
        return {
            "kind": self.kind.value,
            "name": self.name,
            "ports": ports,
            "measured": self.measured,
            "expected": self.expected,
        }


class Outcome(str, Enum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class TestResult:
    """A row of the answer: a test, how it ended, what it measured (one line each), and the faults it found."""

    __test__ = False  # Not one of pytest's.

    name: str
    outcome: Outcome
    measured: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    figures: tuple[tuple[str, float], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it for ``--json``; figures are plain numbers with their units in their names."""
        return {
            "name": self.name,
            "outcome": self.outcome.value,
            "measured": list(self.measured),
            "figures": dict(self.figures),
        }


def tested(
    name: str, measured: Iterable[str], faults: Iterable[Fault] = (), figures: dict[str, float] | None = None
) -> TestResult:
    """Return the result of a test that was run: passed if it found no fault."""
    found = tuple(faults)
    outcome = Outcome.FAILED if found else Outcome.PASSED
    return TestResult(name, outcome, tuple(measured), found, tuple((figures or {}).items()))


def not_run(name: str, reason: str) -> TestResult:
    """Return the result of a test that was not run."""
    return TestResult(name, Outcome.NOT_RUN, (reason,))


def undecided(name: str, measured: Iterable[str], late: str, figures: dict[str, float]) -> TestResult:
    """Return the result of a test in which something seems wrong, while the machine was too late to tell."""
    lines = (*measured, f"this machine was too busy for a result: {late}")
    return TestResult(name, Outcome.UNDECIDED, lines, (), tuple(figures.items()))
