"""The verdict's margins and a run's CPU time, as tables, from its manifest.

Results from before these were recorded have none, and get no tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_CPU_COLUMNS = (
    ("programs", "programs_s"),
    ("in kernel", "programs_kernel_s"),
    ("switches", "switches_s"),
    ("in kernel", "switches_kernel_s"),
    ("others", "others_s"),
    ("stolen", "stolen_s"),
    ("niced", "niced_s"),
    ("idle", "idle_s"),
)


@dataclass(frozen=True)
class TextTable:
    """A table of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def closest_checks(verdict: Mapping[str, Any], most: int | None = None) -> TextTable | None:
    """Return the checks that came nearest to their limits, the nearest first; None if the verdict tells no margins."""
    rows = [
        (
            check["name"],
            _number(check["value"]),
            _number(check["faithful_up_to"]),
            f"{check['margin']:.0%}",
            check["phase"] or "-",
        )
        for check in _with_margin(verdict)[:most]
    ]
    note = "Margin: the part of the limit that is left; below zero the run is not faithful."
    columns = ("check", "worst", "faithful up to", "margin", "in phase")
    return TextTable("Margins of the verdict", columns, rows, note) if rows else None


def margins_by_phase(verdict: Mapping[str, Any]) -> TextTable | None:
    """Return the margin of each check in each phase; None if the verdict tells none."""
    checks = [check for check in _with_margin(verdict) if check["by_phase"]]
    phases = list(dict.fromkeys(phase for check in checks for phase in check["by_phase"]))
    rows = [[check["name"], *(_margin_in(check, phase) for phase in phases)] for check in checks]
    return TextTable("Margins by phase", ["check", *phases], rows) if rows else None


def cpu_used(manifest: Mapping[str, Any]) -> TextTable | None:
    """Return what each phase used of the CPU, as parts of what its cores had; None if it was not measured."""
    used: Mapping[str, Mapping[str, float]] = manifest.get("cpu", {})
    rows = [
        [phase, *(f"{part:.0%}" for part in _parts(of_phase)), f"{_all(of_phase):.1f}"]
        for phase, of_phase in used.items()
    ]
    columns = ["phase", *(name for name, _ in _CPU_COLUMNS), "core seconds"]
    note = (
        "Programs: those of the hosts, the controller, and the sampler. In kernel: their system calls, and work on "
        "packets (softirqs) that interrupted them. Others: the rest of the machine, and softirqs in idle time. Stolen: "
        "what a hypervisor gave to other machines. Niced: programs of others that give way."
    )
    return TextTable("CPU used", columns, rows, note) if rows else None


def _with_margin(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    checks = [check for check in verdict.get("checks", []) if check.get("margin") is not None]
    return sorted(checks, key=lambda check: float(check["margin"]))


def _margin_in(check: Mapping[str, Any], phase: str) -> str:
    value = check["by_phase"].get(phase)
    return "-" if value is None else f"{1 - value / check['faithful_up_to']:.0%}"


def _parts(used: Mapping[str, float]) -> list[float]:
    total = _all(used) or 1.0
    return [used.get(key, 0.0) / total for _, key in _CPU_COLUMNS]


def _all(used: Mapping[str, float]) -> float:
    return sum(used.get(key, 0.0) for _, key in _CPU_COLUMNS)


def _number(value: float) -> str:
    return f"{value:.3g}"
