"""Figures of merit against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fabric.percentiles import Percentile
from traffic import metrics


def test_ideal_algbw_of_hfreduce_is_half_the_nic() -> None:
    assert metrics.ideal_hfreduce_algbw(200e9) == 12.5e9


def test_payload_of_a_4200_byte_mtu_is_4148_of_4214_bytes() -> None:
    assert metrics.payload_fraction(4200) == 4148 / 4214


def test_bandwidth_of_a_table() -> None:
    operations = pd.DataFrame({"size_bytes": [100, 200, 400], "started_s": [0.0, 1.0, 2.0], "ended_s": [1.0, 2.5, 9.0]})
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
        assert found.percentiles["p50"] == Percentile(50.0), kind
        assert found.percentiles["p99"] == Percentile(max(98.0, had_s), is_known=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.operation_bandwidth(pd.DataFrame(), 2, 2), "no time passes from 2 s to 2 s"),
    ],
)
def test_values_without_a_figure_are_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=message):
        call()
