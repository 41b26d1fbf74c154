from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from fabric.errors import UsageError
from fabric.measures import Better, Measure
from fabric.report.compare import compare, format_metric
from fabric.results import Result

MakeResult = Callable[..., Result]


def test_metrics_stand_side_by_side_with_the_difference_to_the_first(make_result: MakeResult) -> None:
    first = make_result(metrics={"a_Bps": 2e6, "b_s": 0.5}, without=("ports", "flows"))
    second = make_result(metrics={"a_Bps": 3e6, "c": 1.0}, without=("ports", "flows"))
    compared = compare([first, second]).as_json()
    assert compared["runs"] == ["run0", "run1"]
    assert compared["metrics"] == {
        "a_Bps": {"values": [2e6, 3e6], "difference_to_first": [0.0, 0.5]},
        "b_s": {"values": [0.5, None], "difference_to_first": [0.0, None]},
        "c": {"values": [None, 1.0], "difference_to_first": [None, None]},
    }
    json.dumps(compared, allow_nan=False)


def test_a_first_value_of_zero_has_no_relative_difference(make_result: MakeResult) -> None:
    runs = [make_result(metrics={"drops": value}, without=("ports", "flows")) for value in (0.0, 3.0)]
    assert compare(runs).rows[0].differences == (None, None)


def test_results_of_different_experiments_are_refused_naming_both(make_result: MakeResult) -> None:
    runs = [make_result(experiment=name, without=("ports", "flows")) for name in ("incast", "recovery")]
    with pytest.raises(UsageError, match=r"run0 is of experiment 'incast', .*run1 of 'recovery'"):
        compare(runs)


def test_one_result_is_too_few(make_result: MakeResult) -> None:
    with pytest.raises(UsageError, match="got 1 result, needs at least 2"):
        compare([make_result(without=("ports", "flows"))])


def test_other_topology_seed_and_verdict_are_warned_of(make_result: MakeResult) -> None:
    first = make_result(without=("ports", "flows"))
    other = make_result(
        fabric="fire_flyer_2", seed=8, verdict={"status": "invalid", "reasons": ["x"]}, without=("ports", "flows")
    )
    assert compare([first, first]).warnings == ()
    assert compare([first, other]).warnings == (
        "run1: topology is fire_flyer_2, the first run's is fire_flyer_2_small",
        "run1: seed is 8, the first run's is 7",
        "run1: verdict is invalid, the first run's is faithful",
        "run1: the emulation was invalid; do not use its numbers",
    )


def test_table_shows_values_with_units_differences_and_warnings(make_result: MakeResult) -> None:
    runs = [
        make_result(metrics={"a_Bps": value}, seed=seed, without=("ports", "flows"))
        for value, seed in ((2e6, 1), (1e6, 2))
    ]
    out = io.StringIO()
    Console(file=out, width=120).print(compare(runs).table())
    for part in ("a_Bps", "2.000 MB/s", "1.000 MB/s (-50.0%)", "warning: run1: seed is 2"):
        assert part in out.getvalue()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("a.rate_bps", 2e7, "20 Mbit/s"),
        ("a.algbw_Bps", 1.5e6, "1.500 MB/s"),
        ("a.algbw_Bps", 1.503e11, "150.300 GB/s"),
        ("a.p99_s", 0.0123, "12.3 ms"),
        ("a.depth_bytes", 4096, "4 KiB"),
        ("a.cpu_fraction", 0.5, "50.0%"),
        ("a.drops", 12345.0, "12,345"),
    ],
)
def test_the_end_of_a_metrics_name_says_its_unit(name: str, value: float, text: str) -> None:
    assert format_metric(name, value) == text


PROMISED = {"a.algbw_Bps": 1e6, "a.p99_s": 1.0}
OTHER_SHARE = {"queues": {"lanes": {"hfreduce": {"share": 0.5}}}}
SETTINGS = {"queues": {"lanes": {"hfreduce": {"share": 0.1}}}, "failures": [{"at": "1 s"}]}


@pytest.mark.parametrize(
    ("change", "verdict", "broken"),
    [
        (1.09, "faithful", False),
        (1.11, "faithful", True),
        (0.89, "faithful", True),
        (0.5, "degraded", False),  # It promises nothing.
    ],
)
def test_a_faithful_run_is_held_to_the_exact_one(
    make_result: MakeResult, change: float, verdict: str, broken: bool
) -> None:
    exact = make_result(metrics=PROMISED, engine="virtual", without=("ports", "flows"))
    metrics = {"a.algbw_Bps": 1e6 * change, "a.p99_s": 9.0}
    real = make_result(metrics=metrics, verdict={"status": verdict, "reasons": []}, without=("ports", "flows"))
    for order in ([real, exact], [exact, real]):
        found = compare(order)
        kept = "" if verdict == "degraded" else f"{1 - broken} of 1 metrics are as near to the exact run as it promises"
        ending = "; not a.algbw_Bps" if broken else ""
        assert [note.partition(": ")[2] for note in found.notes] == ([kept + ending] if kept else [])
        assert sum(map(len, found.as_json()["broken_promises"].values())) == broken


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"config": {**SETTINGS, **OTHER_SHARE}}, "queues.lanes.hfreduce.share 0.5 (0.1)"),
        ({"config": {**SETTINGS, "failures": [{"at": "2 s"}]}}, "failures.0.at 2 s (1 s)"),
        ({"config": {"queues": SETTINGS["queues"]}}, "failures.0.at not there (1 s)"),
        ({"config": {**SETTINGS, "phase": "x" * 50}}, f"phase {'x' * 40}... (10 s)"),
        ({"fabric": "fire_flyer_2_tiny"}, None),
        ({"seed": 8, "config": {**SETTINGS, "seed": 8}}, None),
    ],
)
def test_a_run_is_held_to_an_exact_one_of_the_same_settings_only(
    make_result: MakeResult, changed: dict[str, Any], said: str | None
) -> None:
    real = make_result(metrics=PROMISED, config=SETTINGS, without=("ports", "flows"))
    twice = {"metrics": {"a.algbw_Bps": 2e6}, "engine": "virtual", "config": SETTINGS, "without": ("ports", "flows")}
    found = compare([real, make_result(**{**twice, **changed})])
    is_held = "seed" in changed
    assert len(found.notes) == is_held
    assert found.as_json()["broken_promises"]["run0"] == (["a.algbw_Bps"] if is_held else [])
    told = [warning.partition("the first run's): ")[2] for warning in found.warnings if "settings differ" in warning]
    assert told == ([] if said is None else [said])


def test_a_run_is_held_to_the_exact_one_that_has_its_settings(make_result: MakeResult) -> None:
    real = make_result(metrics=PROMISED, config=SETTINGS, without=("ports", "flows"))
    other, twin = (
        make_result(metrics=PROMISED, engine="virtual", config=config, without=("ports", "flows"))
        for config in ({}, SETTINGS)
    )
    assert len(compare([other, real, twin]).notes) == 1


def test_runs_in_real_time_alone_are_held_to_nothing(make_result: MakeResult) -> None:
    runs = [make_result(metrics={"a.algbw_Bps": value}, without=("ports", "flows")) for value in (1e6, 2e6)]
    assert compare(runs).notes == ()


def test_metrics_that_differ_most_come_first_and_small_changes_can_be_left_out(make_result: MakeResult) -> None:
    of_first = {"same": 5.0, "less": 100.0, "more": 1.0, "none": 0.0, "from_zero": 0.0, "gone": 1.0}
    of_second = {"same": 5.0, "less": 98.0, "more": 1.5, "none": 0.0, "from_zero": 1.0}
    first, second = (make_result(metrics=metrics, without=("ports", "flows")) for metrics in (of_first, of_second))
    compared = compare([first, second])
    assert [row.name for row in compared.rows] == ["from_zero", "gone", "more", "less", "same", "none"]
    assert [row.change for row in compared.rows] == pytest.approx([math.inf, math.inf, 0.5, 0.02, 0.0, 0.0])
    assert [row.name for row in compared.changed(0.05).rows] == ["from_zero", "gone", "more"]
    assert compared.changed(0.05).notes == ("not shown: 3 of 6 metrics, which differ by less than 5 %",)
    assert compared.changed(0.02) == replace(
        compared, rows=compared.rows[:4], notes=("not shown: 2 of 6 metrics, which differ by less than 2 %",)
    )
    assert compared.changed(0.0) == compared


def test_what_is_declared_of_a_metric_stands_beside_it(make_result: MakeResult) -> None:
    metrics = [{"a.step_s": value, "a.other": 1.0} for value in (1.0, 2.0)]
    runs = [make_result(metrics=one, without=("ports", "flows")) for one in metrics]
    compared = compare(runs, [Measure("step_s", "time of a step", Better.LESS)])
    told = compared.as_json()["metrics"]
    assert (told["a.step_s"]["meaning"], told["a.step_s"]["better"]) == ("time of a step", "less")
    assert "meaning" not in told["a.other"]
    out = io.StringIO()
    Console(file=out, width=120).print(compared.table())
    (line,) = (line for line in out.getvalue().splitlines() if "a.step_s" in line)
    assert " less " in line
