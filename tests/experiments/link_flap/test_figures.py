"""Figures of cuts: drawn where a result has cuts, and what they show."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiments.link_flap.experiment import EXPERIMENT
from experiments.link_flap.tables import TABLES
from tests.experiments.own_results import own_figures_drawn, own_result
from tests.synthetic_result import PHASE_S, PHASES, phase_records


def cuts_table() -> pd.DataFrame:
    """A cut in the middle of each phase of an allreduce, repaired within 10 ms under one policy, not under another."""
    rows = []
    for number, (phase, (name, _, _, load)) in enumerate(zip(phase_records(), PHASES, strict=True)):
        if "hfreduce" in load:
            asked = phase["started_s"] + PHASE_S / 2
            routing, repaired = ("wait", False) if number % 2 else ("reroute", True)
            parts = [asked + part if repaired else None for part in (0.002, 0.007, 0.010, 0.012)]
            times = [asked, asked + 0.001, *parts, asked + 0.2]
            target = "z0l00:5 -- z0s00:1"
            rows.append((name, routing, 0, "leaf_spine", target, 0.2, *times, 2, 0.3, 0.1, 0.2, 0))
    return pd.DataFrame(rows, columns=list(TABLES["cuts"].columns))


def cut_flows_table() -> pd.DataFrame:
    rows = [
        (cut.phase, cut.routing, cut.cut, cut.place, flow, True, 0.012 if cut.routing == "reroute" else 0.2, 10)
        for cut in cuts_table().itertuples()
        for flow in ("z0h000 to z0h004", "z0h004 to z0h000")
    ]
    return pd.DataFrame(rows, columns=list(TABLES["cut_flows"].columns))


OWN = {"cuts": cuts_table(), "cut_flows": cut_flows_table()}


@pytest.mark.parametrize(
    ("without", "drawn"),
    [
        ((), {"steps_around_cuts", "blackouts", "repair_parts"}),
        (("steps",), {"blackouts", "repair_parts"}),
        (("cut_flows",), {"steps_around_cuts", "repair_parts"}),
        (("cuts",), set()),
    ],
)
def test_each_figure_needs_its_tables(tmp_path: Path, without: tuple[str, ...], drawn: set[str]) -> None:
    own = {name: frame for name, frame in OWN.items() if name not in without}
    result = own_result(tmp_path / "run", EXPERIMENT, own=own, without=without)
    assert own_figures_drawn(result, EXPERIMENT) == drawn


def test_repairs_have_a_bar_per_policy_and_place_of_the_parts_of_the_repaired(tmp_path: Path) -> None:
    figure = own_result(tmp_path / "run", EXPERIMENT, own=OWN).figure("repair_parts")
    (panel,) = figure.subfigs[1].axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["reroute, leaf-spine link (3)"]
    assert [round(bar.get_width(), 3) for container in panel.containers for bar in container] == [
        0.002,
        0.005,
        0.003,
        0.002,
    ]
