"""One module per question, with its config and its figures; the command that runs them, and the same from Python::

from experiments import RunSpec, launch, load
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.run.launcher import launch as launch
    from experiments.run.launcher import load as load
    from experiments.run.spec import RunSpec as RunSpec

_HOMES = {"RunSpec": "experiments.run.spec", "launch": "experiments.run.launcher", "load": "experiments.run.launcher"}


def __getattr__(name: str) -> Any:
    """Load what is asked for, when it is: the command is to answer at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
