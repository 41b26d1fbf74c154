"""A day under real Slurm in virtual time, as a config names it: its daemons are programs of a guest, and what they tell
each other are packets of the fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.slurm.installed import missing
from experiments import load
from runs.registry import resolve
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [
    pytest.mark.guest,
    pytest.mark.soak,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(missing()), reason=f"no {', '.join(missing())}; tools/setup.sh test installs them"),
]
FILE = ROOT / "experiments" / "shared_cluster" / "cluster_slurm.yaml"
CONFIG: Any = resolve(str(FILE), [])[1]
PLATFORM = CONFIG.jobs[0]
STEPS = {job.name: int(job.command[3]) for job in PLATFORM.jobs}
(SILENT,) = CONFIG.failures
LOOK_S = 1.2
"""From one look to the next, which itself takes time: as late is what Slurm did told."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    here = tmp_path_factory.mktemp("slurm_day")
    return read(VirtualCommand(here, here).play(str(FILE)))


def read(directory: Path) -> dict[str, Any]:
    """Return what a run of the file saw, with times from the begin of the load on."""
    result = load(directory)
    origin_s = result.phases[-1].load_s[0]
    events = result.table("platform_events").astype({"event": str, "nodes": str, "why": str})
    events["at_s"] = events["at_s"] - origin_s
    numbers = {row["path"]: row["value"] for row in result.table("metrics").to_dict("records")}
    verdict = [result.verdict["status"], list(result.verdict["reasons"])]
    rows = events.to_dict("records")
    numbered = {row["why"]: row["number"] for row in rows if row["event"] == "submitted"}
    return {"events": rows, "numbers": numbers, "verdict": verdict, "numbered": numbered, "answer": result.answer}


def of_job(seen: dict[str, Any], name: str, *kinds: str) -> list[dict[str, Any]]:
    return [row for row in seen["events"] if row["event"] in kinds and row["number"] == seen["numbered"][name]]


def test_every_job_ends_and_the_run_is_believed(seen: dict[str, Any]) -> None:
    print(seen["answer"])
    assert seen["verdict"] == ["faithful", []]
    assert [len(of_job(seen, name, "finished")) for name in STEPS] == [1] * len(STEPS)


def test_no_step_is_lost_or_made_twice(seen: dict[str, Any]) -> None:
    numbers = seen["numbers"]
    assert numbers["together.platform.steps.made"] == sum(STEPS.values())
    assert [numbers[f"together.platform.steps.{name}"] for name in ("lost", "twice")] == [0, 0]


def test_slurm_takes_nodes_for_a_higher_level_within_the_notice(seen: dict[str, Any]) -> None:
    (asked,) = of_job(seen, "urgent", "submitted")
    (started,) = of_job(seen, "urgent", "started")
    told, *_ = of_job(seen, "pretrain", "suspend")
    left, *_ = of_job(seen, "pretrain", "left")
    assert asked["at_s"] < told["at_s"] < left["at_s"] <= started["at_s"]
    assert left["at_s"] - told["at_s"] < PLATFORM.timers.answer + PLATFORM.timers.save + LOOK_S
    first, *_ = of_job(seen, "pretrain", "started")
    assert set(started["nodes"].split()) <= set(first["nodes"].split())


def test_a_silent_host_is_down_1_3_to_1_7_times_the_limit_later_and_its_job_goes_on(seen: dict[str, Any]) -> None:
    (out,) = [row for row in seen["events"] if row["event"] == "node_out"]
    (back,) = [row for row in seen["events"] if row["event"] == "node_back"]
    assert out["nodes"] == back["nodes"] == SILENT.silent
    limit_s = PLATFORM.timers.failed_after
    assert 1.3 * limit_s < out["at_s"] - SILENT.at < 1.7 * limit_s + LOOK_S
    assert 0 < back["at_s"] - (SILENT.at + SILENT.duration) < PLATFORM.timers.tick * 2 + LOOK_S
    (again,) = [row for row in seen["events"] if row["event"] == "restart"]
    assert (again["number"], again["at_s"]) == (seen["numbered"]["long"], out["at_s"])
    assert of_job(seen, "long", "finished")[0]["at_s"] > back["at_s"]
