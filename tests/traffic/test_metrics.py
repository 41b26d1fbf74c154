"""Figures of merit against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from traffic import metrics


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("allreduce", 1.75),
        ("reduce_scatter", 0.875),
        ("allgather", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 1),
        ("reduce", 1),
    ],
)
def test_busbw_factors_are_those_of_nccl_tests_at_8_ranks(collective: str, factor: float) -> None:
    assert metrics.busbw_factor(collective, 8) == factor


def test_ideal_algbw_of_hfreduce_is_half_the_nic() -> None:
    assert metrics.ideal_hfreduce_algbw(200e9) == 12.5e9


def test_bandwidths_of_a_steps_table_are_added_as_columns() -> None:
    steps = pd.DataFrame({"ranks": [4], "size_bytes": [6000], "started_s": [1.0], "ended_s": [3.0]})
    row = metrics.with_bandwidths(steps).iloc[0]
    assert (row["time_s"], row["algbw"], row["busbw"]) == (2.0, 3000, 4500)


def test_payload_of_a_4200_byte_mtu_is_4148_of_4214_bytes() -> None:
    assert metrics.payload_fraction(4200) == 4148 / 4214


def test_latency_percentiles_are_observed_values() -> None:
    latency = metrics.latency(np.arange(1, 1001) / 1000)
    assert latency == metrics.Latency(0.5, 0.99, 0.999, 1000)


def test_latency_of_few_operations_is_the_worst_of_them() -> None:
    assert metrics.latency([0.3, 0.1, 0.2]) == metrics.Latency(0.2, 0.3, 0.3, 3)


def test_operation_latency_and_bandwidth_of_a_table() -> None:
    operations = pd.DataFrame({"size_bytes": [100, 200, 400], "started_s": [0.0, 1.0, 2.0], "ended_s": [1.0, 2.5, 9.0]})
    assert metrics.operation_latency(operations).p50_s == 1.5
    assert metrics.operation_bandwidth(operations, 0, 3) == 100
    assert metrics.operation_bandwidth(operations, 1.25, 3.25) == 100
    assert metrics.operation_bandwidth(operations, 0, 9) == pytest.approx(700 / 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.busbw_factor("allredcue", 8), "'allredcue' is no collective; use one of allreduce"),
        (lambda: metrics.busbw_factor("allreduce", 1), "a collective of 1 ranks uses no bus"),
        (lambda: metrics.latency([]), "no operations have no latency"),
        (lambda: metrics.operation_bandwidth(pd.DataFrame(), 2, 2), "no time passes from 2 s to 2 s"),
    ],
)
def test_values_without_a_figure_are_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
