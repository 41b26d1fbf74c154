"""A storage node that is cut off in a guest, with short timers: it leaves its chains, comes back, nothing is lost."""

from __future__ import annotations

import pytest

from experiments import load
from tests.virtual.command import SMALL, VirtualCommand

pytestmark = pytest.mark.guest
TIMERS = {"heartbeat": 0.2, "failed_after": 1, "checked_every": 0.2, "chains_every": 0.05, "polled_every": 0.2}
KEYS = {
    **{f"storage.cluster_manager.{name}": value for name, value in TIMERS.items()},
    "topology": SMALL,
    "effects": "[cut]",
    "at": 1,
    "away": 3,
    "after": 3,
    "storage.cluster_manager.restart": 0.2,
    "storage.client.retry": "{first: 200 ms, longest: 600 ms}",
    "storage.client.operation_timeout": 5,
    "storage.client.call_timeout": 1,
    "storage.checkpoint.period": 0.5,
    "storage.dataloader.pause": 0.2,
}


def test_a_node_that_is_cut_off_leaves_its_chains_and_comes_back(command: VirtualCommand) -> None:
    result = load(command.play("storage_failure", [f"{key}={value}" for key, value in KEYS.items()]))
    found = {row["path"]: row["value"] for row in result.table("metrics").to_dict("records")}
    # Heard every 0.2 s, failed after 1 s, looked at every 0.2 s: 0.8 to 1.2 s, and chains are updated every 50 ms.
    assert 0.8 <= found["cut.storage.noticed_s"] <= 1.3
    assert found["cut.storage.whole_s"] < 3
    assert found["cut.storage.lost"] == 0
    assert found["cut.storage.resyncs"] > 0
    assert found["cut.storage.writes"] >= 3
    assert found["cut.storage.longest_read_s"] >= 0.2, "a turn passes before another replica is tried"
    changes = result.table("chain_changes")
    assert set(changes["state"]) >= {"serving", "offline", "syncing"}
