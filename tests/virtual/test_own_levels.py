"""Service levels that a config adds: jobs in lanes of their own, in each kind of queue."""

from __future__ import annotations

import pytest
import yaml

from fabric.results import Result
from tests.virtual.command import TINY, VirtualCommand

pytestmark = pytest.mark.guest
CONFIG = {
    "experiment": "shared_cluster",
    "topology": TINY,
    "alone_time": "100 ms",
    "together_time": "300 ms",
    "receive_window": "64 KiB",
    "congestion_control": {"pipeline": "reno"},
    "queues": {
        "service_levels": {"tensor": 10, "pipeline": 12},
        "lanes": {
            "tensor": {"share": 0.6, "service_levels": ["tensor"]},
            "pipeline": {"share": 0.2, "service_levels": ["pipeline"]},
            "rest": {"share": 0.1, "service_levels": ["hfreduce", "nccl", "storage", "other"]},
            "control": {"share": 0.1, "service_levels": ["control"]},
        },
    },
    "jobs": [
        {"name": name, "kind": "nccl", "nodes": 2, "size": "64 KiB", "service_level": level}
        for name, level in (("tp", "tensor"), ("pp", "pipeline"))
    ],
}


@pytest.mark.parametrize("queueing", [pytest.param("lanes", marks=pytest.mark.soak), "lossless_lanes"])
def test_jobs_send_in_the_lanes_of_their_own_service_levels(command: VirtualCommand, queueing: str) -> None:
    path = command.here / "own.yaml"
    path.write_text(yaml.safe_dump({**CONFIG, "queueing": queueing}))
    result = Result(command.play(str(path)))
    steps = result.table("steps")
    assert set(zip(steps["job"].astype(str), steps["service_level"].astype(str), strict=True)) == {
        ("tp", "tensor"),
        ("pp", "pipeline"),
    }
    ports = result.table("ports")
    counted = ports.groupby(["port", "lane"], observed=True)["sent_bytes"]
    sent = (counted.max() - counted.min()).groupby("lane", observed=True).sum()
    print(sent)
    assert sent["tensor"] > 1e6
    assert sent["pipeline"] > 1e6
    assert sent["rest"] < 0.01 * sent["tensor"]
