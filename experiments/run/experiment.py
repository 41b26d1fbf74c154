"""What an experiment is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.run.config import RunConfig
from experiments.run.session import Session

_HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Experiment:
    """One question. ``run`` plays it in a session and returns its summary; ``see_also``: what to run after it."""

    name: str
    question: str
    config: type[RunConfig]
    run: Callable[[Session, Any], dict[str, Any]]
    see_also: str = ""

    @property
    def file(self) -> Path:
        """The YAML file with its defaults."""
        return _HERE / self.name / f"{self.name}.yaml"
