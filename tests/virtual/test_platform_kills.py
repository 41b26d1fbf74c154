"""The platform's programs killed at random over packets and begun again: nothing is lost, nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.platform.audit import audit, printed_steps
from experiments import load
from fabric.results import Result
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(3600)]
FILE = ROOT / "experiments" / "shared_cluster" / "cluster_kills.yaml"


def played(folder: Path, seed: int, *settings: str) -> Result:
    words = [word for one in (f"seed={seed}", *settings) for word in ("--set", one)]
    done = VirtualCommand(folder, folder).run("run", str(FILE), *words, "--no-figures", "--out", f"r{seed}")
    assert done.returncode == 0, done.stdout + done.stderr
    return load(folder / f"r{seed}")


def check(result: Result, folder: Path) -> dict[str, int]:
    """Check a run; return how often programs were killed, and how many lives of jobs there were."""
    events = result.table("platform_events").astype({"event": str, "nodes": str, "why": str})
    rows = events.to_dict("records")
    assert audit(rows, printed_steps(folder / "logs" / "platform")) == []  # type: ignore[arg-type]
    finished = events[events["event"] == "finished"]["number"].nunique()
    assert finished == events[events["event"] == "submitted"]["number"].nunique() == 6
    failures = result.table("failures").astype({"state": str, "target": str})
    killed = failures[failures["state"].str.startswith("killed")]["target"]
    assert (killed == "platform on z0h000").sum() == 4, "the scheduler"
    assert killed[killed.str.startswith("platform")].nunique() == 9, "it and each agent"
    assert result.verdict["status"] == "faithful", result.verdict["reasons"]
    return {"killed": len(killed), "lives": int((events["event"] == "started").sum())}


def test_what_is_killed_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    """The file as it is, but for its storage."""
    check(played(tmp_path, 1), tmp_path / "r1")


@pytest.mark.soak
def test_a_day_with_kills_by_many_seeds(tmp_path: Path) -> None:
    found = {seed: check(played(tmp_path, seed), tmp_path / f"r{seed}") for seed in range(2, 42)}
    print({name: sum(one[name] for one in found.values()) for name in ("killed", "lives")}, "over", len(found))
