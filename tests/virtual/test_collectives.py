"""Collectives in virtual time: what packets reach of closed forms on a switch, with every element checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from experiments.collectives.experiment import EXPERIMENT
from tests.traffic.collectives.test_msccl import ring_allreduce

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
PLAYED = {
    "allreduce_ring_n3": 0.96,
    "allreduce_direct_n3": 0.96,
    "allreduce_halving_doubling_n3": 0.94,
    "allreduce_mine_n3": 0.94,
    "push_pull_sharded_n3_k2": 0.94,
}
"""The share of its closed form that each reaches with 4 MiB at least: a pipeline is full after some 10 us of 340."""


def test_every_kind_of_schedule_reaches_its_closed_form_on_a_switch(tmp_path: Path) -> None:
    """Primitives, programs, servers and a file, over three ranks that divide neither 7 elements nor 1,048,579."""
    file = tmp_path / "mine.xml"
    file.write_text(ring_allreduce(3))
    settings = {
        "ranks": "[3]",
        "servers": "[2]",
        "algorithms": "[ring, direct, halving_doubling, sharded]",
        "msccl": f"[{file}]",
        "begin": "28",
        "end": "4194316",
        "factor": "149797",
        "in_place": "true",
    }
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    gradients = str(EXPERIMENT.folder / "gradients.yaml")
    out = tmp_path / "run"
    assert main(["run", gradients, "--engine", "virtual", "--out", str(out), "--no-figures", *overrides]) == 0
    assert json.loads((out / "manifest.json").read_text())["engine"] == "virtual"
    summary = json.loads((out / "summary.json").read_text())
    found = {name: summary["metrics"][f"{name}.of_closed_form_fraction"] for name in PLAYED}
    print(found)
    for name, share in found.items():
        assert PLAYED[name] <= share <= 1.0, found
