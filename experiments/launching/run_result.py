"""A run's result with all that a caller asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RunResult(Result):
    """A run's directory, read: verdict, metrics, tables as data frames, and figures."""

    def figure(self, name: str) -> Figure:
        """Return a figure, drawn anew; it has the names of the files in ``figures``. Raises ResultError if there is
        none of that name, or nothing to show in it."""
        from fabric.report.figures import draw_figure  # Which takes a second to load.

        return draw_figure(self, name)
