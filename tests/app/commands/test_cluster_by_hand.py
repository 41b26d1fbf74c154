"""What is kept of failures by hand, without a fabric: what carries them out is played."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.commands import cluster_by_hand
from app.commands.cluster_by_hand import hands_on
from app.commands.cluster_config import config_named, failures_of, journal_of, keep_config, samples_of
from app.commands.cluster_page import WatchedCluster
from fabric.errors import UsageError
from fabric.failures.injection import NotThereError
from fabric.failures.report import FaultReport, LinkChange
from fabric.failures.schedule import FailureSchedule
from fabric.measure.live_file import LiveNames, LivePhase, LiveWriter
from fabric.queueing.counters import COUNTERS
from tests.waiting import until
from topologies.load import load_fabric

TINY = load_fabric("fire_flyer_2_tiny")
LINK = "z0l00:4--z0s00:1"


class Played:
    """Carries out failures of links at once, and has no disks."""

    def __init__(self, pool: Any, emulation: Any, seed: int, tell: Any) -> None:
        self.tell = tell

    def prepare(self, schedule: FailureSchedule, jobs: Any) -> None:
        assert schedule.events == ()

    def play(self, started: float) -> None: ...

    def carry_out(self, schedule: FailureSchedule) -> None:
        if len(schedule.link_events) < len(schedule.events):
            raise NotThereError("st000/0: nothing that runs here has it")
        now = time.monotonic()
        for event in schedule.link_events:
            self.tell(LinkChange(event.link, event.state, now, now, now, event.causes))

    def restore(self) -> FaultReport:
        return FaultReport()

    def release(self) -> None: ...


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cluster_by_hand, "Injections", Played)
    keep_config(config_named("fire_flyer_2_tiny", []).config, tmp_path)
    journal_of(tmp_path).parent.mkdir(parents=True)
    return tmp_path


def rows(folder: Path) -> list[tuple[str, str, str]]:
    found = map(json.loads, failures_of(folder).read_text().splitlines())
    return [(row["target"], row["state"], row["asked_by"]) for row in found]


def hands(folder: Path, origin_s: float, said: list[str]) -> Any:
    live = SimpleNamespace(fabric=TINY, emulation=None)
    return hands_on(live, None, (), (failures_of(folder), origin_s), said.append)  # type: ignore[arg-type]


def test_orders_are_answered_kept_and_said_and_what_cannot_be_changes_nothing(folder: Path) -> None:
    said: list[str] = []
    with hands(folder, time.monotonic() - 5.0, said) as found:
        answer = found.answer({"kind": "fail", "line": {"target": "z0l00-z0s00"}})
        assert [(one["target"], one["state"], one["hits"]) for one in answer["failures"]] == [
            ("z0l00-z0s00", "down", [LINK])
        ]
        assert 5.0 <= answer["failures"][0]["since_s"] <= answer["now_s"]
        refused = found.answer({"kind": "fail", "line": {"target": "st000/0", "effect": "error"}})
        assert refused == {"kind": "refused", "faults": ["st000/0: nothing that runs here has it"]}
        for message, words in (
            ({"kind": "fail"}, "fail: came without 'line'"),
            ({"kind": "fail", "line": 7}, "7: is not a line of failures"),
            ({"kind": "heal", "target": "z0h001"}, "z0h001: does not fail by hand; what does: z0l00-z0s00"),
        ):
            assert words in found.answer(message)["faults"][0]
        found.heal_all()
        assert found.answer({"kind": "failures"})["failures"] == []
    assert rows(folder) == [(LINK, "down", "by hand"), (LINK, "whole", "by hand")]
    assert [line.split("s  ", 1)[1] for line in said] == ["by hand: z0l00-z0s00 down", "by hand: z0l00-z0s00 healed"]


def test_what_has_an_end_is_healed_then(folder: Path) -> None:
    said: list[str] = []
    with hands(folder, time.monotonic(), said) as found:
        answer = found.answer({"kind": "fail", "line": {"target": "z0l00-z0s00", "for": "50 ms"}})
        (one,) = answer["failures"]
        assert one["until_s"] == pytest.approx(one["since_s"] + 0.05)
        until(lambda: len(said) == 2, "it is healed")
        assert found.answer({"kind": "failures"})["failures"] == []
    assert rows(folder) == [(LINK, "down", "by hand"), (LINK, "whole", "by hand")]


def test_what_failed_when_a_cluster_was_killed_is_whole_once_it_is_up_again_and_its_page_shows_it(folder: Path) -> None:
    with pytest.raises(UsageError, match="has no samples to make the page from"):
        WatchedCluster(folder)
    origin_s = time.monotonic()
    with hands(folder, origin_s, []) as found:
        found.answer({"kind": "fail", "line": {"target": "z0l00-z0s00"}})
    with hands(folder, origin_s, []):
        assert rows(folder)[-1] == (LINK, "whole", "by hand")
    with hands(folder, origin_s, []):
        assert len(rows(folder)) == 2
    samples_of(folder).touch()
    writer, phase = (
        LiveWriter(samples_of(folder), False),
        LivePhase("cluster", "the cluster", "lanes", "", (), origin_s),
    )
    writer.begin(LiveNames(phase, {(0, 0): "z0l00:4"}, {0: "other"}), [(0, 0, 0)], is_lossless=False)
    for at_s in (origin_s, time.monotonic() + 1.0):
        writer.sample(at_s, np.zeros(1, COUNTERS), None)
    watched = WatchedCluster(folder, "virtual")
    watched.read()
    watched.read()
    table = watched.live.rows.of(watched.live.series()).table("failures")
    assert table["state"].astype(str).tolist() == ["down", "whole"], "each row once"
    assert "free, 0 busy, 0 out; 0 jobs run, 0 wait" in watched.live.progress.note
    watched.live.reader.close()
