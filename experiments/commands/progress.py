"""A run's events, shown on the terminal as they come."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.launching.events import Event, Note, PhaseProgress
from experiments.run.console import ERR, tell
from fabric.world.virtual.watch import GuestTime


class Display:
    """A bar for the phase that plays, a line for how far virtual time is, and notes as lines that stay."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:<40}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=ERR, transient=True)
        self._phase = self._bar.add_task("", total=1.0, visible=False)
        self._clock = ""

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._bar.stop()
        if self._clock:
            tell(self._clock)

    def report(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Note):
            tell(event.text)
        elif isinstance(event, PhaseProgress):
            self._show(event.title, event.fraction)
        elif isinstance(event, GuestTime):
            self._clock = str(event)

    def _show(self, title: str, fraction: float) -> None:
        if title != self._bar.tasks[0].description:
            self._bar.reset(self._phase, total=1.0, visible=True)
        self._bar.update(self._phase, description=title, completed=fraction)
