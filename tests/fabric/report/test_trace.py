"""The trace holds what the format asks of each event, and what the run's tables say."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fabric.errors import UsageError
from fabric.report.trace import trace_of, write_trace
from fabric.report.view.model import View, view_of
from fabric.results import Result
from tests.synthetic_result import Recipe, write_result

NEEDED = {
    "X": {"name", "pid", "tid", "ts", "dur"},
    "b": {"name", "cat", "id", "pid", "tid", "ts"},
    "e": {"name", "cat", "id", "pid", "tid", "ts"},
    "C": {"name", "pid", "ts", "args"},
    "i": {"name", "pid", "tid", "ts", "s"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "M": {"name", "pid", "args"},
}
"""What the description of the format asks of each type of event."""
Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return view_of(Result(write_result(tmp_path_factory.mktemp("result") / "one", Recipe())))


@pytest.fixture(scope="module")
def events(view: View, tmp_path_factory: pytest.TempPathFactory) -> Events:
    path = tmp_path_factory.mktemp("trace") / "timeline.json"
    assert write_trace(view, path) == []
    found: Events = json.loads(path.read_text())["traceEvents"]
    return found


def of_kind(events: Events, kind: str) -> Events:
    return [event for event in events if event["ph"] == kind]


def track(events: Events, process: str, thread: str) -> Events:
    """Return the slices of a track by its names."""
    (pid,) = (e["pid"] for e in of_kind(events, "M") if e["name"] == "process_name" and e["args"]["name"] == process)
    named = (e for e in of_kind(events, "M") if e["name"] == "thread_name" and e["pid"] == pid)
    (tid,) = (e["tid"] for e in named if e["args"]["name"] == thread)
    return [e for e in of_kind(events, "X") if (e["pid"], e["tid"]) == (pid, tid)]


def test_events_have_what_the_format_asks(events: Events) -> None:
    assert {event["ph"] for event in events} == NEEDED.keys()
    for event in events:
        assert NEEDED[event["ph"]] <= event.keys(), event
        if event["ph"] != "M":
            assert isinstance(event["ts"], int | float)
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "i":
            assert event["s"] in ("g", "p", "t")
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, int | float) for value in event["args"].values())


def test_slices_of_a_track_nest(events: Events) -> None:
    tracks = defaultdict(list)
    for event in of_kind(events, "X"):
        if event.get("args", {}).get("phase") != "mixed_shared":  # Its made-up steps outlast it.
            tracks[event["pid"], event["tid"]].append(event)
    for slices in tracks.values():
        ends: list[float] = []
        for event in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
            while ends and ends[-1] <= event["ts"] + 0.01:
                ends.pop()
            assert not ends or event["ts"] + event["dur"] <= ends[-1] + 0.01, event
            ends.append(event["ts"] + event["dur"])


def test_beginnings_have_ends_and_arrows_two(events: Events) -> None:
    for begin, end in (("b", "e"), ("s", "f")):
        begun, ended = (sorted((e["cat"], str(e["id"])) for e in of_kind(events, kind)) for kind in (begin, end))
        assert begun == ended
        assert begun
        assert len(set(begun)) == len(begun)


@pytest.mark.parametrize("host", ["z0h000", "z0h001"])
def test_ranks_have_their_own_steps_and_wait_for_the_last(events: Events, view: View, host: str) -> None:
    steps = view.result.table("rank_steps")
    steps = steps[steps["host"] == host].sort_values("started_s")
    slices = track(events, "job hfreduce", host)
    found = [e for e in slices if e["name"].startswith("step ")]
    waits = [e for e in slices if e["name"] == "wait for other ranks"]
    assert len(found) == len(waits) == len(steps) > 20
    ends = view.result.table("steps")["ended_s"]
    assert sorted(e["ts"] + e["dur"] for e in waits) == pytest.approx(sorted(ends * 1e6), abs=0.01)
    assert [e["ts"] for e in found] == pytest.approx((steps["started_s"] * 1e6).tolist(), abs=0.01)
    assert [e["dur"] for e in found] == pytest.approx(
        ((steps["ended_s"] - steps["started_s"]) * 1e6).tolist(), abs=0.01
    )


def test_counters_are_the_samples(events: Events, view: View) -> None:
    """Each sample is what the last event says up to its time: events are there when a lane changes."""
    ports = view.result.table("ports")
    counters = [e for e in of_kind(events, "C") if e["name"] == "z0l00:1 backlog, bytes"]
    rows = ports[ports["port"] == "z0l00:1"]
    assert len(rows) > 100
    for row in rows.sample(60, random_state=1).to_dict("records"):
        said = [e["args"] for e in counters if e["ts"] <= 1e6 * row["at_s"] + 0.01][-1]
        assert said.get(row["lane"]) == row["backlog_bytes"]


def test_stalled_nics_are_below_their_ranks(events: Events) -> None:
    (stalled,) = track(events, "job storage", "z0h001:0 storage stalled")
    assert stalled["dur"] == pytest.approx(10e6)
    assert stalled["args"]["fraction"] == pytest.approx(0.3)
    assert [e["name"] for e in of_kind(events, "i")].count("storage paused") == 13


def test_a_large_trace_is_thinned_and_says_so(view: View, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    whole = sum(map(len, trace_of(view).encoded()))
    notes = write_trace(view, path, limit_bytes=whole * 3 // 4)
    assert path.stat().st_size <= whole * 3 // 4
    assert notes[0].startswith("thinned: counters have 1 of ")
    assert json.loads(path.read_text())["otherData"]["notes"] == notes


def test_a_trace_that_cannot_be_small_enough_is_refused(view: View, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs more than 1,000 bytes"):
        write_trace(view, tmp_path / "timeline.json", limit_bytes=1000)
    assert list(tmp_path.iterdir()) == []
