"""What a terminal shows of a run: notes that stay, the phase that plays, and virtual time as it passes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from app.commands import progress
from app.commands.progress import Display
from fabric.world.virtual.watch import GuestTime
from runs import console
from runs.launching.events import Note, PhaseProgress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to a terminal."""
    shown = io.StringIO()
    made = Console(file=shown, force_terminal=True, width=120, _environ={})
    monkeypatch.setattr(progress, "ERR", made)
    monkeypatch.setattr(console, "ERR", made)
    return shown


def drawn(display: Display, terminal: io.StringIO) -> str:
    """Return what is drawn at the next refresh."""
    before = len(terminal.getvalue())
    display._live.refresh()
    return terminal.getvalue()[before:]


def test_virtual_time_is_shown_while_it_passes(terminal: io.StringIO) -> None:
    with Display() as display:
        assert "virtual time" not in drawn(display, terminal)
        display.report(GuestTime(virtual_s=13.5, wall_s=3.0))
        assert "virtual time 1.50 s, wall time 3.0 s, ratio 0.50" in drawn(display, terminal)
        display.report(PhaseProgress("HFReduce alone", 0.25))
        display.report(GuestTime(virtual_s=14.0, wall_s=4.0))
        shown = drawn(display, terminal)
        assert "HFReduce alone" in shown
        assert "virtual time 2.00 s, wall time 4.0 s, ratio 0.50" in shown
    assert terminal.getvalue().rstrip().endswith("virtual time 2.00 s, wall time 4.0 s, ratio 0.50\x1b[0m")


def test_a_run_in_real_time_shows_its_phase_and_no_clock(terminal: io.StringIO) -> None:
    with Display() as display:
        display.report(PhaseProgress("storage alone", 0.5))
        assert "storage alone" in drawn(display, terminal)
    assert "virtual time" not in terminal.getvalue()


def test_notes_stay_as_lines(terminal: io.StringIO) -> None:
    with Display() as display:
        display.report(GuestTime(virtual_s=12.5, wall_s=1.0))
        display.report(Note("calibrating every kind of link"))
    assert terminal.getvalue().count("calibrating every kind of link") == 1


def test_a_file_gets_lines_and_nothing_that_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    made = Console(file=written, width=120, _environ={})
    monkeypatch.setattr(progress, "ERR", made)
    monkeypatch.setattr(console, "ERR", made)
    with Display() as display:
        display.report(Note("up"))
        display.report(PhaseProgress("alone", 0.0))
        display.report(PhaseProgress("alone", 0.5))
        display.report(GuestTime(virtual_s=12.5, wall_s=1.0))
        display.report(PhaseProgress("together", 0.0))
    lines = ["up", "alone", "together", "virtual time 0.50 s, wall time 1.0 s, ratio 0.50"]
    assert written.getvalue().splitlines() == lines


def test_where_there_is_no_bar_a_silent_stretch_says_what_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    plain = Console(file=shown, force_terminal=False, width=120, _environ={})
    monkeypatch.setattr(progress, "ERR", plain)
    monkeypatch.setattr(console, "ERR", plain)
    clock_s = [100.0]
    with Display(lambda: clock_s[0]) as display:
        display.report(PhaseProgress("all jobs", 0.0))
        for fraction, at_s in ((0.1, 110.0), (0.25, 121.0), (0.3, 130.0), (0.5, 142.0)):
            clock_s[0] = at_s
            display.report(PhaseProgress("all jobs", fraction))
    assert shown.getvalue().split("\n")[:-1] == ["all jobs", "all jobs: 25 %", "all jobs: 50 %"]
