"""The platform's programs killed at random over packets and begun again: nothing is lost, nothing is left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.platform.audit import audit, printed_steps
from experiments import load
from fabric.results import Result
from tests.virtual.command import ROOT, VirtualCommand

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
    mine = [line for line in data["failures"] if line["job"] == "platform"]
    data["failures"] += [{**line, "process": SECOND[line["process"]], "job": "second"} for line in mine]
    (folder / "two.yaml").write_text(yaml.safe_dump(data))
    return folder / "two.yaml"


def check(result: Result, folder: Path, name: str, manager: str) -> Counter[str]:
    """Check a platform of a run; return how often its programs were killed, and how many lives its jobs had."""
    events = result.table("platform_events").astype({"event": str, "nodes": str, "why": str, "job": str})
    events = events[events["job"] == name]
    rows: Any = events.to_dict("records")
    assert audit(rows, printed_steps(folder / "logs" / name)) == []
    finished = events[events["event"] == "finished"]["number"].nunique()
    assert finished == events[events["event"] == "submitted"]["number"].nunique() == 6
    failures = result.table("failures").astype({"state": str, "target": str})
    killed = failures[failures["state"].str.startswith("killed")]["target"]
    assert (killed == f"{name} on {manager}").sum() == 4, "the scheduler"
    killed = killed[killed.str.startswith(name)]
    assert killed.nunique() == 9, "it and each agent"
    return Counter(days=1, killed=len(killed), lives=int((events["event"] == "started").sum()))


def test_what_is_killed_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    result = played(tmp_path, FILE, 1)
    check(result, tmp_path / "r1", "platform", "z0h000")
    assert result.verdict["status"] == "faithful", result.verdict["reasons"]


@pytest.mark.soak
def test_days_with_kills_by_many_seeds(tmp_path: Path) -> None:
    found = Counter[str]()
    file = two_platforms(tmp_path)
    for seed in range(2, 22):
        result = played(tmp_path, file, seed)
        for name, manager in (("platform", "z0h000"), ("second", SECOND["z0h000"])):
            found += check(result, tmp_path / f"r{seed}", name, manager)
        print(seed, dict(found), flush=True)
