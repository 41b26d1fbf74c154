"""What a controller keeps of what it has done."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from controllers.app import event_log
from controllers.app.event_log import EventLog


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> EventLog:
    """A log whose clock counts what was noted: the events of a decision are those of a second."""
    times = iter(range(10**9))
    monkeypatch.setattr(event_log, "time", SimpleNamespace(monotonic=lambda: next(times) // 4))
    return EventLog()


def test_no_move_is_forgotten_however_long_a_run_is(log: EventLog) -> None:
    """Each decision of adaptive routing makes these events; at the shortest period, 6,000 are made in half a minute."""
    for number in range(6_000):
        log.note("moved", moves=[["z0l00", "10.0.0.1", number]])
        for kind in ("planned", "round", "installed"):
            log.note(kind)
    moves = [event["moves"][0][2] for event in log.events if event["kind"] == "moved"]
    assert moves == list(range(6_000))
    assert [event["at_s"] for event in log.events] == sorted(event["at_s"] for event in log.events)


def test_events_that_are_dropped_are_counted(log: EventLog) -> None:
    for number in range(20_000):
        log.note("round", number=number)
    assert len(log.events) == 20_000
    for number in range(3):
        log.note("round", number=20_000 + number)
    dropped, first, *_, last = log.events
    assert (dropped["kind"], dropped["count"]) == ("dropped", 3)
    assert (first["number"], last["number"]) == (3, 20_002)
    assert dropped["at_s"] <= first["at_s"]
