"""The experiments by name, found in their folders. To list them loads nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from fabric.errors import ConfigError
from runs.definition import DEFINITION, HOME, Experiment


class _Ours(Mapping[str, Experiment]):
    """The experiments in this package's folders by name; each is imported when it is first asked for.

    A run needs one of them, and three of its processes would import all.
    """

    def __init__(self) -> None:
        self._folders = {path.parent.name: path.parent for path in sorted(HOME.glob(f"*/{DEFINITION}"))}

    def __getitem__(self, name: str) -> Experiment:
        return defined(f"{HOME.name}.{name}", self._folders[name])

    def __contains__(self, name: object) -> bool:
        return name in self._folders

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)


def defined(package: str, folder: Path) -> Experiment:
    """Return the experiment that a package defines. Raises ConfigError if there is none in it."""
    experiment = getattr(importlib.import_module(f"{package}.experiment"), "EXPERIMENT", None)
    if not isinstance(experiment, Experiment):
        missing = "defines no EXPERIMENT; make it a runs.definition.Experiment"
        raise ConfigError(str(folder / DEFINITION), [missing])
    return experiment


EXPERIMENTS: Mapping[str, Experiment] = _Ours()
