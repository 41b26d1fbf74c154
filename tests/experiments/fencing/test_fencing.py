"""What a run of fencing says, from made-up histories; what it cuts, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import pandas as pd
import pytest

from experiments.fencing.experiment import EXPERIMENT
from experiments.fencing.figures import stale_reads
from experiments.fencing.rows import history_of, windows_of
from experiments.fencing.run import FencingConfig, cuts_at
from experiments.fencing.summary import Seen, numbers_of, summarize
from experiments.fencing.tables import TABLES
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.identity import NodeId
from runs.registry import resolve
from tests.experiments.declared import undeclared
from tests.experiments.own_results import own_result
from topologies.load import load_fabric
from traffic.storage.chains import ChunkId
from traffic.storage.config import Fence
from traffic.storage.history import MAYBE, Event, Kind

FABRIC = load_fabric("storage_zone_small")
TAIL = FABRIC.storages[4]
WRITER, NEAR, FAR = FABRIC.computes[:3]
PLACES = {WRITER: "writer", NEAR: "beside", FAR: "between"}
ORIGIN_S = 100.0


def config_of(*overrides: str) -> FencingConfig:
    return cast(FencingConfig, resolve("fencing", overrides)[1])


def event(kind: Kind, version: int | None, began_s: float) -> Event:
    ends_s = MAYBE if version is None else ORIGIN_S + began_s + 0.1
    return Event(kind, ChunkId(0, 0), version or 99, version, ORIGIN_S + began_s, ends_s)


def windows() -> pd.DataFrame:
    """Version 2 is there from 60.1 s on; one client reads version 1 until 63 s, another one until the end."""
    events: dict[NodeId, list[Event]] = {
        WRITER: [event(Kind.WRITE, 1, 1.0), event(Kind.WRITE, None, 5.0), event(Kind.WRITE, 2, 60.0)],
        FAR: [event(Kind.READ, 1, at_s) for at_s in (4.0, 59.0, 61.0, 63.0)] + [event(Kind.READ, 2, 66.0)],
        NEAR: [event(Kind.READ, 1, at_s) for at_s in (4.0, 62.0, 79.0)],
    }
    history = history_of("off_1", events, PLACES, ORIGIN_S)
    assert list(history.columns) == list(TABLES["history"].columns)
    assert history["stale"].sum() == 4
    assert math.isnan(history["ended_s"][1])
    failed = pd.DataFrame({"host": [str(NEAR)]})
    return windows_of(Fence.OFF, history, failed, 58.0, 10.0, 80.0)


def test_windows_are_from_the_first_to_the_last_stale_read() -> None:
    found = {row["place"]: row for row in windows().to_dict("records")}
    assert list(windows().columns) == list(TABLES["stale_windows"].columns)
    names = ("reads", "stale", "first_s", "last_s", "failed")
    assert [found["between"][name] for name in names] == [4, 2, 61, 63, 0]
    assert [found["beside"][name] for name in names] == [2, 2, 62, 79, 1]


def test_the_figure_has_a_panel_per_fence_also_of_a_result_from_before_the_column(tmp_path: Path) -> None:
    sound = windows().assign(phase="half_1", fence="half")
    table = pd.concat([windows(), sound])
    of_before = table.drop(columns="fence")
    assert TABLES["stale_windows"].of_today(of_before)["fence"].tolist() == ["off", "off", "half", "half"]
    renamed = table.assign(phase="p")
    for name, rows in (("today", renamed), ("before", TABLES["stale_windows"].of_today(of_before))):
        summary = {"fencing": {"polled_every_s": 10.0}}
        figure = stale_reads(own_result(tmp_path / name, EXPERIMENT, summary=summary, own={"stale_windows": rows}))
        assert figure is not None
        titles = [panel.get_title(loc="left") for part in figure.subfigs for panel in part.axes]
        assert [title.partition(";")[0] for title in titles] == ["fence: off", "fence: half"]


def test_numbers_tell_how_long_and_whether_it_ended() -> None:
    found = windows()
    between, beside = (numbers_of(found[found["place"] == place]) for place in ("between", "beside"))
    assert (between["window_max_s"], between["after_forgotten_max_s"], between["to_the_end"]) == (2, 5, 0)
    assert (beside["window_max_s"], beside["clients_stale"], beside["to_the_end"]) == (17, 1, 1)
    assert "window_max_s" not in numbers_of(found[found["stale"] > 9])


def test_a_summary_has_a_row_for_each_fence_and_place() -> None:
    sound = windows().assign(stale=0, first_s=math.nan, last_s=math.nan)
    seen = [Seen("off_1", Fence.OFF, TAIL, windows(), 10.0), Seen("half_1", Fence.HALF, TAIL, sound, 10.0)]
    found = summarize(seen)
    assert [row[:3] for row in found["tables"][0].words] == [
        ["off", "hear all", "2 of 4"],
        ["off", "do not hear the manager", "2 of 2"],
        ["half", "hear all", "0 of 4"],
        ["half", "do not hear the manager", "0 of 2"],
    ]
    assert by_path(found["metrics"])["storage.off.beside.stale"] == 2
    assert undeclared("fencing", found["metrics"]) == []
    assert found["fencing"] == {"polled_every_s": 10.0}


def test_cuts_part_the_tail_from_its_chain_and_not_from_all() -> None:
    config = config_of()
    schedule = cuts_at(config, 3.0, FABRIC)
    assert len(schedule.events) == len(config.cuts)
    assert {event.at_s for event in schedule.events} == {3.0}


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["servers=[st002,st099,st004]"], "servers: st099 is not one of st000 to st007"),
        (["clients.writers=[z0h001]"], "z0h001 is named twice"),
        (["cuts=[z0l00-z0s09]"], "z0s09"),
        (["clients.between=[]", "clients.beside=[]"], "nobody reads"),
        (["storage.cluster_manager=null"], "without it nobody is forgotten"),
        (["clients.chunks=99"], "clients.chunks: 99 of the first file"),
        (["failures=[{storage: st001, at: 1}]"], "cuts links by itself"),
    ],
)
def test_what_cannot_be_played_is_refused(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        config_of(*overrides)
