"""The TCP congestion controls that a run can have: those of its engine's kernel whose signals its queues provide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fabric.errors import UsageError
from fabric.world.engine import Engine
from fabric.world.engines import NAMESPACE, VIRTUAL

STEERED_BY_ECN = ("dctcp",)
"""Without marks they behave as reno. No queue marks."""


def faults(controls: Mapping[str, str]) -> Iterator[str]:
    """Yield what no engine can do of a ``congestion_control`` by service level."""
    here, guest = NAMESPACE.congestion_controls(), VIRTUAL.congestion_controls()
    for level, name in controls.items():
        if name in STEERED_BY_ECN:
            others = ", ".join(other for other in here if other not in STEERED_BY_ECN)
            yield (
                f"congestion_control.{level}: {name} steers by ECN, and no queue marks it, so it would behave as reno; "
                f"use one of {others}"
            )
        elif name not in {*here, *guest}:
            yield (
                f"congestion_control.{level}: {name!r} is no congestion control of this kernel ({', '.join(here)}) or "
                f"of the guest's ({', '.join(guest)}); use one of theirs"
            )


def require(engine: Engine, controls: Mapping[str, str]) -> None:
    """Raise UsageError if an engine's kernel lacks one of a ``congestion_control`` by service level."""
    have = engine.congestion_controls()
    for level, name in controls.items():
        if name not in have:
            raise UsageError(
                f"congestion_control.{level}: {name!r} is not in the kernel of --engine {engine}, which has "
                f"{', '.join(have)}; use one of them or the other engine"
            )
