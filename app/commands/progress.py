"""A run's events, shown on the terminal as they come."""

from __future__ import annotations

from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fabric.world.virtual.watch import GuestTime
from runs.console import ERR, tell
from runs.launching.events import Event, Note, PhaseProgress

_REFRESHES_PER_S = 4


class Display:
    """Notes are lines that stay. Below them are a bar for the phase that plays, and how far virtual time is, if the run
    is in a guest; its last word on that stays, too."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:<40}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=ERR)
        self._phase = self._bar.add_task("", total=1.0, visible=False)
        self._clock = ""
        self._live = Live(
            console=ERR, transient=True, refresh_per_second=_REFRESHES_PER_S, get_renderable=self._passing
        )

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._live.stop()
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

    def _passing(self) -> RenderableType:
        """Return what is drawn anew while the run goes on."""
        return Group(self._bar, *([Text(self._clock, style="dim")] if self._clock else []))

    def _show(self, title: str, fraction: float) -> None:
        if title != self._bar.tasks[0].description:
            self._bar.reset(self._phase, total=1.0, visible=True)
            if not ERR.is_terminal:  # Nobody sees the bar there, and a long phase would look like what came before it.
                tell(title)
        self._bar.update(self._phase, description=title, completed=fraction)
