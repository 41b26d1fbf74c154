"""A run's events, shown on the terminal as they come."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from fabric.world.virtual.watch import GuestTime
from runs.console import ERR, tell
from runs.launching.events import Event, Note, PhaseProgress

_REFRESHES_PER_S = 4
_SILENT_S = 20.0
"""The longest silence where there is no bar."""


class Display:
    """Notes are lines that stay. Below them are a bar for the phase that plays, and how far virtual time is, if the run
    is in a guest; its last word on that stays, too. Where nobody sees the bar, a line says what is played after some
    time without one. ``now``: returns seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._said_s = now, now()
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
            self._tell(event.text)
        elif isinstance(event, PhaseProgress):
            self._show(event.title, event.fraction)
        elif isinstance(event, GuestTime):
            self._clock = str(event)
        if not ERR.is_terminal and self._now() - self._said_s >= _SILENT_S:
            task = self._bar.tasks[0]
            played = f"{task.description}: {task.percentage:.0f} %" if task.description else ""
            self._tell(", ".join(filter(None, (played, self._clock))) or "at work")

    def _tell(self, text: str) -> None:
        tell(text)
        self._said_s = self._now()

    def _passing(self) -> RenderableType:
        """Return what is drawn anew while the run goes on."""
        return Group(self._bar, *([Text(self._clock, style="dim")] if self._clock else []))

    def _show(self, title: str, fraction: float) -> None:
        if title != self._bar.tasks[0].description:
            self._bar.reset(self._phase, total=1.0, visible=True)
            if not ERR.is_terminal:  # Nobody sees the bar there, and a long phase would look like what came before it.
                self._tell(title)
        self._bar.update(self._phase, description=title, completed=fraction)
