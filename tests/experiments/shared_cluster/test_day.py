"""What the figure of a cluster's day shows: failures by lines of the config, chains and resyncs over time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.shared_cluster.day_data import Fault, Repair, degraded_chains, faults_of, repairs_of, resync_rate
from experiments.shared_cluster.day_figure import platform_day
from experiments.shared_cluster.experiment import EXPERIMENT
from fabric.results import Result
from tests.experiments.own_results import own_result
from tests.platform_result import platform_result

LINES = [
    {"silent": "z0h002", "at": 60.0, "for": 90.0},
    {"nic": "z1h001:0", "at": 5.0, "rate": 0.1},
    {"port": "z0l00:5", "at": 9.0, "for": 1.0, "repeat": {"every": 3.0, "times": 2}},
    {"gpu": "z1h004/3", "at": 40.0, "xid": 94},
]


def failure(target: str, state: str, done_s: float, ended_s: float, causes: str) -> dict[str, Any]:
    return {
        "phase": "together",
        "target": target,
        "state": state,
        "done_s": done_s,
        "ended_s": ended_s,
        "causes": causes,
    }


FAILURES = pd.DataFrame(
    [
        failure("n", "rate 0.1", 5.0, math.nan, "1"),
        failure("l", "down", 9.0, 10.0, "2"),
        failure("l", "whole", 10.0, 12.0, "2"),
        failure("l", "down", 12.0, 13.0, "2"),
        failure("l", "whole", 13.0, math.nan, "2"),
        failure("g", "Xid 94", 40.0, math.nan, "3"),
        failure("h", "down", 60.0, 150.0, "0"),
        failure("platform on z0h002", "stopped", 60.1, 150.1, "0"),
        failure("h", "whole", 150.0, math.nan, "0"),
        failure("platform on z0h002", "whole", 150.1, math.nan, "0"),
    ]
)


def test_each_line_of_failures_is_a_span_as_often_as_it_was_carried_out() -> None:
    assert list(faults_of(LINES, FAILURES, 240.0)) == [
        Fault("silent z0h002", "silent", 60.0, 150.0),
        Fault("nic z1h001:0: at 10% of its rate", "nic", 5.0, 240.0),
        Fault("port z0l00:5: cut", "port", 9.0, 10.0),
        Fault("port z0l00:5: cut", "port", 12.0, 13.0),
        Fault("gpu z1h004/3: Xid 94", "gpu", 40.0, 240.0),
    ]


def test_rules_that_were_installed_are_repairs() -> None:
    rows = [
        {"at_s": 9.2, "kind": "installed", "details": '{"links_down": ["a--b"]}'},
        {"at_s": 9.1, "kind": "links", "details": "{}"},
        {"at_s": 10.4, "kind": "installed", "details": "{}"},
    ]
    assert list(repairs_of(pd.DataFrame(rows))) == [Repair(9.2, 1), Repair(10.4, 0)]


def test_chains_that_lack_a_replica_and_what_is_sent_to_them_over_time() -> None:
    chains = [(0, 1, 3), (0, 2, 3), (70, 1, 2), (70, 2, 2), (90, 2, 3)]
    rows = pd.DataFrame(
        [{"at_s": float(at), "job": "fs", "chain": c, "targets": 3, "serving": s} for at, c, s in chains]
    )
    found = degraded_chains(rows)
    assert (found.at_s.tolist(), found.values.tolist(), found.most) == ([0, 70, 90], [0, 2, 1], 2)
    attempts = [(80.0, 82.0, 2000), (81.0, 83.0, 1000), (70.0, 71.0, 0)]
    sent = resync_rate(pd.DataFrame(attempts, columns=["started_s", "ended_s", "size_bytes"]), 90.0)
    assert {at_s: value for at_s, value in zip(sent.at_s, sent.values, strict=True) if value} == pytest.approx(
        {80: 1000, 81: 1500, 82: 500}
    )


def test_the_day_has_nodes_jobs_and_storage_on_one_axis(tmp_path: Path) -> None:
    figure = platform_day(platform_result(tmp_path / "run"))
    assert figure is not None
    nodes, jobs, storage, resync = figure.subfigs[1].axes
    assert [label.get_text() for label in nodes.get_yticklabels()] == ["z0h001", "z0h002", "z1h000"]
    assert [label.get_text() for label in jobs.get_yticklabels()] == [
        "high  bo HIGH 1 node",
        "low  ada NORMAL 2 nodes",
    ]
    assert [text.get_text().strip() for text in jobs.texts] == ["3"], "the step that was saved for the suspend"
    widths = sorted(round(bar.get_width(), 6) for container in jobs.containers for bar in container)
    assert widths == [0.2, 0.9, 1.1, 2.8, 2.9, 3.5, 3.5], "waits, lives, and from the notice on"
    assert (storage.get_ylabel(), resync.get_ylabel()) == ("number of chains\nwithout a replica", "resync (kB/s)")
    assert resync.get_ylim()[1] == pytest.approx(1.15 * 24)


def test_a_result_without_users_jobs_has_no_day(tmp_path: Path) -> None:
    found: Result = own_result(tmp_path / "run", EXPERIMENT)
    assert platform_day(found) is None
