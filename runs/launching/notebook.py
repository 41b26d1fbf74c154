"""What a run reports, shown in a notebook: one line of what is done, then one for each phase, which fill up."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from typing import Any

from runs.launching.events import Event, Note, PhaseProgress

_CELLS = 20


def notebook_progress(experiment: str, engine: str) -> NotebookProgress | None:
    """Return what shows a run below the cell that plays it; None if this is not a notebook.

    ``engine``: the one that was chosen, which the first line names.
    """
    display = notebook_display()
    return None if display is None else NotebookProgress(display, f"{experiment}, engine {engine}")


def notebook_display() -> Any | None:
    """Return IPython's ``display``, which shows something below the cell that runs; None if this is not a notebook."""
    shell = sys.modules.get("IPython")  # Who runs in a notebook has loaded it.
    here = shell.get_ipython() if shell is not None else None
    if here is None or not hasattr(here, "kernel"):  # None of a terminal has one, and there is nothing to draw on.
        return None
    from importlib import import_module

    return import_module("IPython.display").display


@dataclass(frozen=True)
class Line:
    """A line of text, which a notebook shows with the font that keeps bars aligned."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<pre style="margin:0;color:inherit;background:none">{escape(self.text)}</pre>'


class NotebookProgress:
    """Shows a run by ``display`` of IPython. ``run``: how lines call it, of which several may play at once."""

    def __init__(self, display: Any, run: str) -> None:
        self._display, self._run = display, run
        self._handles: dict[str, Any] = {}
        self._show("", run)

    def report(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Note):
            self._show("", f"{self._run}: {event.text}")
        elif isinstance(event, PhaseProgress):
            done = round(event.fraction * _CELLS)
            bar = "█" * done + "░" * (_CELLS - done)
            self._show(event.title, f"  {bar} {event.fraction:4.0%}  {event.title}")

    def end(self, outcome: str) -> None:
        """Show how the run ended where it was shown what it did."""
        self._show("", f"{self._run}: {outcome}")

    def _show(self, name: str, text: str) -> None:
        """Update a line, or begin it."""
        if name in self._handles:
            self._handles[name].update(Line(text))
        else:
            self._handles[name] = self._display(Line(text), display_id=True)
