"""A day of a cluster over packets, as a config names it: six jobs of three users share nodes by priority, a host falls
silent, a NIC gets slow, a link is cut, a storage node comes back; what ranks printed proves that nothing is lost."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest

from experiments import load
from fabric.model.identity import NodeId
from runs.registry import resolve
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak, pytest.mark.timeout(2400)]
FILE = ROOT / "experiments" / "shared_cluster" / "cluster_day.yaml"
CONFIG: Any = resolve(str(FILE), [])[1]
PLATFORM = CONFIG.jobs[0]
STEPS = {job.name: int(job.command[job.command.index("--steps") + 1]) for job in PLATFORM.jobs}
CUT, SLOW, SILENT, STORAGE = CONFIG.failures


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of the file saw, with times from the begin of the load on."""
    here = tmp_path_factory.mktemp("platform_jobs")
    result = load(VirtualCommand(here, here).play(str(FILE)))
    origin_s = result.phases[-1].load_s[0]

    def rows(name: str) -> pd.DataFrame:
        found = result.table(name)
        for column in found.columns[[str(one).endswith("_s") for one in found.columns]]:
            found[column] = found[column] - origin_s
        return found

    tables = ("platform_events", "platform_health", "storage_chains", "storage_resyncs", "controller", "metrics")
    found: dict[str, Any] = {name: rows(name) for name in tables}
    events = found["platform_events"].astype({"event": str, "nodes": str, "why": str})
    found["events"] = events.to_dict("records")
    found["numbers"] = {row["path"]: row["value"] for row in result.table("metrics").to_dict("records")}
    found["verdict"] = [result.verdict["status"], list(result.verdict["reasons"])]
    found["answer"] = result.answer
    return found


def events_of(seen: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    return [event for event in seen["events"] if event["event"] in names]


def number_of(seen: dict[str, Any], name: str) -> int:
    (number,) = (event["number"] for event in events_of(seen, "submitted") if event["why"] == name)
    return int(number)


def test_every_job_ends_and_the_run_is_believed(seen: dict[str, Any]) -> None:
    print(seen["answer"])
    assert seen["verdict"] == ["faithful", []]
    finished = {event["number"] for event in events_of(seen, "finished")}
    assert finished == {number_of(seen, name) for name in STEPS}


def test_ranks_printed_each_step_once_but_behind_a_checkpoint_and_the_right_sums(seen: dict[str, Any]) -> None:
    numbers = seen["numbers"]
    assert numbers["together.platform.steps.made"] == sum(STEPS.values())
    for name in ("lost", "twice", "apart", "changed", "wrong"):
        assert numbers[f"together.platform.steps.{name}"] == 0, name
    assert f"{sum(STEPS.values())} of {sum(STEPS.values())} are those of the training's formula" in seen["answer"]


def test_a_higher_priority_gets_its_nodes_within_the_notice(seen: dict[str, Any]) -> None:
    suspended = events_of(seen, "suspend")
    assert suspended and all("comes first, and needs its nodes" in event["why"] for event in suspended)
    for event in suspended:
        left = next(one for one in events_of(seen, "left", "finished") if one["life"] == event["life"])
        assert left["at_s"] - event["at_s"] < PLATFORM.timers.answer + PLATFORM.timers.save + PLATFORM.timers.tick


def test_a_silent_host_is_taken_out_and_its_job_goes_on_elsewhere(seen: dict[str, Any]) -> None:
    out = next(event for event in events_of(seen, "node_out") if event["nodes"] == SILENT.silent)
    assert "not heard" in out["why"]
    assert out["at_s"] - SILENT.at < PLATFORM.timers.failed_after + PLATFORM.timers.beat + PLATFORM.timers.tick
    restarted = {event["number"] for event in events_of(seen, "restart") if event["at_s"] >= SILENT.at}
    last = {event["number"]: event for event in events_of(seen, "started")}
    assert restarted and all(SILENT.silent not in last[number]["nodes"].split() for number in restarted)
    assert any(event["nodes"] == SILENT.silent for event in events_of(seen, "node_back"))


def test_the_validator_takes_a_slow_nic_out_and_back_once_it_is_repaired(seen: dict[str, Any]) -> None:
    node = SLOW.nic.split(":")[0]
    outs = [event for event in events_of(seen, "node_out") if event["nodes"] == node]
    assert outs and SLOW.at <= outs[0]["at_s"] and "validator" in outs[0]["why"]
    backs = [event["at_s"] for event in events_of(seen, "node_back") if event["nodes"] == node]
    assert backs and backs[-1] >= SLOW.at + SLOW.duration
    others = {event["nodes"] for event in events_of(seen, "node_out")} - {node, SILENT.silent}
    assert not others, "nobody else is blamed"


def test_a_storage_node_that_returns_is_sent_what_it_lacks_while_jobs_go_on(seen: dict[str, Any]) -> None:
    chains = seen["storage_chains"]
    assert (chains["serving"] < chains["targets"]).any()
    last = chains.sort_values("at_s").groupby("chain").last()
    assert (last["serving"] == last["targets"]).all()
    resyncs = seen["storage_resyncs"]
    done = resyncs[(resyncs["outcome"] == "done") & (resyncs["size_bytes"] > 0)]
    assert set(done["target"].astype(str)) == {STORAGE.silent}
    assert (done["started_s"] > STORAGE.at + STORAGE.duration).all()


def test_routes_go_around_a_link_that_is_cut(seen: dict[str, Any]) -> None:
    rows = seen["controller"]
    installed = rows[(rows["kind"] == "installed") & rows["at_s"].between(CUT.at, CUT.at + CUT.duration)]
    assert any(CUT.port in str(json.loads(details)["links_down"]) for details in installed["details"])


def test_at_most_one_job_crosses_zones_at_a_time_with_one_pair(seen: dict[str, Any]) -> None:
    crossing: dict[int, int] = {}
    for event in seen["events"]:
        if event["event"] == "started":
            zones = [NodeId.parse(node).zone for node in event["nodes"].split()]
            crossing[event["life"]] = sum(one != other for one, other in pairwise(zones))
        elif event["event"] in ("left", "finished"):
            crossing.pop(event["life"])
        assert sum(crossing.values()) <= 1, event
    assert seen["numbers"]["together.platform.zones.pairs_across"] <= 1
