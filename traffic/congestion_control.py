"""The TCP congestion controls that a run can have: those of its engine's kernel whose signals its queues provide."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fabric.errors import UsageError
from fabric.virtual.kernel import HERE as GUEST_SOURCES
from fabric.world import Engine, current_engine

_LOADED = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_MODULES = Path("/lib/modules")
_NO_CONGESTION_CONTROL = {"diag"}
"""Of what kernels have as ``tcp_*``."""
_BUILT_IN = "reno"
"""Every kernel has it, without an option."""
STEERED_BY_ECN = ("dctcp",)
"""Without marks they behave as reno. No queue marks."""


def available(engine: Engine) -> tuple[str, ...]:
    """Return the congestion controls of an engine's kernel: loaded ones and modules that a socket may ask for."""
    if engine is Engine.VIRTUAL and current_engine() is Engine.NAMESPACE:
        return _of_guest((GUEST_SOURCES / "kernel.config").read_text())
    modules = (_MODULES / platform.release()).glob("kernel/net/ipv4/tcp_*.ko*")
    loadable = {path.name.partition(".")[0].removeprefix("tcp_") for path in modules}
    return tuple(sorted({*_LOADED.read_text().split(), *loadable} - _NO_CONGESTION_CONTROL))


def _of_guest(kernel_config: str) -> tuple[str, ...]:
    named = re.findall(r"^CONFIG_TCP_CONG_(\w+)=y$", kernel_config, re.MULTILINE)
    return tuple(sorted({_BUILT_IN, *(name.lower() for name in named if name != "ADVANCED")}))


def faults(controls: Mapping[str, str]) -> Iterator[str]:
    """Yield what no engine can do of a ``congestion_control`` by service level."""
    here, guest = available(Engine.NAMESPACE), available(Engine.VIRTUAL)
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
    have = available(engine)
    for level, name in controls.items():
        if name not in have:
            raise UsageError(
                f"congestion_control.{level}: {name!r} is not in the kernel of --engine {engine.value}, which has "
                f"{', '.join(have)}; use one of them or the other engine"
            )
