"""The platform over packets, as a config names it: six jobs of three users share nodes by priority, and one survives a
silent host."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from experiments import load
from experiments.registry import resolve
from fabric.model.identity import NodeId
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
FILE = ROOT / "experiments" / "shared_cluster" / "cluster_day.yaml"
CONFIG: Any = resolve(str(FILE), [])[1]
STEPS = {job.name: int(job.command[-2]) for job in CONFIG.jobs[0].jobs}
EVERY = 10
SILENT, SILENT_AT_S = CONFIG.failures[0].silent, CONFIG.failures[0].at


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of the file saw: its events from the begin of the phase on, and which steps were made."""
    here = tmp_path_factory.mktemp("platform_jobs")
    done = VirtualCommand(here, here).run("run", str(FILE), "--no-figures", "--out", "r")
    assert done.returncode == 0, done.stdout + done.stderr
    result = load(here / "r")
    events = result.table("platform_events")
    events["at_s"] -= float(result.table("jobs")["started_s"].iloc[0])
    columns = ["at_s", "event", "number", "life", "nodes", "why"]
    rows: Any = events.astype({"event": str, "nodes": str, "why": str})[columns].to_dict("records")
    names = {row["number"]: row["why"] for row in rows if row["event"] == "submitted"}
    return {
        "events": rows,
        "steps": {name: steps_of(here / "r" / "logs", rows, number) for number, name in names.items()},
        "zones": {name: NodeId.parse(name).zone for name in CONFIG.jobs[0].nodes},
        "verdict": [result.verdict["status"], list(result.verdict["reasons"])],
        "answer": result.answer,
    }


def steps_of(logs: Path, events: list[dict[str, Any]], number: int) -> list[list[int]]:
    """Return the steps that rank 0 of a job made, life by life."""
    found = []
    for row in events:
        if (row["number"], row["event"]) == (number, "started"):
            log = logs / "platform" / row["nodes"].split()[0] / f"{row['life']}-0" / "log"
            found.append([int(word) for word in log.read_text().split()])
    return found


def events_of(seen: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    return [event for event in seen["events"] if event["event"] in names]


def number_of(seen: dict[str, Any], name: str) -> int:
    (number,) = (event["number"] for event in events_of(seen, "submitted") if event["why"] == name)
    return int(number)


def test_the_answer_says_what_came_to_pass(seen: dict[str, Any]) -> None:
    for words in (
        "platform: 6 of 6 jobs finished; 2 suspended for others: pretrain went on from step ",
        f"; {SILENT} was taken out at 14",
        " (not heard for 6",
        "; pretrain began again 1.0 s later from step ",
    ):
        assert words in seen["answer"], seen["answer"]


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
