"""A NIC's failure: what its summary says of steps, and which configs are refused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import pytest

from experiments.nic_failover.run import CUT, WHOLE, summarize
from fabric.errors import ConfigError
from fabric.metrics import as_metrics, by_path
from runs.registry import resolve
from tests.experiments.declared import undeclared
from topologies.load import load_fabric

LINK = load_fabric("dual_tor_small").links[0]
MEGABYTE = 10**6


def steps(phase: str, starts_s: Sequence[float], took_s: float) -> pd.DataFrame:
    ended = [start + took_s for start in starts_s]
    columns = {"phase": phase, "ranks": 2, "size_bytes": MEGABYTE, "started_s": list(starts_s), "ended_s": ended}
    return pd.DataFrame(columns).assign(collective="allreduce")


def restarts(*resumed_s: float) -> pd.DataFrame:
    return pd.DataFrame({"phase": [CUT] * len(resumed_s), "resumed_s": list(resumed_s)}, dtype=object).astype(
        {"resumed_s": float}
    )


def test_what_is_left_is_of_steps_since_the_job_last_began_again() -> None:
    played = pd.concat([steps(WHOLE, [0, 1], 0.5), steps(CUT, [10, 10.5], 0.5), steps(CUT, [13, 14], 1.0)])
    found = by_path(summarize(played, restarts(12.0, 12.5), 11.0, LINK, 2)["metrics"])
    assert found["whole.busbw_Bps"] == 2 * MEGABYTE
    assert found["cut.left_fraction"] == found["cut.theory_left_fraction"] == 0.5
    assert (found["cut.again_after_s"], found["cut.steps"]) == (1.5, 2)


@pytest.mark.parametrize("resumed_s", [[], [math.nan]])
def test_nothing_is_left_of_a_job_that_does_not_begin_again(resumed_s: list[float]) -> None:
    played = pd.concat([steps(WHOLE, [0, 1], 0.5), steps(CUT, [10], 0.5)])
    found = summarize(played, restarts(*resumed_s), 11.0, LINK, 1)
    metrics = by_path(as_metrics(found["metrics"]))
    assert undeclared("nic_failover", found["metrics"]) == []
    assert (metrics["cut.left_fraction"], metrics["cut.theory_left_fraction"]) == (0, 0)
    assert "cut.again_after_s" not in metrics
    assert "With 1 NIC per host" in found["answer"]
    assert "0.0% of the bandwidth are left." in found["answer"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("nic=4", "nic: 4: hosts have NICs 0 to 3; choose one of them"),
        ("nodes=5", "nodes: 5 exceed the 4 compute nodes of next_generation_32768_small; lower it"),
        ("cut_at=10 s", "cut_at: 10 s is not within phase_time 10 s; lower it"),
        ("failures=[{host: z0h000, at: 1 s, rate: 0.5}]", "failures: this experiment cuts a link of its own"),
    ],
)
def test_what_does_not_fit_is_refused(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve("nic_failover", [setting])
