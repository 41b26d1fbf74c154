"""A few points of DCQCN's frontier in one run, each with parameters and marking of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.results import Result
from tests.virtual.command import VirtualCommand

pytestmark = [
    pytest.mark.guest,
    pytest.mark.timeout(2400),
    pytest.mark.soak,  # Sensitivity plays the experiment, too.
]
FEW = (
    "grid.profiles=[ns3_rdma]", "grid.thresholds=[0.0625, 1]", "grid.increase=[1]", "others=[line]",
    "queueings=[lossless_lanes]", "nodes=3", "phase_time=1.5 ms", "warm_up=0.5 ms",
)  # fmt: skip


@pytest.fixture(scope="module")
def result(shared_command: VirtualCommand) -> Result:
    return Result(shared_command.play("dcqcn_frontier", FEW, out="few"))


def rows_of(result: Result) -> dict[str, Any]:
    rows = pd.read_parquet(Path(result.directory) / "samples/points.parquet").set_index("phase")
    return {str(name): row for name, row in rows.iterrows()}


def test_every_point_is_played_and_loses_nothing(result: Result) -> None:
    assert result.verdict["status"] == "faithful", result.verdict
    names = {phase.name for phase in result.phases}
    points = {f"dcqcn_ns3_rdma_t{factor}_i1_lossless_lanes" for factor in ("0p0625", "1")}
    assert names == {"hfreduce_alone", "storage_alone", "line_lossless_lanes", *points}
    conservation = result.manifest["conservation"]
    controls = {name: set(found.values()) for name, found in result.manifest["congestion_control_by_phase"].items()}
    assert controls == {name: {"dcqcn"} if name in points else {"line"} for name in names}
    assert {name: counted["dropped_by_queues"] for name, counted in conservation.items()} == dict.fromkeys(names, 0)
    rows = rows_of(result)
    assert rows.keys() == {*points, "line_lossless_lanes"}
    assert all(row["read_bps"] > 0 < row["allreduce_bps"] for row in rows.values())


def test_each_point_has_its_own_marks(result: Result) -> None:
    """Thresholds a sixteenth as high mark more, and without DCQCN nothing is marked or cut."""
    rows, metrics = rows_of(result), result.summary["metrics"]
    low, high = (f"dcqcn_ns3_rdma_t{factor}_i1_lossless_lanes" for factor in ("0p0625", "1"))
    assert rows[low]["kmin_bytes"] < rows[high]["kmin_bytes"]
    assert metrics[f"{low}.marked_packets"] > metrics[f"{high}.marked_packets"]
    assert metrics[f"{low}.cuts"] > 0
    assert (metrics["line_lossless_lanes.marked_packets"], metrics["line_lossless_lanes.cuts"]) == (0, 0)
    assert rows[low]["allreduce_bps"] != rows[high]["allreduce_bps"]


def test_the_claim_is_judged(result: Result) -> None:
    claim = result.summary["claims"]["lossless_lanes"]
    assert claim["points"] == 2
    assert claim["nearest"].startswith("dcqcn_ns3_rdma")
    assert result.summary["answer"].startswith("In lossless lanes the paper's claim ")
