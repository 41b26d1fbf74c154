"""What figures over runs say at their axes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.sweeps.config import FigureConfig
from app.sweeps.figures import _lines
from app.sweeps.labels import key_words, metric_words, places_of


def lines_of(values: list[str]) -> Axes:
    axes = Figure().add_subplot()
    _lines(axes, pd.DataFrame({"axis": values, "": [2.0, 3.0, 4.0]}), FigureConfig(y="lanes.flow.p99_s", x="axis"))
    return axes


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("lanes.hfreduce.algbw_Bps", "algbw of hfreduce, lanes (B/s)"),
        ("shared.storage_kept_fraction", "storage kept of shared (fraction)"),
        ("drops_packets", "drops (packets)"),
        ("{queueings}.hfreduce.slowdown", "slowdown of hfreduce, queueings (number)"),
    ],
)
def test_a_metric_has_words_and_a_unit(path: str, words: str) -> None:
    assert metric_words(path) == words


def test_a_key_has_words() -> None:
    assert key_words("queues.lanes.storage.share") == "share of storage, lanes"
    assert key_words("routing.policy") == "policy of routing"
    assert key_words("nccl_nodes") == "nccl nodes"


def test_values_with_units_are_numbers() -> None:
    sizes = places_of(["64 KiB", "1 MiB", "16 MiB"])
    assert sizes.of == {"64 KiB": 65536.0, "1 MiB": 1048576.0, "16 MiB": 16777216.0}
    assert sizes.double
    times = places_of(["10 ms", "0.02 s", "30 ms"])
    assert list(times.of.values()) == pytest.approx([0.01, 0.02, 0.03])
    assert not times.double
    assert not places_of(["1 MiB", "10 ms"]).are_numbers


def test_categories_are_not_joined() -> None:
    line, dots = lines_of(["static", "ecmp", "adaptive"]).lines
    assert (line.get_linestyle(), dots.get_linestyle()) == ("None", "None")
    assert np.asarray(line.get_xydata()).tolist() == [[0.0, 2.0], [1.0, 3.0], [2.0, 4.0]]
    assert lines_of(["1", "5", "6"]).lines[0].get_linestyle() == "-"


def test_an_axis_of_doubled_values_is_logarithmic() -> None:
    doubled, even = lines_of(["1 MiB", "2 MiB", "4 MiB"]), lines_of(["1", "2", "3"])
    assert (doubled.get_xscale(), even.get_xscale()) == ("log", "linear")
    assert [one.get_text() for one in doubled.get_xticklabels()] == ["1 MiB", "2 MiB", "4 MiB"]
