"""A replayed year as numbers: each of them small enough to be counted by hand."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from experiments.flash_cut_year.goodput import (
    LostWork,
    hits,
    lost_fraction,
    overlapping_fraction,
    overlapping_fraction_in_days,
    rate_per_s,
    spans,
    work_done,
)
from experiments.flash_cut_year.run import FlashCutYearConfig, down_spans, training_groups
from experiments.flash_cut_year.summary import PlayedYear, YearScenario, summarize
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.results import Phase
from fabric.tables import TABLES
from runs.record import summary_as_json
from runs.registry import resolve
from tests.experiments.declared import undeclared
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.storage.client.verification import Verification

FABRIC = load_fabric("fire_flyer_2_small")
STEPS = spans([(0.0, 1.0), (1.0, 3.0), (3.0, 3.5)])


def test_a_step_counts_evenly_over_its_time() -> None:
    edges = np.array([0.0, 1.0, 2.0, 3.25, 10.0])
    assert work_done(STEPS, edges).tolist() == pytest.approx([1.0, 0.5, 1.0, 0.5])
    assert work_done(spans([]), edges).tolist() == [0.0] * 4
    assert rate_per_s(STEPS, 0.0, 3.0) == pytest.approx(2 / 3)
    assert lost_fraction(got=1.5, undisturbed=2.0) == 0.25


def test_a_cut_hits_a_job_whose_step_under_way_is_slower_than_any_undisturbed() -> None:
    cuts = spans([(0.5, 0.6), (1.5, 1.6), (2.9, 3.1), (3.2, 3.3)])
    assert hits(STEPS, cuts, slowest_s=1.2).tolist() == [False, True, True, False]
    assert hits(STEPS, cuts, slowest_s=2.5).tolist() == [False] * 4


def test_overlaps_are_of_pairs_that_share_time() -> None:
    assert overlapping_fraction(spans([(0, 1), (0.5, 1.5), (1.5, 2), (5, 6)])) == 0.5
    assert overlapping_fraction(spans([])) == 0.0


def test_overlaps_in_days_are_those_of_cuts_drawn_at_any_time_of_a_day() -> None:
    random = np.random.default_rng(1)
    days, duration_s = (2, 10, 0, 5) * 200, 3600.0
    began = np.concatenate([day * 10 * 86_400 + random.random(count) * 86_400 for day, count in enumerate(days)])
    drawn = overlapping_fraction(spans([(at, at + duration_s) for at in began]))
    expected = overlapping_fraction_in_days(days, duration_s)
    assert drawn == pytest.approx(expected, abs=0.05), f"{drawn} drawn, {expected} expected"
    assert overlapping_fraction_in_days((1, 1, 1), duration_s) == 0


def test_down_spans_last_from_the_cut_to_the_return_or_the_end() -> None:
    rows = [("a", False, 1.0), ("b", False, 1.5), ("a", True, 2.0), ("a", False, 3.0)]
    table = pd.DataFrame(
        [{"link": link, "up": up, "asked_s": at, "done_s": at + 0.1} for link, up, at in rows],
    )
    assert down_spans(table, ended_s=9.0).tolist() == [[1.0, 2.1], [1.5, 9.0], [3.0, 9.0]]


def test_every_compute_trains_in_one_job_of_its_zone() -> None:
    groups = training_groups(FABRIC, 2)
    assert sorted(node for nodes in groups.values() for node in nodes) == sorted(FABRIC.computes)
    assert {name: {node.zone for node in nodes} for name, nodes in groups.items()} == {
        "z0j0": {0}, "z0j1": {0}, "z1j0": {1}, "z1j1": {1},
    }  # fmt: skip


def test_the_config_plays_the_papers_year() -> None:
    config = cast(FlashCutYearConfig, resolve("flash_cut_year", [])[1])
    replay = config.year.replay(0.05)
    assert (replay.duration, replay.days, replay.block_days) == (0.05, 365, 7)
    assert replay.length_s == 365 * config.year.day


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("policies={a: {policy: ecmp}}", "policies.a.policy: ecmp routes by more than the destination"),
        ("jobs_per_zone=7", "jobs_per_zone: 7 jobs of 2 nodes or more exceed the 12 computes of zone 0"),
        ("failures=[{host: z0h000, at: 1 s, for: 1 s}]", "failures: flash_cut_year cuts links by itself"),
        ("routing.repair=reroute", "routing: flash_cut_year compares its own policies"),
        ("year.tiers=[core]", "'core': no such tier"),
    ],
)
def test_what_does_not_fit_is_named(setting: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve("flash_cut_year", [setting])
    assert any(fault in one for one in refused.value.faults), refused.value.faults


class FakeSession:
    """A run with a phase, whose jobs failed twice."""

    phases = (type("Outcome", (), {"phase": Phase("wait_100ms", "", "lanes", 0.0, 100.0, "wait")})(),)

    def table(self, name: str) -> pd.DataFrame:
        if name != "restarts":
            return TABLES[name].empty()
        return table_of(name, [["wait_100ms", "hfreduce", 1, 1.0, 2.0, ""]] * 2)


def test_the_summary_says_what_a_cut_costs_and_what_compression_does() -> None:
    played = YearScenario("wait", 0.1, "wait_100ms", 100.0, 345_600.0, (2, 0, 2))
    year = PlayedYear(
        played, cuts=4, overlapping=0.5, training_lost=0.1, storage_lost=0.2, hits=6, cuts_felt=3, jobs=4, jobs_hit=2,
        blackout_s=1.5, probe_flows=16, failed=2,
    )  # fmt: skip
    assert year.lost_per_cut_s == pytest.approx(0.1 * 100 * 4 / 4)
    assert LostWork(2, 300.0) == LostWork(failures=2, checkpoint_interval_s=300.0)
    assert (LostWork(2, 300.0).expected_s, LostWork(2, 300.0).most_s) == (300.0, 600.0)
    # 4 cuts of 10 job-seconds in 3 days of 4 jobs.
    assert year.lost_in_a_year_fraction == pytest.approx(40 / (4 * 3 * 86_400))
    summary: dict[str, Any] = summarize(FakeSession(), [year], 300.0, Verification(9))
    assert by_path(summary["metrics"])["wait.100ms.training_lost_per_cut_s"] == pytest.approx(10)
    assert undeclared("flash_cut_year", summary["metrics"]) == []
    assert [one.path for one in summary["metrics"] if one.job == "storage"] == ["wait.100ms.storage_lost_fraction"]
    cost, overlaps, failed = summary["tables"]
    assert cost.words == [
        ["wait", "100 ms", "4", "10.0%", "10 s", "20.0%", "3", "6", "1.5 s", "2", "300 s"],
    ]
    assert overlaps.words[0][:2] == ["100 ms", "50.0%"]
    assert failed.words == [["wait", "4", "2", "0", "0"]]
    assert "compressed 345,600 times" in summary["answer"]
    json.dumps(summary_as_json(summary), allow_nan=False)
