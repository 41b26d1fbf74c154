"""The calendar of a replayed year."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.flash_cut_year.experiment import EXPERIMENT
from experiments.flash_cut_year.tables import TABLES
from tests.experiments.own_results import own_figures_drawn, own_result


def days_table() -> pd.DataFrame:
    random = np.random.default_rng(5)
    rows = []
    for routing in ("wait", "reroute"):
        for day, cuts in enumerate(random.poisson(0.6, 100)):
            rows.append((f"year_{routing}", routing, 0.1, day, int(cuts), min(1.0, 0.1 * cuts), 0.1 * cuts))
    return pd.DataFrame(rows, columns=list(TABLES["days"].columns))


def test_the_calendar_has_a_panel_of_cuts_and_one_per_policy(tmp_path: Path) -> None:
    days = days_table()
    figure = own_result(tmp_path / "run", EXPERIMENT, own={"days": days}).figure("calendar")
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.subfigs[1].axes]
    assert [title.partition(",")[0] for title in titles if title][1:] == ["wait", "reroute"]
    assert titles[0].startswith(f"cuts ({days['cuts'][:100].sum()} on ")


def test_a_result_without_days_has_no_calendar(tmp_path: Path) -> None:
    assert own_figures_drawn(own_result(tmp_path / "run", EXPERIMENT), EXPERIMENT) == set()
