"""A failure that is due after the end of all phases is refused before the run, wherever their lengths are known."""

from __future__ import annotations

import pytest

from fabric.config import MOST_TIME_S
from fabric.errors import ConfigError
from runs.config import RunConfig
from runs.registry import EXPERIMENTS, resolve

LATE_S = MOST_TIME_S / 2
BY_KEY = {
    "dcqcn_frontier": "phase_time",
    "head_of_line": "warm_up, measured and start_spread, x time_scale",
    "incast": "phase_time",
    "isolation": "together_time",
    "kv_cache": "phase_time",
    "pfc_storm": "warm_up and measured",
    "protection": "phase_time",
    "routing_incast": "phase_time",
    "shared_cluster": "together_time",
    "storage_throughput": "phase_time",
    "traffic_patterns": "warm_up + measured_time",
}
"""The experiments that may fail by their config and whose phases have a length, with the key of the longest."""
ALONE = (
    "fencing", "flash_cut_year", "goodput_year", "link_flap", "lossless_soak", "nic_failover", "resync",
    "storage_failure",
)  # fmt: skip
"""Those that let things fail by themselves."""


def faults_of(experiment: str, at_s: float, *settings: str) -> str:
    fabric = resolve(experiment, list(settings)).config.fabric()
    line = f"failures=[{{nic: '{fabric.computes[0].name}:0', at: {at_s!r}, for: 1}}]"
    try:
        resolve(experiment, [line, *settings])
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("experiment", sorted(EXPERIMENTS))
def test_each_experiment_says_how_long_its_phases_are_or_what_they_last_until(experiment: str) -> None:
    config = resolve(experiment, []).config
    assert type(config).phase_lengths is not RunConfig.phase_lengths, "it says nothing"
    faults = faults_of(experiment, LATE_S)
    if experiment in ALONE:
        assert "by itself" in faults or "its own" in faults
    elif experiment in BY_KEY:
        assert "is after the end of all phases, so that it would never happen" in faults
        assert f"lower it, or raise {BY_KEY[experiment]} (" in faults
    else:
        assert faults == ""
        assert config.phase_lengths.until


@pytest.mark.parametrize("experiment", sorted(BY_KEY))
def test_a_failure_just_before_the_end_is_not_refused(experiment: str) -> None:
    (_, length_s) = longest = resolve(experiment, []).config.phase_lengths.longest or ("", 0.0)
    assert "after the end of all phases" in faults_of(experiment, length_s), longest
    assert "after the end of all phases" not in faults_of(experiment, length_s * 0.999)


def test_a_phase_that_jobs_may_prolong_has_no_known_length() -> None:
    """What never came to pass then makes the run invalid at its end (``failures_missed``)."""
    files = "jobs=[{name: a, kind: files, nodes: 1, mdtest: {files: 4}}]"
    assert faults_of("shared_cluster", LATE_S, files) == ""
    assert "after the end of all phases" in faults_of("shared_cluster", LATE_S)


def test_studies_of_a_cache_that_last_until_all_is_answered_have_no_length() -> None:
    assert faults_of("kv_cache", LATE_S, "studies=[trace]") == ""
    assert faults_of("kv_cache", LATE_S, "studies=[removal, trace]") == ""
    assert "after the end of all phases" in faults_of("kv_cache", LATE_S, "studies=[removal]")
