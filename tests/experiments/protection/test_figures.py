"""The figure of what programs keep as the load of others grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.protection.experiment import EXPERIMENT
from experiments.protection.figures import protection
from tests.experiments.own_results import own_result

PROTECTION: dict[str, Any] = {
    "panels": [
        {
            "title": "HFReduce beside others",
            "axis": "load of others",
            "is_fraction": True,
            "alone_Bps": 800_000.0,
            "promised_share": 0.5,
            "lane": "hfreduce",
            "loads": [0.0, 0.5, 2.0],
            "curves": {"shared": [800_000.0, 400_000.0, 80_000.0], "lanes": [800_000.0, 500_000.0, None]},
        },
    ]
}


def test_protection_has_a_curve_a_queueing_and_the_promise_as_a_line(tmp_path: Path) -> None:
    result = own_result(tmp_path / "run", EXPERIMENT, summary={"protection": PROTECTION})
    figure = protection(result)
    assert figure is not None
    (panel,) = figure.subfigs[1].axes
    shared, lanes, alone, promised = (np.asarray(line.get_ydata(), dtype=float).tolist() for line in panel.lines)
    assert shared == [0.8, 0.4, 0.08]
    assert lanes[:2] == [0.8, 0.5]
    assert np.isnan(lanes[2])
    assert (alone, promised) == ([0.8, 0.8], [0.4, 0.4])
    assert [text.get_text() for text in panel.texts] == ["lane hfreduce: 50%"]
    del result.summary["protection"]
    assert protection(result) is None
