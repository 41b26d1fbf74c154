"""Training graphs and a collective as jobs of a platform, over packets: one yields, a node of it falls silent."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import load
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak]
FILE = ROOT / "experiments" / "shared_cluster" / "cluster_graphs.yaml"
STEPS = {"pretrain": 40, "sums": 8, "pipeline": 6}
SILENT, SILENT_AT_S = "z1h000", 9.5


def test_graphs_yield_and_begin_again_and_lose_no_step(command: VirtualCommand) -> None:
    result = load(command.play(str(FILE)))
    assert [result.verdict["status"], list(result.verdict["reasons"])] == ["faithful", []]
    numbers = {row["path"]: row["value"] for row in result.table("metrics").to_dict("records")}
    steps = {name: numbers[f"together.platform.steps.{name}"] for name in ("made", "lost", "twice", "apart", "wrong")}
    assert steps == {"made": sum(STEPS.values()), "lost": 0, "twice": 0, "apart": 0, "wrong": 0}
    assert f"{sum(STEPS.values())} of {sum(STEPS.values())} are those of the training's formula" in str(result.answer)
    events: Any = result.table("platform_events").astype({"event": str, "nodes": str, "why": str})
    events["at_s"] -= result.phases[-1].load_s[0]
    rows = events.to_dict("records")
    number_of = {row["why"]: row["number"] for row in rows if row["event"] == "submitted"}
    assert {row["number"] for row in rows if row["event"] == "finished"} == {*number_of.values()}
    (suspend,) = (row for row in rows if row["event"] == "suspend")
    assert suspend["number"] == number_of["pretrain"] and "needs its nodes" in suspend["why"]
    (restart,) = (row for row in rows if row["event"] == "restart")
    assert restart["number"] == number_of["pretrain"] and restart["at_s"] > SILENT_AT_S
    last = [row["nodes"].split() for row in rows if (row["event"], row["number"]) == ("started", restart["number"])][-1]
    assert SILENT not in last
    (out,) = (row for row in rows if row["event"] == "node_out")
    assert out["nodes"] == SILENT and out["why"].startswith("not heard: asked to end task")
