"""One module per question, with its config and its figures; the command that runs them, and the same from Python::

from experiments import Machines, RunSpec, launch, load, sweep
"""

# A package of ai-fabric-emulator (app/whose_packages.py).

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runs.launching.launcher import launch as launch
    from runs.launching.launcher import load as load
    from runs.launching.spec import RunSpec as RunSpec

_LAUNCHING = "runs.launching"
_HOMES = {
    "Machines": "app.machines",
    "RunSpec": f"{_LAUNCHING}.spec",
    "launch": f"{_LAUNCHING}.launcher",
    "load": f"{_LAUNCHING}.launcher",
    "sweep": "app.sweeps.from_python",
}


def __dir__() -> list[str]:
    """Return what completion is to offer, loaded or not."""
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> Any:
    """Load what is asked for, when it is: the command is to answer at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
