"""The platform over packets: six jobs of three users share nodes by priority, and one survives a silent host."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.guest_scripts import run_script
from tests.virtual.command import HERE
from tests.virtual.platform_jobs import EVERY, JOBS, SILENT, SILENT_AT_S

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
STEPS = {name: steps for name, _, _, steps, _, _ in JOBS}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What platform_jobs.play() saw."""
    report = tmp_path_factory.mktemp("platform_jobs") / "report.json"
    run_script(HERE / "platform_jobs.py", str(report), keep=[report.parent])
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def events_of(seen: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    return [event for event in seen["events"] if event["event"] in names]


def number_of(seen: dict[str, Any], name: str) -> int:
    (number,) = (event["number"] for event in events_of(seen, "submitted") if event["why"] == name)
    return int(number)


def test_every_job_ends_and_the_run_is_believed(seen: dict[str, Any]) -> None:
    assert seen["verdict"] == ["faithful", []]
    finished = {event["number"] for event in events_of(seen, "finished")}
    assert finished == {number_of(seen, name) for name in STEPS}


def test_who_yields_loses_no_step_and_makes_none_twice(seen: dict[str, Any]) -> None:
    """But for the steps behind the last checkpoint, when a host falls silent."""
    for name, lives in seen["steps"].items():
        made = [step for life in lives for step in life]
        assert sorted(set(made)) == list(range(1, STEPS[name] + 1)), name
        assert len(made) - STEPS[name] < (EVERY if name == "pretrain" else 1), name
    first, second, *_ = seen["steps"]["pretrain"]
    assert second[0] == first[-1] + 1, "it goes on from the step that it saved"


def test_a_higher_priority_gets_its_nodes_within_the_notice(seen: dict[str, Any]) -> None:
    for name, at_s in (("urgent", 20.0), ("long", 50.0)):
        number = number_of(seen, name)
        (started,) = (event for event in events_of(seen, "started") if event["number"] == number)
        assert at_s < started["at_s"] < at_s + 10 + 2, name
    suspended = [event["why"] for event in events_of(seen, "suspend")]
    assert len(suspended) == 2 and all("comes first, and needs its nodes" in why for why in suspended)


def test_a_silent_host_is_taken_out_after_a_minute_and_comes_back(seen: dict[str, Any]) -> None:
    (out,), (back,), (restart,) = (events_of(seen, name) for name in ("node_out", "node_back", "restart"))
    assert out["nodes"] == back["nodes"] == SILENT
    assert SILENT_AT_S + 50 <= out["at_s"] <= SILENT_AT_S + 61
    assert restart["number"] == number_of(seen, "pretrain")
    after = [event for event in events_of(seen, "started") if event["at_s"] > out["at_s"]]
    assert after and SILENT not in after[0]["nodes"].split()
    assert after[0]["at_s"] - out["at_s"] < 5


def test_at_most_one_job_crosses_zones_at_a_time_with_one_pair(seen: dict[str, Any]) -> None:
    crossing: dict[int, int] = {}
    for event in seen["events"]:
        if event["event"] == "started":
            zones = [seen["zones"][node] for node in event["nodes"].split()]
            crossing[event["life"]] = sum(one != other for one, other in pairwise(zones))
        elif event["event"] in ("left", "finished"):
            crossing.pop(event["life"])
        assert sum(crossing.values()) <= 1, event
