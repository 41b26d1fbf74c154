"""What failed, on the time axis of a run: links, programs and disks, each with its words."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from fabric.failures.kinds.disk import DiskState, DiskTarget
from fabric.failures.kinds.process import KILLED, STOPPED, ProgramState, ProgramTarget
from fabric.failures.report import Change, FaultReport, LinkChange
from fabric.failures.schedule import DOWN, WHOLE, LinkState
from fabric.report.figures import timeline
from fabric.report.trace import trace_of
from fabric.report.view.model import view_of
from fabric.report.view.spans import Span, happened_in
from fabric.results import Result
from fabric.tables import TABLES
from runs.phase_rows import failure_rows
from tests.synthetic_result import Recipe, write_result
from topologies.load import load_fabric

LINK = load_fabric("fire_flyer_2_tiny").links[0]


def rows(phase: str, began: float) -> pd.DataFrame:
    host = ProgramTarget("z0h001")
    rotten = {"detail": "chunk 3 of file 0", "jobs": ("storage",)}
    changes: list[tuple[Any, Any, Any, float, dict[str, Any]]] = [
        (LinkChange, LINK, DOWN, 1.0, {}),
        (Change, host, STOPPED, 1.0, {"jobs": ("hfreduce", "storage")}),
        (Change, DiskTarget("st000", 2), DiskState(rotten=1), 1.5, rotten),
        (LinkChange, LINK, WHOLE, 2.0, {}),
        (Change, host, ProgramState(), 2.0, {"jobs": ("hfreduce", "storage")}),
        (Change, ProgramTarget("st000", "storage"), KILLED, 3.0, {"jobs": ("storage",)}),
    ]
    made = [
        kind(target, state, began + at, began + at, began + at, (0,), **more)
        for kind, target, state, at, more in changes
    ]
    return pd.DataFrame(failure_rows(phase, FaultReport(tuple(made))), columns=list(TABLES["failures"].columns))


def result_of(directory: Path, **recipe: Any) -> Result:
    return Result(write_result(directory, Recipe(fabric="fire_flyer_2_tiny", **recipe)))


def test_each_failure_has_a_span_with_its_words(tmp_path: Path) -> None:
    result = result_of(tmp_path / "one", own={"failures": rows("mixed_lanes", 40.0)})
    last = max(phase.ended_s for phase in result.phases)
    found = [one for one in happened_in(result).spans if one.kind in ("cut", "failure")]
    assert sorted(found, key=lambda one: (one.begin_s, one.kind)) == [
        Span("cut", str(LINK), 41.0, 42.0, "no carrier", (str(LINK.a), str(LINK.b))),
        Span("failure", "programs on z0h001", 41.0, 42.0, "stopped"),
        Span("failure", "st000/2", 41.5, last, "1 chunks rotten: chunk 3 of file 0"),
        Span("failure", "storage on st000", 43.0, last, "killed"),
    ]


def test_the_timeline_shades_what_failed_of_each_job(tmp_path: Path) -> None:
    result = result_of(tmp_path / "one")
    (name,) = result.summary["timeline"]
    (phase,) = (one for one in result.phases if one.name == name)
    result = result_of(tmp_path / "two", own={"failures": rows(name, phase.started_s)})
    figure = timeline.timeline(result)
    assert figure is not None
    panels = figure.findobj(Axes)
    words = {panel.get_ylabel(): [text.get_text().strip() for text in panel.texts] for panel in panels}
    assert words == {
        "hfreduce\n(Mbit/s)": ["programs on z0h001: stopped"],
        "storage\n(Mbit/s)": ["programs on z0h001: stopped", "st000/2: 1 chunks rotten", "storage on st000: killed"],
    }
    shades = [patch.get_extents().transformed(panels[0].transData.inverted()) for patch in panels[0].patches]
    assert [(round(one.x0, 6), round(one.x1, 6)) for one in shades] == [(1.0, 2.0)]
    assert not math.isnan(phase.started_s)


def test_the_trace_has_failures_in_the_track_of_cuts(tmp_path: Path) -> None:
    result = result_of(tmp_path / "one", own={"failures": rows("mixed_lanes", 40.0)})
    events = trace_of(view_of(result)).events
    begun = [event for event in events if event["ph"] == "b" and event["cat"] in ("cut", "failure")]
    assert sorted(event["name"] for event in begun) == sorted(
        [str(LINK), "programs on z0h001", "st000/2", "storage on st000"]
    )
    assert len({event["tid"] for event in begun}) == 1


def test_each_change_is_an_event_and_whole_again_only_what_is(tmp_path: Path) -> None:
    slow, cut = LinkState(rate_fraction=0.5), LinkState(up=False, rate_fraction=0.5)
    killed, disk = ProgramTarget("st000", "storage"), DiskTarget("st001", 0)
    steps = [(LINK, slow, 1.0), (killed, KILLED, 2.0), (LINK, cut, 2.0), (LINK, slow, 3.0), (LINK, WHOLE, 5.0)]
    changes = tuple(
        (LinkChange if target is LINK else Change)(target, state, 40 + at, 40 + at, 40 + at)  # type: ignore[arg-type]
        for target, state, at in steps
    )
    missed = Change(disk, DiskState(fails=True), 46.0, 46.0, math.nan, (1,), "", ("storage",), 47.0, "it was killed")
    table = failure_rows("mixed_lanes", FaultReport(changes, missed=(missed,)))
    frame = pd.DataFrame(table, columns=list(TABLES["failures"].columns))
    result = result_of(tmp_path / "one", own={"failures": frame})
    found = happened_in(result)
    assert [(one.kind, one.at_s, one.label, one.detail) for one in sorted(found.changes, key=lambda one: one.at_s)] == [
        ("failure", 41.0, str(LINK), "at 50% of its rate"),
        ("failure", 42.0, "storage on st000", "killed"),
        ("failure", 42.0, str(LINK), "no carrier"),
        ("failure", 43.0, str(LINK), "at 50% of its rate"),
        ("whole again", 45.0, str(LINK), "after 4 s"),
        ("missed", 46.0, "st001/0", "fails: it was killed"),
    ]
    assert found.as_json()["changes"][0]["kind"] in ("failure", "whole again")
    assert "st001/0" not in {span.label for span in found.spans}
