"""What an experiment is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.run.config import RunConfig
from experiments.run.session import Session
from fabric.errors import ResultError
from fabric.tables import Table

if TYPE_CHECKING:
    from fabric.report.figures import FigureSpec, RepeatedSpec

HOME = Path(__file__).parents[1]
"""The folder of the experiments that come with the program."""


@dataclass(frozen=True)
class Experiment:
    """One question, and the folder that answers it, by whose name it is known. ``config`` checks its YAML file and
    ``run`` plays it in a session and returns its summary; ``see_also``: what to run after it.

    ``tables``: those that its results have in addition to :data:`fabric.tables.TABLES`; a run adds rows by
    ``session.keep_frame``. ``figures``: the name of the module whose ``FIGURES`` are those that only its results have.
    It is loaded when something is drawn, for to load what draws takes a second. Its ``REPEATED``, if it has
    that, are those over several runs (``--repeat``).
    """

    folder: Path
    question: str
    config: type[RunConfig]
    run: Callable[[Session, Any], dict[str, Any]]
    see_also: str = ""
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: str | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.folder.name

    @property
    def file(self) -> Path:
        """The YAML file with its defaults."""
        return self.folder / f"{self.name}.yaml"

    @property
    def in_manifest(self) -> dict[str, str | None]:
        """What a manifest says of it, by which :func:`experiments.registry.experiment_of` finds it again."""
        folder = self.foreign_folder
        return {"experiment": self.name, "experiment_folder": None if folder is None else str(folder)}

    @property
    def foreign_folder(self) -> Path | None:
        """Its folder, if it does not come with the program."""
        return None if self.folder.parent == HOME else self.folder

    def load_figures(self) -> Sequence[FigureSpec]:
        """Return the figures that only its results have. Raises ResultError if their module cannot be loaded."""
        if self.figures is None:
            return ()
        found: Sequence[FigureSpec] = self._of_figures("FIGURES")
        return found

    def load_repeated_figures(self) -> Sequence[RepeatedSpec]:
        """Return the figures over several runs that only it has. Raises ResultError as :meth:`load_figures`."""
        if self.figures is None:
            return ()
        found: Sequence[RepeatedSpec] = self._of_figures("REPEATED", ())
        return found

    def _of_figures(self, name: str, *otherwise: Any) -> Any:
        assert self.figures is not None
        try:
            return getattr(importlib.import_module(self.figures), name, *otherwise)
        except Exception as error:  # It may be somebody's own code; the rest of a result is good without it.
            raise ResultError(f"{self.figures} cannot be loaded: {type(error).__name__}: {error}") from error
