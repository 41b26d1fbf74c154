"""RDMA devices on hosts: ``mlx5_0`` for ``eth0``, soft RoCE v2 (rxe) of the guest's kernel.

A host's are made with all else that it has to itself, if the run offers verbs (:func:`offer`). Without, libraries that
prefer RDMA take sockets.
"""

from __future__ import annotations

from fabric.errors import UsageError
from fabric.world.engine import Engine
from fabric.world.programs.hosts import FOLDER
from fabric.world.programs.preload import polled_queues
from fabric.world.virtual import kernel

_OFFERED = FOLDER / "verbs"
"""``host_programs.c`` knows it, too."""


def why_not(engine: Engine) -> str | None:
    """Return why hosts have no RDMA devices in an engine on this machine, and what would mend it; None: they can."""
    if not engine.has_own_kernel:
        return (
            "Linux's soft RoCE works in one network namespace, not in hosts; use the virtual engine (--engine virtual)"
        )
    found = kernel.find()
    if found is None:
        return "the guest kernel is not built; build it with: fabric virtual build"
    if not found.has_verbs:
        return (
            f"the guest kernel {found.name} was built of a source without; {kernel.CHOICE}=6.1 chooses one that has it"
        )
    return None


def require(engine: Engine, asked: str) -> None:
    """Raise UsageError with the reason if hosts cannot have RDMA devices in an engine on this machine.

    ``asked`` is the option or the config key that asks for them.
    """
    if reason := why_not(engine):
        raise UsageError(f"{asked}: no RDMA devices here: {reason}")


def offer() -> None:
    """Let each host on which no program has started yet have an RDMA device per NIC.

    Raises EmulationError without a compiler, for the library that is preloaded into programs that poll.
    """
    _OFFERED.write_text(str(polled_queues()))
