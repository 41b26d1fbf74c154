"""Margins and CPU time as tables: from a manifest as a run writes it, and none from one that has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from fabric.measure.cores import CpuUse
from fabric.measure.verdict import Check, Verdict, worst_of_phases
from fabric.report.compare import compare
from fabric.report.figures.machine import machine
from fabric.report.margins import closest_checks, cpu_used, margins_by_phase
from fabric.report.page import render_page
from fabric.results import Result
from fabric.tables import TABLES

MakeResult = Callable[..., Result]


def verdict() -> dict[str, Any]:
    """Return a verdict as a manifest holds it, read again."""
    busy = [[Check("busy", value, 0.8, 0.9, "text", phase)] for phase, value in (("alone", 0.4), ("lanes", 0.84))]
    once = (Check("rate", 0.005, 0.02, 0.05, "text"), Check("lost", 0, 0, 1, "text"))
    found: dict[str, Any] = json.loads(json.dumps(Verdict((*once, *worst_of_phases(busy))).as_json()))
    return found


USED = CpuUse(4, 1, 2, 1, 0.3, 0.2, 0.5, 1, 2, 0, 2)


def test_the_closest_checks_are_told_first_with_their_margins() -> None:
    table = closest_checks(verdict())
    assert table is not None
    assert [tuple(row) for row in table.rows] == [
        ("busy", "0.84", "0.8", "-5%", "lanes"),
        ("rate", "0.005", "0.02", "75%", "-"),
    ]
    shortened = closest_checks(verdict(), most=1)
    assert shortened is not None
    assert len(shortened.rows) == 1


def test_each_phase_has_its_margins() -> None:
    table = margins_by_phase(verdict())
    assert table is not None
    assert list(table.columns) == ["check", "alone", "lanes"]
    assert [list(row) for row in table.rows] == [["busy", "50%", "-5%"]]


def test_cpu_time_is_told_as_parts_of_what_the_cores_had() -> None:
    table = cpu_used({"cpu": {"alone": USED.as_json()}})
    assert table is not None
    assert [list(row) for row in table.rows] == [["alone", "40%", "10%", "20%", "10%", "3%", "2%", "5%", "10%", "10.0"]]


def test_the_report_has_both(make_result: MakeResult) -> None:
    result = make_result()
    result.manifest["verdict"] = verdict()
    result.manifest["cpu"] = {"alone": USED.as_json()}
    text = render_page(result)
    assert "<h3>Margins by phase</h3>" in text
    assert "<h3>CPU used</h3>" in text
    assert '<td class="number">-5%</td>' in text


def test_the_report_of_virtual_time_does_not_claim_to_have_measured_lateness(make_result: MakeResult) -> None:
    assert "by construction" in render_page(make_result(engine="virtual"))
    assert "The machine kept up" in render_page(make_result(engine="namespace"))


@pytest.mark.parametrize("table", [closest_checks, margins_by_phase])
def test_a_verdict_that_tells_no_margins_has_no_table(table: Callable[[dict[str, Any]], object]) -> None:
    assert table({"status": "faithful", "reasons": []}) is None
    assert table({"checks": [{"name": "busy", "value": 0.4, "faithful_up_to": 0.8, "text": "text"}]}) is None
    assert cpu_used({}) is None


def test_a_result_stored_before_margins_were_is_drawn_told_and_compared(make_result: MakeResult) -> None:
    """Its checks have no margin and no phases, its samples lack columns and a table, its manifest CPU time."""
    result = make_result(without=("ports", "stalls", "waits", "flows"))
    added = ("input_wait_s", "softnet_backlog", "softnet_squeezed", "clock_offset_s", "stolen_s")
    path = result.directory / "samples" / "machine.parquet"
    old = pd.read_parquet(path).drop(columns=list(added))
    assert set(old.columns) | set(added) == set(TABLES["machine"].columns)
    old.to_parquet(path)
    assert not (result.directory / "samples" / "cores.parquet").exists()
    assert machine(result) is not None
    text = render_page(result)
    assert "Margins by phase" not in text
    assert "lateness_p99_s is 0.0018" in text
    assert compare([result, result]).rows
