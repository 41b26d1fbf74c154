"""What flows delivered, by their connections or by the times of short ones."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from fabric.delivered import Flow, acknowledged_bytes, delivered
from fabric.stalls.victims import delivered_in_intervals
from fabric.tables import TABLES
from tests.fabric.stalls.chain import PHASE
from tests.rows import table_of


def flows_table(*rows: tuple[float, str, str, int]) -> pd.DataFrame:
    """Rows of at_s, host, peer, bytes_acked."""
    full = [(at, PHASE.name, "storage", host, peer, 0.001, 0, acked) for at, host, peer, acked in rows]
    return table_of("flows", full).astype(TABLES["flows"].dtypes)


def test_bytes_come_evenly_between_samples_of_a_connection() -> None:
    table = flows_table((10.5, "a", "x", 1_000), (12.5, "a", "x", 5_000))
    found = delivered_in_intervals(table, TABLES["operations"].empty(), PHASE, np.array([10.0, 11.0, 12.0, 13.0]))
    assert found[Flow("storage", "a", "x")] == pytest.approx([1_000, 2_000, 1_000])


def test_parallel_connections_of_a_pair_add_up_and_idle_ones_are_left_out() -> None:
    rows = [(10.0, "a", "x", 0), (10.0, "a", "x", 900), (12.0, "a", "x", 400), (12.0, "a", "x", 1_500)]
    table = flows_table(*rows, (10.0, "b", "y", 7), (12.0, "b", "y", 7))
    found = delivered_in_intervals(table, TABLES["operations"].empty(), PHASE, np.array([10.0, 11.0, 12.0]))
    assert {flow: sizes.tolist() for flow, sizes in found.items()} == {Flow("storage", "a", "x"): [500, 500]}


def test_short_flows_deliver_evenly_over_their_time_and_are_not_counted_twice() -> None:
    rows = [
        (PHASE.name, "storage", "flow", "a", "x", 1_000, 10.5, 12.5, 0),
        (PHASE.name, "storage", "flow", "a", "x", 300, 12.1, 12.2, 0),
        (PHASE.name, "storage", "read", "a", "x", 7_000, 10.0, 13.0, 0),
        ("other", "storage", "flow", "a", "x", 7_000, 10.0, 13.0, 0),
    ]
    operations = table_of("operations", rows).astype(TABLES["operations"].dtypes)
    sampled = flows_table((10.5, "a", "x", 0), (12.5, "a", "x", 800))
    found = delivered_in_intervals(sampled, operations, PHASE, np.array([10.0, 11.0, 12.0, 13.0]))
    assert found == {Flow("storage", "a", "x"): pytest.approx([250, 500, 550])}


def test_jobs_of_one_level_are_format_apart() -> None:
    """Each flow of one job has a connection; those of the other, between the same hosts, stay and are sampled."""
    short = (PHASE.name, "noise", "other", "flow", "a", "x", 300, 11.0, 12.0, 0)
    sampled = [(at, PHASE.name, "ring", "other", "a", "x", 0.001, 0, 100 * (at - 10)) for at in (10.0, 12.0)]
    sampled += [(at, PHASE.name, "noise", "other", "a", "x", 0.001, 0, 50 * (at - 10)) for at in (10.0, 12.0)]
    found = delivered_in_intervals(
        table_of("flows", sampled), table_of("operations", [short]), PHASE, np.array([10.0, 11.0, 12.0])
    )
    assert found == {Flow("other", "a", "x"): pytest.approx([100, 400])}


def test_a_connection_that_began_anew_has_its_first_bytes_left_out() -> None:
    table = flows_table((10.0, "a", "x", 900), (11.0, "a", "x", 1_000), (12.0, "a", "x", 40), (13.0, "a", "x", 60))
    ((_, growth),) = delivered(table, TABLES["operations"].empty(), PHASE)
    assert np.diff(growth.by(np.array([10.0, 11.0, 12.0, 13.0]))).tolist() == [100, 0, 20]
    assert growth.by(np.array([5.0, 20.0])).tolist() == [900, 1_020]


def test_acknowledged_bytes_are_those_between_two_times_of_each_connection_alone() -> None:
    """Two connections of one pair, sampled together, in one order: 1,000 and 100 bytes a second."""
    rows = [(at, "a", "b", 5000 + rate * at) for at in (0, 2, 4) for rate in (1000, 100)]
    assert acknowledged_bytes(flows_table(*rows), 1.0, 3.0) == 2200
    with pytest.raises(ValueError, match="no time passes from 3"):
        acknowledged_bytes(flows_table(*rows), 3.0, 3.0)


@pytest.mark.parametrize("longest_s", [1e-9, 1e-3, 2.0])
def test_many_short_flows_of_a_pair_are_summed_as_one_by_one(longest_s: float) -> None:
    """All of them at each time, as the definition has it, within two units of the last digit."""
    random = np.random.default_rng(3)
    started_s = np.sort(random.uniform(10.0, 1000.0, 400))
    ended_s = started_s + random.uniform(0, longest_s, 400)
    sizes = random.integers(1, 10**9, 400)
    rows = [
        (PHASE.name, "storage", "flow", "a", "x", int(size), start, end, 0)
        for size, start, end in zip(sizes, started_s, ended_s, strict=True)
    ]
    ((_, growth),) = delivered(flows_table(), table_of("operations", rows).astype(TABLES["operations"].dtypes), PHASE)
    ended_s = np.maximum(ended_s, started_s + 1e-9)
    done = np.clip((growth.at_s[None, :] - started_s[:, None]) / (ended_s - started_s)[:, None], 0, 1)
    expected = (done * sizes[:, None]).sum(axis=0)
    assert np.abs(growth.counted_bytes - expected).max() <= 4e-16 * sizes.sum()
    assert growth.counted_bytes[-1] == sizes.sum()


def test_memory_for_flows_of_a_pair_grows_with_their_number() -> None:
    """A matrix of all flows by all times would be 3 GB."""
    count = 14_000
    started_s = np.linspace(10.0, 1000.0, count)
    rows = [(PHASE.name, "storage", "flow", "a", "x", 100, start, start + 0.5, 0) for start in started_s]
    table = table_of("operations", rows).astype(TABLES["operations"].dtypes)
    tracemalloc.start()
    try:
        ((_, growth),) = delivered(flows_table(), table, PHASE)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert growth.counted_bytes[-1] == pytest.approx(100 * count)
