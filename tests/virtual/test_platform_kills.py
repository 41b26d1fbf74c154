"""The platform's programs killed at random over packets and begun again: nothing is lost, nothing is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments import load
from fabric.results import Result
from tests.cluster.platform.audit import audit, printed_steps
from tests.virtual.command import ROOT, TINY, VirtualCommand
from topologies.load import load_fabric

pytestmark = [pytest.mark.guest, pytest.mark.timeout(3600)]
FILE = ROOT / "experiments" / "shared_cluster" / "cluster_kills.yaml"


SECOND = {
    **{f"z0h{number:03d}": f"z0h{number + 5:03d}" for number in range(5)},
    **{f"z1h{number:03d}": f"z1h{number + 4:03d}" for number in range(4)},
}
"""The nodes of a second platform in the place of the first one's."""


def played(folder: Path, file: Path, seed: int) -> Result:
    out = f"r{seed}"
    done = VirtualCommand(folder, folder).run("run", str(file), "--set", f"seed={seed}", "--no-figures", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    return load(folder / out)


def two_platforms(folder: Path) -> Path:
    """Return a file with a second platform, whose programs are killed at times of their own: a guest for two days."""
    data = yaml.safe_load(FILE.read_text())
    first = data["jobs"][0]
    data["jobs"].append({**first, "name": "second", "nodes": [SECOND[name] for name in first["nodes"]]})
    for line in list(data["failures"]):
        if line.get("job") == "platform":
            data["failures"].append({**line, "process": SECOND[line["process"]], "job": "second"})
        elif "silent" in line:
            data["failures"].append({**line, "silent": SECOND[line["silent"]]})
    (folder / "two.yaml").write_text(yaml.safe_dump(data))
    return folder / "two.yaml"


@dataclass(frozen=True)
class Kills:
    """What must have come to pass of a platform: how many jobs ended, how often its scheduler was killed, and how many
    of its programs were."""

    jobs: int = 6
    of_scheduler: int = 4
    programs: int = 9


DAY = Kills()


def check(result: Result, folder: Path, name: str, wanted: Kills = DAY) -> Counter[str]:
    """Check a platform of a run; return how often its programs were killed, and how many lives its jobs had."""
    events = result.table("platform_events").astype({"event": str, "nodes": str, "why": str, "job": str})
    events = events[events["job"] == name]
    rows: Any = events.to_dict("records")
    assert audit(rows, printed_steps(folder / "logs" / name)) == []
    finished = events[events["event"] == "finished"]["number"].nunique()
    assert finished == events[events["event"] == "submitted"]["number"].nunique() == wanted.jobs
    assert "node_out" not in set(events["event"]), "nobody is taken out since the scheduler's host was silent"
    failures = result.table("failures").astype({"state": str, "target": str})
    killed = failures[failures["state"].str.startswith("killed")]["target"]
    killed = killed[killed.str.startswith(f"{name} on ")]
    assert (killed.nunique(), killed.value_counts().max()) == (wanted.programs, wanted.of_scheduler)
    return Counter(days=1, killed=len(killed), lives=int((events["event"] == "started").sum()))


def short(folder: Path) -> Path:
    """Return a file with a short day on a small platform: three jobs, the scheduler killed twice, each agent once."""
    data = yaml.safe_load(FILE.read_text())
    platform, command = data["jobs"][0], ["python3", "-m", "cluster.platform.counted_steps"]
    nodes = platform["nodes"] = [node.name for node in load_fabric(TINY).computes[:4]]
    platform["jobs"] = [
        {"name": "low", "user": "ada", "nodes": 3, "command": [*command, "20", "5", "0.2"]},
        {
            "name": "high",
            "user": "bo",
            "nodes": 2,
            "at": "2 s",
            "priority": "HIGH",
            "command": [*command, "5", "5", "0.2"],
        },
        {"name": "one", "user": "cy", "nodes": 1, "at": "3 s", "command": [*command, "5", "5", "0.2"]},
    ]
    kill = {"job": "platform", "effect": "restart", "for": "500 ms"}
    data["failures"] = [
        {**kill, "process": nodes[0], "at": "500 ms", "jitter": "2 s", "repeat": {"every": "4 s", "times": 2}},
        *({**kill, "process": node, "at": "500 ms", "jitter": "6 s"} for node in nodes[1:]),
    ]
    (folder / "short.yaml").write_text(
        yaml.safe_dump({**data, "jobs": [platform], "topology": TINY, "together_time": "15 s"})
    )
    return folder / "short.yaml"


def test_what_is_killed_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    result = played(tmp_path, short(tmp_path), 1)
    found = check(result, tmp_path / "r1", "platform", Kills(jobs=3, of_scheduler=2, programs=4))
    assert found["lives"] > 3, "some began again"
    assert result.verdict["status"] == "faithful", result.verdict["reasons"]


@pytest.mark.soak
def test_the_file_as_it_is(tmp_path: Path) -> None:
    result = played(tmp_path, FILE, 1)
    check(result, tmp_path / "r1", "platform")
    assert result.verdict["status"] == "faithful", result.verdict["reasons"]


@pytest.mark.soak
def test_days_with_kills_by_many_seeds(tmp_path: Path) -> None:
    found = Counter[str]()
    file = two_platforms(tmp_path)
    for seed in range(2, 22):
        result = played(tmp_path, file, seed)
        for name in ("platform", "second"):
            found += check(result, tmp_path / f"r{seed}", name)
        print(seed, dict(found), flush=True)
