"""What the terminal shows of a run that plays."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from app.commands import progress
from app.commands.watching import LiveDisplay, busiest_ports
from fabric.world.virtual.watch import GuestTime
from runs import console
from runs.launching.events import PhaseProgress, VerdictSoFar, decoded, encoded
from tests.live_run import Playing


def text_of(shown: object) -> str:
    made = Console(file=io.StringIO(), width=120)
    made.print(shown)
    assert isinstance(made.file, io.StringIO)
    return made.file.getvalue()


def test_the_busiest_port_comes_first_with_its_rate_and_queue(tmp_path: Path) -> None:
    playing = Playing(tmp_path / "live")
    playing.begin("One")
    playing.sample(4)
    (series,) = playing.live.series()
    lines = text_of(busiest_ports(playing.live, series)).splitlines()
    assert "One [shared], jobs: storage, verdict so far: none yet" in lines[0]
    assert [cell.strip() for cell in lines[4].strip("│ ").split("│")] == [playing.ports[0], "50%", "500 Mbit/s", "3 B"]


def test_events_reach_the_page_and_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120, _environ={})
    monkeypatch.setattr(progress, "ERR", terminal)
    monkeypatch.setattr(console, "ERR", terminal)
    playing = Playing(tmp_path / "live")
    with LiveDisplay(playing.live) as display:
        for event in (PhaseProgress("One", 0.5), GuestTime(12.5, 2.0), VerdictSoFar("degraded", ("slow",), 1)):
            display.report(event)
        playing.begin("One")
        playing.sample(3)
        shown = text_of(display._passing())
    found = playing.live.progress
    assert (found.phase, found.fraction, found.verdict, found.reasons) == ("One", 0.5, "degraded", ("slow",))
    assert found.clock == "virtual time 0.50 s, wall time 2.0 s, ratio 0.25"
    assert "verdict so far: degraded" in shown
    assert playing.ports[0] in shown


def test_a_verdict_so_far_travels_as_a_line() -> None:
    event = VerdictSoFar("faithful", ("a", "b"), 3)
    again = decoded(encoded(event))
    assert isinstance(again, VerdictSoFar)
    assert (again.status, tuple(again.reasons), again.phases) == ("faithful", ("a", "b"), 3)
