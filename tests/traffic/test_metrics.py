"""Figures of merit against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from traffic import metrics


def test_ideal_algbw_of_hfreduce_is_half_the_nic() -> None:
    assert metrics.ideal_hfreduce_algbw(200e9) == 12.5e9


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
    assert metrics.operation_bandwidth(operations, 0, 9) == pytest.approx(700 / 9)
    assert metrics.operation_bandwidth(operations, 0, 3) == pytest.approx((300 + 400 / 7) / 3), "its part of the last"
    assert metrics.operation_bandwidth(operations, 1.25, 3.25) == pytest.approx((200 * 1.25 / 1.5 + 400 * 1.25 / 7) / 2)


def test_an_operation_that_took_no_time_counts_where_it_ended() -> None:
    operations = pd.DataFrame({"size_bytes": [100, 10], "started_s": [1.0, 2.0], "ended_s": [1.0, 2.0]})
    assert [metrics.operation_bandwidth(operations, *one) for one in ((0, 1), (1, 2), (2, 3))] == [100, 10, 0]


def at_10_MBps(plays_s: float, took_s: float) -> pd.DataFrame:  # noqa: N802 - bytes, not bits
    """Return ten operations at any moment, one after the other, until the load ends; those under way then end, too."""
    began = np.array([[turn * took_s - lane * took_s / 10 for turn in range(500)] for lane in range(10)]).ravel()
    ended = began + took_s
    inside = (ended > 0) & (began < plays_s)
    began, ended = np.maximum(began, 0)[inside], ended[inside]
    return pd.DataFrame({"started_s": began, "ended_s": ended, "size_bytes": 1e6 * (ended - began)})


@pytest.mark.parametrize("took_s", [0.1, 1.0, 3.0])
def test_a_load_has_one_bandwidth_however_long_it_plays(took_s: float) -> None:
    """Counted whole where they end, operations of 3 s had 8.1 MB/s for 8 s and 9.6 for 40; over the whole phases, which
    end with the last operation, 8.8 and 9.7."""
    found = [metrics.operation_bandwidth(at_10_MBps(plays_s, took_s), 0, plays_s) for plays_s in (8.0, 40.0)]
    assert found == pytest.approx([10e6, 10e6])


def test_a_slow_last_operation_makes_a_short_load_no_slower_than_a_long_one() -> None:
    found = []
    for plays_s in (8.0, 40.0):
        began = np.arange(round(plays_s * 10)) / 10
        ended = began + 0.1
        ended[-1] = plays_s + 2
        rows = pd.DataFrame({"started_s": began, "ended_s": ended, "size_bytes": 1e6})
        found.append(metrics.operation_bandwidth(rows, 0, plays_s))
    assert found[1] / found[0] == pytest.approx(1, abs=0.01)


def of_kind(kind: str, *times_s: float) -> pd.DataFrame:
    return pd.DataFrame({"operation": kind, "size_bytes": 1, "started_s": 5.0, "ended_s": 5.0 + np.array(times_s)})


def test_percentiles_are_over_all_that_began() -> None:
    """Two of a hundred failed: the 99th percentile is none of the 98 others'."""
    rows = pd.concat([of_kind("flow", *np.arange(1, 99) / 1000), of_kind("flow_failed", 10.05, 10.26)])
    found = metrics.completion(rows, "flow")
    assert found is not None
    named = found.named("flow")
    assert list(named) == ["flow.p50_s", "flow.p99_at_least_s", "flow.p999_at_least_s"]
    assert list(named.values()) == pytest.approx([0.05, 10.05, 10.26])
    assert found.counts("flow") == {
        "flow.operations": 98, "flow.abandoned": 0, "flow.failed": 2, "flow.refused": 0,
    }  # fmt: skip


def test_what_failed_or_was_refused_ranks_after_all_that_completed_whatever_time_it_had() -> None:
    for kind, had_s in (("read_failed", 0.001), ("read_refused", 0.0), ("read_failed", 99.0)):
        found = metrics.completion(pd.concat([of_kind("read", *range(1, 99)), of_kind(kind, had_s, had_s)]), "read")
        assert found is not None
        assert found.percentiles["p50"] == metrics.Percentile(50.0), kind
        assert found.percentiles["p99"] == metrics.Percentile(max(98.0, had_s), is_known=False)


def test_what_the_end_of_its_load_cut_off_counts_as_one_that_took_longer() -> None:
    """By hand: the one cut off at 2.5 s has a fourth, half of which goes to each of the two that took longer."""
    assert metrics.percentiles([1, 2, 3, 4], [2.5], [], [200, 400, 700, 701]) == [
        metrics.Percentile(value_s) for value_s in (1, 2, 3, 4)
    ]
    assert metrics.percentiles([1, 2], [2.5], [], [666, 667]) == [
        metrics.Percentile(2.0),
        metrics.Percentile(2.5, is_known=False),
    ]
    assert metrics.percentiles([], [3.0], [], [500]) == [metrics.Percentile(3.0, is_known=False)]
    assert metrics.percentiles([], [], [0.0], [500]) == [metrics.Percentile(0.0, is_known=False)]


def test_an_end_of_the_load_moves_no_percentile() -> None:
    """Times of mean 1 s, each cut off at a random moment: of those alone that completed, the median is 0.46 s."""
    random = np.random.default_rng(1)
    times_s, seen_s = random.exponential(size=100_000), random.uniform(0, 3, size=100_000)
    is_cut = times_s > seen_s
    p50, p90 = metrics.percentiles(times_s[~is_cut], seen_s[is_cut], [], [500, 900])
    assert (p50.value_s, p90.value_s) == pytest.approx((np.log(2), np.log(10)), rel=0.02)
    assert metrics.latency(times_s[~is_cut]).p50_s < 0.6


@pytest.mark.parametrize("count", [1, 2, 3, 10, 99, 100, 999, 1000, 1001, 12_345])
def test_percentiles_of_what_all_completed_are_of_the_nearest_rank(count: int) -> None:
    times_s = np.random.default_rng(count).exponential(size=count)
    found = metrics.percentiles(times_s, [], [], [500, 990, 999])
    alone = metrics.latency(times_s)
    assert found == [metrics.Percentile(value_s) for value_s in (alone.p50_s, alone.p99_s, alone.p999_s)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.latency([]), "no operations have no latency"),
        (lambda: metrics.percentiles([], [], [], [500]), "no operations have no percentiles"),
        (lambda: metrics.operation_bandwidth(pd.DataFrame(), 2, 2), "no time passes from 2 s to 2 s"),
    ],
)
def test_values_without_a_figure_are_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
