"""Bandwidths of collectives against numbers worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from traffic.collectives.bandwidth import busbw_factor, with_bandwidths
from traffic.collectives.listing import COLLECTIVES

FACTORS = {
    "allreduce": 1.75,
    "reduce_scatter": 0.875,
    "all_gather": 0.875,
    "all_to_all": 0.875,
    "broadcast": 1,
    "reduce": 1,
    "all_to_all_v": 0.875,
    "gather": 0.875,
    "scatter": 0.875,
    "send_receive": 1,
    "barrier": 1,
    "push_pull": 1,
}


@pytest.mark.parametrize(("collective", "factor"), FACTORS.items())
def test_busbw_factors_are_those_of_nccl_tests_at_8_ranks(collective: str, factor: float) -> None:
    assert busbw_factor(collective, 8) == factor


def test_every_collective_has_its_factor_here() -> None:
    assert set(FACTORS) == set(COLLECTIVES)


def test_bandwidths_of_a_steps_table_are_added_as_columns_by_the_factor_of_each_collective() -> None:
    names = pd.Series(["allreduce", "all_gather", "broadcast"], dtype="category")
    steps = pd.DataFrame({"collective": names, "ranks": 4, "size_bytes": 6000, "started_s": 1.0, "ended_s": 3.0})
    rows = with_bandwidths(steps)
    assert (rows["time_s"] == 2.0).all()
    assert (rows["algbw"] == 3000).all()
    assert rows["busbw"].tolist() == [4500, 2250, 3000]
    assert with_bandwidths(steps[:0]).empty


@pytest.mark.parametrize(
    ("collective", "ranks", "message"),
    [
        ("allredcue", 8, "'allredcue' is not a collective; use one of allreduce, all_gather"),
        ("allreduce", 1, "a collective of 1 ranks uses no bus"),
    ],
)
def test_what_has_no_factor_is_refused(collective: str, ranks: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        busbw_factor(collective, ranks)
