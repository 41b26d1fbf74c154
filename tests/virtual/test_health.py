"""The validator over packets: a slow NIC and GPU errors on a small platform, and the same beside a file system."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments import load
from fabric.results import Result
from tests.virtual.command import TINY, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(900)]
SLOW, BROKEN = "z1h000", "z1h002"
CONFIG: dict[str, Any] = {
    "experiment": "shared_cluster",
    "topology": TINY,
    "alone_time": None,
    "together_time": "20 s",
    "jobs": [
        {
            "name": "platform",
            "kind": "platform",
            "nodes": ["z0h000", "z0h001", "z0h002", "z1h000", "z1h001", "z1h002"],
            "timers": {"beat": "1 s"},  # A node that was out is validated once it is known to hear the scheduler again.
            "health": {
                "validate": {"before_job": True},
                "repair": "3 s",
                "lemon": {"outs": 2, "tickets": None},
            },
            "jobs": [
                {
                    "name": "train",
                    "user": "ada",
                    "nodes": 3,
                    "at": "1 s",
                    "command": ["python3", "-m", "cluster.platform.counted_steps", "4", "10"],
                }
            ],
        }
    ],
    "failures": [
        {"nic": f"{SLOW}:0", "at": "500 ms", "for": "5 s", "rate": 0.25},
        {"gpu": f"{BROKEN}/3", "at": "8 s", "xid": 79, "repeat": {"every": "9 s", "times": 2}},
    ],
}


def played(folder: Path, config: dict[str, Any]) -> Result:
    (folder / "health.yaml").write_text(yaml.safe_dump(config))
    result = load(VirtualCommand(folder, folder).play("health.yaml"))
    assert [result.verdict["status"], list(result.verdict["reasons"])] == ["faithful", []]
    return result


def moves(result: Result) -> list[tuple[str, str, str]]:
    events = result.table("platform_events").astype({"event": str, "nodes": str, "why": str})
    found = events[events["event"].isin(["node_out", "node_back"])]
    return [(row["event"], row["nodes"], row["why"].split(":")[0]) for row in found.to_dict("records")]


def test_a_slow_nic_is_found_before_a_job_and_a_gpu_that_fails_again_makes_a_lemon(tmp_path: Path) -> None:
    result = played(tmp_path, CONFIG)
    checks = result.table("platform_health").astype({"occasion": str, "node": str, "check": str, "verdict": str})
    failed = checks[checks["verdict"] != "passed"]
    first = failed[failed["occasion"] == "before_job"]
    assert set(zip(first["node"], first["check"], strict=True)) == {(SLOW, "speed"), (SLOW, "bandwidth")}
    slow = first[first["check"] == "bandwidth"].iloc[0]
    assert 4.7e6 < slow["measured"] < 5e6 and slow["limit"] == 16e6, "a quarter of 20 Mbit/s, less headers"
    fast = checks[(checks["check"] == "bandwidth") & (checks["verdict"] == "passed")]["measured"]
    assert fast.between(19e6, 20e6).all()
    said = moves(result)
    assert [move for move in said if move[1] == SLOW] == [
        ("node_out", SLOW, "validator"), ("node_back", SLOW, "the validator passed it"),
    ]  # fmt: skip
    assert [move for move in said if move[1] == BROKEN] == [
        ("node_out", BROKEN, "unwell"),
        ("node_back", BROKEN, "the validator passed it"),
        ("node_out", BROKEN, "unwell"),
        ("node_out", BROKEN, "lemon, out for good"),
    ]
    assert {node for _, node, _ in said} == {SLOW, BROKEN}, "nobody else is blamed"
    assert "1 of 1 jobs finished" in result.summary["answer"]


@pytest.mark.soak
def test_nodes_write_to_the_storage_and_read_back(tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIG)
    config["jobs"][0]["health"]["validate"]["storage"] = {"size": "64 KiB"}
    config["jobs"].append({"name": "files", "kind": "files", "nodes": ["z0h003", "z1h003"]})
    checks = played(tmp_path, config).table("platform_health").astype({"check": str, "verdict": str})
    storage = checks[checks["check"] == "storage"]
    assert len(storage) >= 3 and set(storage["verdict"]) == {"passed"}
    assert (storage["measured"] > 1e6).all(), "64 KiB over 20 Mbit/s, with a replica"
