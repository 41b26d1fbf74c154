"""Faults as lines of ``failures:`` of a run's config."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cluster.faults.classes import Effect
from cluster.faults.drawing import Fault
from fabric.config import MOST_TIME_S
from fabric.errors import ConfigError
from fabric.failures.config import failure_line
from fabric.failures.line import FailureConfig
from fabric.units import format_time

_KEYS: dict[Effect, Callable[[Fault], dict[str, Any]]] = {
    Effect.GPU_ERROR: lambda fault: {"process": fault.target, "effect": "kill"},
    Effect.SILENT: lambda fault: {"silent": fault.target},
    Effect.CORRUPTION: lambda fault: {"process": fault.target, "effect": "kill"},
    Effect.SLOW_NIC: lambda fault: {"nic": f"{fault.target}:0", "rate": fault.kind.rate},
    Effect.LINK_CUT: lambda fault: {"port": fault.target},
    Effect.STORAGE_DOWN: lambda fault: {"silent": fault.target},
    Effect.WRONG_DATA: lambda fault: {"disk": fault.target, "effect": "rot", "chunks": 1},
    Effect.SWITCH_DOWN: lambda fault: {"switch": fault.target},
}
AGAIN_S = 5.0
"""After how long the agent of a node is begun again on which a fault of no Xid ended all programs."""
_OF_GPUS = frozenset({Effect.GPU_ERROR, Effect.CORRUPTION})
_DEADLY = _OF_GPUS | {Effect.SILENT, Effect.STORAGE_DOWN}
_NO_END = _OF_GPUS | {Effect.WRONG_DATA}
"""What has no end in a run: programs that were killed, bits that are wrong."""
_MOST_ENTRIES = 10_000


def entries(
    faults: Iterable[Fault], faster: float = 1.0, most: int = _MOST_ENTRIES, on_platform: bool = False
) -> list[dict[str, Any]]:
    """Return faults as lines of ``failures:``, in their order, with times as they are.

    ``on_platform``: for a platform that keeps health: errors of GPUs are told by their Xid, and where a fault has none,
    the agent of its node is begun again.

    With ``faster`` only the times between faults are shorter by this factor: what a fault does lasts as long as it
    does, or until it is repaired; what needs no repair (0) and says no duration has no end. Raises ConfigError if there
    are more than ``most``, or one begins later than a config may say.
    """
    found = list(faults)
    if len(found) > most:
        raise ConfigError("faults", [f"{len(found)}, but a config has {most} at most; take a shorter time"])
    late = [fault for fault in found if fault.at_s / faster > MOST_TIME_S]
    if late:
        raise ConfigError(
            "faults",
            [
                f"{late[0].target} fails after {format_time(late[0].at_s / faster)}, but a config's times end at "
                f"{format_time(MOST_TIME_S)}; take a shorter time, or raise 'faster' ({faster:g})"
            ],
        )
    return [_entry(fault, faster, on_platform) for fault in found]


def while_alive(faults: Iterable[Fault]) -> list[Fault]:
    """Return faults in order of time without those that hit programs which one before has killed for good."""
    found, dead = [], set[str]()
    for fault in sorted(faults):
        if fault.effect not in _DEADLY or fault.target not in dead:
            found.append(fault)
        if fault.effect in _OF_GPUS:
            dead.add(fault.target)
    return found


def _entry(fault: Fault, faster: float, on_platform: bool) -> dict[str, Any]:
    line = {**_KEYS[fault.effect](fault), "at": round(fault.at_s / faster, 9)}
    if on_platform and fault.effect in _OF_GPUS:
        xid = fault.kind.known_xid
        again = {"process": fault.target, "effect": "restart", "for": AGAIN_S}
        return {**(again if xid is None else {"gpu": fault.target, "xid": xid}), "at": line["at"]}
    lasts_s = fault.kind.duration or fault.kind.repair
    if lasts_s and fault.effect not in _NO_END:
        line["for"] = lasts_s
    return line


def configs(faults: Iterable[Fault], faster: float = 1.0) -> list[FailureConfig]:
    """Return faults as checked lines of ``failures:``. Raises ConfigError as :func:`entries` does."""
    return [failure_line(line) for line in entries(faults, faster)]
