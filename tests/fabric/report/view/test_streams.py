"""Streams of ranks that play graphs of work: on the page, and as tracks of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from fabric.report.trace import trace_of
from fabric.report.view import streams
from fabric.report.view.model import described, view_of
from fabric.report.view.streams import streams_of, streams_on_page
from fabric.results import Result
from fabric.tables import TABLES, Table
from tests.synthetic_result import Recipe, write_result
from traffic.work.kinds import WORK

ROWS = [
    # rank, step, operation, name, kind, stream, partner, size, ready, started, ended
    (0, 0, 0, "forward", "compute", "compute", None, 0, 1.0, 1.0, 1.5),
    (0, 0, 1, "bucket 0", "allreduce", "communication", "dp", 4096, 1.5, 1.7, 2.0),
    (0, 0, 2, None, "receive", None, "rank 1", 64, 1.0, 1.0, 1.8),
    (0, 0, 3, None, "receive", None, "rank 1", 64, 1.0, 1.0, 1.9),
    (1, 0, 0, "forward", "compute", "compute", None, 0, 1.0, 1.0, 1.4),
]
OPERATION_COLUMNS = [
    "rank", "step", "operation", "name", "kind", "stream", "partner", "size_bytes", "ready_s", "started_s", "ended_s",
]  # fmt: skip


class WorkResult(Result):
    """One that knows the tables of jobs of work."""

    @property
    def known_tables(self) -> Mapping[str, Table]:
        return {**TABLES, **WORK.tables}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> WorkResult:
    operations = pd.DataFrame(ROWS, columns=OPERATION_COLUMNS).assign(phase="mixed_lanes", job="train")
    operations["host"] = operations["rank"].map({0: "z0h000", 1: "z0h001"})
    steps = pd.DataFrame(
        [(rank, 0, 1.0, ended) for rank, ended in ((0, 2.0), (1, 1.4))],
        columns=["rank", "step", "started_s", "ended_s"],
    )
    steps = steps.assign(phase="mixed_lanes", job="train", service_level="nccl", host="z0h000", sent_bytes=64, play=0)
    own = {
        name: frame[list(WORK.tables[name].columns)]
        for name, frame in (("work_operations", operations), ("work_steps", steps))
    }
    recipe = Recipe(fabric="fire_flyer_2_tiny", own_tables=WORK.tables, own=own)
    return WorkResult(write_result(tmp_path_factory.mktemp("work") / "one", recipe))


def test_each_stream_of_a_rank_is_a_track_in_order(result: WorkResult) -> None:
    found = {track.name: [one.label for one in track.played] for track in streams_of(result)}
    assert found == {
        "rank 0 compute": ["forward"],
        "rank 0 communication": ["bucket 0"],
        "rank 0 without a stream": ["receive", "receive"],
        "rank 1 compute": ["forward"],
    }


def test_the_trace_has_slices_of_streams_and_async_events_of_what_has_none(result: WorkResult) -> None:
    events = trace_of(view_of(result)).events
    tracks = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    played = [one for one in events if "partner" in one.get("args", {})]
    slices = {tracks[one["pid"], one["tid"]]: one for one in played if one["ph"] == "X"}
    bucket = slices["rank 0 communication on z0h000"]
    assert (bucket["name"], bucket["ts"], bucket["dur"]) == ("bucket 0", 1.7e6, 0.3e6)
    assert bucket["args"] == {"kind": "allreduce", "partner": "dp", "bytes": 4096, "waited_us": 0.2e6}
    overlapping = [one for one in played if one["ph"] == "b"]
    assert {tracks[one["pid"], one["tid"]] for one in overlapping} == {"rank 0 without a stream on z0h000"}
    assert len({one["id"] for one in overlapping}) == 2


def test_the_page_has_steps_and_streams_as_far_as_there_is_room(
    result: WorkResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = described(view_of(result)).values
    assert ["mixed_lanes", "train", 0, 1.0, 2.0] in page["steps"], "from the first rank's start to the last one's end"
    assert [track["name"] for track in page["streams"]] == [track.name for track in streams_of(result)]
    monkeypatch.setattr(streams, "MOST_ON_PAGE", 3)
    shown, notes = streams_on_page(streams_of(result))
    assert len(shown) == 2
    assert notes == ["2 of 4 streams of ranks are left out; fabric timeline has all"]


def test_a_result_without_work_has_no_streams(tmp_path: Path) -> None:
    assert streams_of(Result(write_result(tmp_path / "one", Recipe(fabric="fire_flyer_2_tiny")))) == []
