"""What an experiment is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.run.config import RunConfig
from experiments.run.session import Session


@dataclass(frozen=True)
class Experiment:
    """One question, and the folder that answers it, by whose name it is known. ``config`` checks its YAML file and
    ``run`` plays it in a session and returns its summary; ``see_also``: what to run after it."""

    folder: Path
    question: str
    config: type[RunConfig]
    run: Callable[[Session, Any], dict[str, Any]]
    see_also: str = ""

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def file(self) -> Path:
        """The YAML file with its defaults."""
        return self.folder / f"{self.name}.yaml"
