"""A run that plays is shown by its rows so far: what happened and users' jobs are those of the page after."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from fabric.measure.live_file import LivePhase, LiveSeries
from fabric.report.users_jobs import TABLES as USERS_TABLES
from fabric.report.users_jobs import users_jobs_of
from fabric.report.view.live_tables import LiveRows
from fabric.report.view.spans import HAPPENED, happened_in
from fabric.results import Phase, Result
from fabric.tables import BY_HAND, TABLES
from tests.platform_result import PHASE, platform_result


def series_of(phase: Phase, until_s: float | None = None) -> LiveSeries:
    """Return the samples of a phase: the first and the last so far."""
    told = LivePhase(phase.name, phase.title, phase.queueing, phase.routing, ("platform",), 0.0)
    sample = np.zeros((0, 0), np.int64)
    return LiveSeries(told, [phase.started_s, phase.ended_s if until_s is None else until_s], [sample, sample])


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return platform_result(tmp_path_factory.mktemp("result") / "one")


def told(result: Result, tables: tuple[str, ...] = (*HAPPENED, *USERS_TABLES)) -> LiveRows:
    """Return a result's rows as they are told, through JSON, at the end of each phase."""
    rows = LiveRows()
    for table in tables:
        frame = result.table(table)
        for phase in result.phases:
            found: list[dict[str, Any]] = frame[frame["phase"] == phase.name].to_dict("records")  # type: ignore[assignment]
            rows.take(phase.name, table, json.loads(json.dumps(found)), is_whole=True)
    return rows


def test_once_all_has_ended_both_pages_show_the_same(result: Result) -> None:
    live = told(result).of([series_of(phase) for phase in result.phases])
    shown, expected = happened_in(live).as_json(), happened_in(result).as_json()
    assert json.dumps(shown, sort_keys=True) == json.dumps(expected, sort_keys=True)
    assert {"phase", "job"} <= {span["kind"] for span in shown["spans"]}
    (found,), (wanted,) = users_jobs_of(live), users_jobs_of(result)
    assert [asdict(job) for job in found.jobs] == [asdict(job) for job in wanted.jobs]
    assert found.out == wanted.out and found.held() == wanted.held()


def test_what_goes_on_lasts_until_the_last_sample(result: Result) -> None:
    rows, (phase,) = told(result), [one for one in result.phases if one.name == PHASE]
    until_s = phase.started_s + 5.5
    events = result.table("platform_events")
    so_far = events[events["at_s"] <= until_s].to_dict("records")
    rows.take(PHASE, "platform_events", so_far, is_whole=True)  # type: ignore[arg-type]
    (now,) = users_jobs_of(rows.of([series_of(phase, until_s)]))
    assert {(life.end, life.ended_s) for life in now.jobs[1].lives} == {("", until_s)}
    assert [(out.node, out.until_s, out.back) for out in now.out] == [("z1h000", until_s, "")]


def test_rows_of_a_phase_that_is_not_sampled_yet_wait_and_a_job_that_plays_has_its_row(result: Result) -> None:
    rows, (first, *_) = told(result, USERS_TABLES), result.phases
    assert users_jobs_of(rows.of([])) == []
    (job,) = [span for span in happened_in(rows.of([series_of(first)])).spans if span.kind == "job"]
    assert (job.label, job.begin_s, job.end_s) == ("platform", first.started_s, first.ended_s)


def test_rows_of_an_end_replace_those_that_came_before() -> None:
    rows = LiveRows()
    moved = {"phase": "a", "at_s": 1.0, "kind": "moved", "details": '{"moves": []}'}
    rows.take("a", "controller", [moved])
    before = rows.version
    rows.take("a", "controller", [{**moved, "at_s": 2.0}], is_whole=True)
    series = LiveSeries(LivePhase("a", "A", "lanes", "static", (), 0.0), [0.0, 3.0], [])
    assert [one.at_s for one in happened_in(rows.of([series])).instants] == [2.0]
    assert rows.version > before


def test_a_cut_by_hand_is_shown_as_long_as_it_lasts_and_says_so() -> None:
    rows, link = LiveRows(), "z0l00:4--z0s00:1"
    row: dict[str, Any] = dict.fromkeys(TABLES["failures"].columns, "")
    row |= {"phase": "a", "kind": "link", "target": link, "asked_by": BY_HAND, "state": "down", "up": False}
    row |= {"rate_fraction": 1.0, "loss_fraction": 0.0, "waiting_packets": 0}
    row |= dict.fromkeys(("due_s", "due_end_s", "asked_s", "done_s", "ended_s"), 1.0)
    series = LiveSeries(LivePhase("a", "A", "lanes", "static", (), 0.0), [0.0, 3.0], [])
    rows.take("a", "failures", [row])
    (cut,) = [one for one in happened_in(rows.of([series])).spans if one.kind == "cut"]
    assert (cut.label, cut.detail, cut.begin_s, cut.end_s) == (link, "no carrier, by hand", 1.0, 3.0)
    rows.take("a", "failures", [{**row, "state": "whole", "up": True, "done_s": 2.0}])
    happened = happened_in(rows.of([series]))
    (cut,) = [one for one in happened.spans if one.kind == "cut"]
    assert cut.end_s == 2.0 and cut.ports == ("z0l00:4", "z0s00:1")
    assert [one.kind for one in happened.changes] == ["failure", "whole again"]
