"""Where Mininet is: it comes with the distribution, for the distribution's own Python, and a venv does not look there.

It is pure Python, so any Python can take it from there.
"""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.programs.packages import OF_DISTRIBUTION, know_packages

NAME = "mininet"


class MininetMissingError(EmulationError, ImportError):
    """Mininet is not installed."""


def folder() -> Path | None:
    """Return the folder of Mininet's package, wherever this Python or the distribution has it; None: nowhere."""
    spec = importlib.util.find_spec(NAME)
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    found = OF_DISTRIBUTION / NAME
    return found if (found / "__init__.py").is_file() else None


def make_importable() -> None:
    """Let ``import mininet`` work from here on. Raises MininetMissingError."""
    found = folder()
    if found is None:
        raise MininetMissingError(f"{NAME}: not installed; install the distribution's package: apt-get install {NAME}")
    if importlib.util.find_spec(NAME) is None:
        know_packages({NAME: str(found)})


def version() -> str | None:
    """Return Mininet's version, if it is installed and says one."""
    found = folder()
    if found is None:
        return None
    return next((one.version for one in metadata.distributions(name=NAME, path=[str(found.parent)])), None)
