"""A run's result with all that a caller asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.errors import ResultError
from fabric.measures import Measure
from fabric.results import Result
from fabric.tables import Table
from runs.definition import Experiment
from runs.registry import experiment_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fabric.report.figures import FigureSpec

# What draws takes a second to load, so methods load it.
_PHASES_SHOWN = 4


class RunResult(Result):
    """A run's directory, read: verdict, metrics, tables as data frames, and figures, those of its experiment included.

    The code of a folder that does not come with the program is loaded for them only if its user has run it on this
    machine, or ``experiment_folder`` names it: a manifest may name any. Without it the tables and figures
    that all results have are still there, and ``missing`` says why the others are not. Raises ResultError if there is
    no result, UsageError if the folder is another experiment's.
    """

    def __init__(self, directory: Path, experiment_folder: Path | None = None) -> None:
        super().__init__(directory)
        self._experiment: Experiment | None = None
        self._unknown: str | None = None
        try:
            self._experiment = experiment_of(self.manifest, directory, experiment_folder)
        except ResultError as error:
            self._unknown = str(error)

    def __repr__(self) -> str:
        manifest, names = self.manifest, [phase.name for phase in self.phases]
        shown = ", ".join(names[:_PHASES_SHOWN]) + (", ..." if len(names) > _PHASES_SHOWN else "")
        facts = f"{manifest.get('experiment')}, {self.verdict['status']}, seed {manifest.get('seed')}"
        return f"<RunResult {facts}, engine {manifest.get('engine')}, {len(names)} phases ({shown}), {self.directory}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: answer, verdict, main figure if it is drawn, and the first metrics."""
        from fabric.report.glance import as_html

        return as_html(self, self.answer, [spec.name for spec in self._own[0]])

    @property
    def answer(self) -> str | None:
        """The answer in a sentence; None if the experiment gives none."""
        answer = self.summary.get("answer")
        return None if answer is None else str(answer)

    def metric(self, path: str) -> float:
        """Return a metric by what names it in ``summary.json`` and ``runs.csv``: ``lanes.hfreduce.algbw_Bps``.

        Its unit is the end of its name. Raises ResultError, with the nearest names, if there is none of this name.
        """
        found = self.metrics
        values = found.loc[found["path"] == path, "value"]
        if values.empty:
            raise ResultError(f"metric {path!r}: {_no_metric(path, found['path'].astype(str).tolist())}")
        return float(values.iloc[0])

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """What its metrics mean: those that several experiments report, and those of its own."""
        from runs.measures import SHARED

        return (*(self._experiment.load_measures() if self._experiment else ()), *SHARED)

    @cached_property
    def known_tables(self) -> Mapping[str, Table]:
        """The tables that its run may have written, by name."""
        from runs.kinds import tables_of_jobs

        of_experiment = self._experiment.load_tables() if self._experiment else {}
        return {**super().known_tables, **tables_of_jobs(), **of_experiment}

    @cached_property
    def _own(self) -> tuple[Sequence[FigureSpec], str | None]:
        """The figures of its experiment, and why they are missing."""
        if self._experiment is None:
            return (), self._unknown
        try:
            return self._experiment.load_figures(), None
        except ResultError as error:
            return (), str(error)

    @property
    def missing(self) -> str | None:
        """What of the experiment itself is missing, and why; None if nothing is."""
        what = "figures" if self._experiment else "tables and figures"
        reason = self._own[1]
        return reason and f"{what} that only the experiment {self.manifest.get('experiment')} has are missing: {reason}"

    @property
    def not_drawn(self) -> dict[str, str]:
        """Of the experiment's figures those that the result cannot show, for another version wrote it, and why."""
        return {spec.name: why for spec in self._own[0] if (why := spec.lacks(self))}

    @property
    def figures(self) -> list[str]:
        """The names of the figures that :meth:`figure` knows, those of its experiment first; a run without the samples
        of one has nothing to show in it."""
        from fabric.report.figures import all_figures

        not_drawn = self.not_drawn
        return [name for name in all_figures(self._own[0]) if name not in not_drawn]

    def figure(self, name: str, *, width_in: float | None = None, bare: bool = False) -> Figure:
        """Return a figure, drawn anew; it has the names of the files in ``figures``.

        ``width_in``: of a page's or column's width in inches, with text to be read at that size. ``bare``: without
        title, verdict and provenance, for a caption of your own. Raises ResultError if there is none of that name, or
        nothing to show in it, and UsageError for a width that it does not fit in.
        """
        from fabric.report.figures import draw_figure
        from fabric.report.paper import Paper

        return draw_figure(self, name, self._own[0], Paper(width_in, bare))

    def draw_all(self) -> list[Path]:
        """Draw every figure that it has samples for into its folder ``figures``; returns PNG and SVG of each."""
        from fabric.report.figures import draw_all

        return draw_all(self, self._own[0])

    def draw_files(self, directory: Path, names: Sequence[str], formats: Sequence[str]) -> list[Path]:
        """Draw the figures of these names, or all that it has samples for, in these formats; returns the files."""
        from fabric.report.figures import draw_files

        return draw_files(self, self._own[0], directory, names, formats)

    def write_report(self, *, main_figure_only: bool = False) -> Path:
        """Draw its figures anew, write its ``report.html`` and return the page's path.

        ``main_figure_only``: only the one that answers most.
        """
        from fabric.report.page import write_report

        return write_report(self, self._own[0], self.missing, main_figure_only=main_figure_only)


def _no_metric(path: str, known: list[str]) -> str:
    """Return why there is no such metric, and which may have been meant."""
    if not known:
        return "the run has no metrics"
    if near := get_close_matches(path, known, n=3, cutoff=0.5):
        return f"does not exist; did you mean {' or '.join(near)}? All are in result.metrics['path']"
    return f"does not exist; there are {', '.join(known[:3])} and others in result.metrics['path']"
