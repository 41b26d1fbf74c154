"""In a guest, with short timers: a storage node comes back with empty disks, and half the rate doubles the time; a tail
is forgotten, and clients read stale data from it until they ask anew."""

from __future__ import annotations

import pytest

from experiments import load
from tests.virtual.command import VirtualCommand

pytestmark = pytest.mark.guest
TIMERS = {"heartbeat": 0.2, "failed_after": 1, "checked_every": 0.2, "chains_every": 0.05, "polled_every": 0.2}
SHORT = {
    **{f"storage.cluster_manager.{name}": value for name, value in TIMERS.items()},
    "storage.cluster_manager.restart": 0.5,
    "storage.cluster_manager.resync.every": 0.05,
    "storage.cluster_manager.resync.pause": 0.5,
    "storage.client.retry": "{first: 200 ms, longest: 600 ms}",
    "storage.client.operation_timeout": 2,
    "storage.client.call_timeout": 1,
}
RETURNS = {
    "variants": "{slow: {rate: 1 Mbit/s, batch: 1, again: true}, slower: {rate: 500 kbit/s, batch: 1}}",
    "rolling": "null",
    "at": 0.5,
    "after": 0.5,
    "storage.dataloader.files": 2,
    "storage.dataloader.file_size": "640 KiB",
    "storage.dataloader.pause": 0.2,
    "trainers": 2,
    "hfreduce.size": "64 KiB",
}
FORGOTTEN_POLL_S = 0.6
FORGOTTEN = {
    "storage.cluster_manager.polled_every": FORGOTTEN_POLL_S,
    "fences": "[off, half]",
    "repeats": 1,
    "at": 0.5,
    "lasts": 4,
    "clients.pause": 0.03,
}


def metrics_of(command: VirtualCommand, experiment: str, keys: dict[str, object], name: str) -> dict[str, float]:
    found = load(command.play(experiment, [f"{key}={value}" for key, value in (SHORT | keys).items()], out=name))
    return {row["path"]: row["value"] for row in found.table("metrics").to_dict("records")}


def test_a_return_takes_as_long_as_its_rate_says_and_sends_what_is_missing(command: VirtualCommand) -> None:
    """10 chains of 2 chunks of 64 KiB; the node is in 6 of them, which are sent side by side, each at the rate."""
    found = metrics_of(command, "resync", RETURNS, "resync")
    chunk_bytes = 64 << 10
    for phase, rate_bps in (("slow", 1e6), ("slower", 5e5)):
        assert found[f"{phase}.storage.resync_bytes"] == found[f"{phase}.storage.expected_bytes"] == 12 * chunk_bytes
        assert found[f"{phase}.storage.most_off_bytes"] == 0, "each peer sends the chains in which it serves last"
        least_s = 2 * chunk_bytes * 8 / rate_bps
        assert least_s <= found[f"{phase}.storage.sending_s"] < least_s + 1.5
        assert found[f"{phase}.storage.lost"] == 0
    assert found["slow.storage.second_resync_bytes"] == 0
    assert found["slow.storage.second_resyncs"] == 6


@pytest.mark.soak  # Minutes of virtual time; in time that jumps it is in tests/traffic/storage.
def test_a_forgotten_tail_is_read_until_clients_ask_anew(command: VirtualCommand) -> None:
    found = metrics_of(command, "fencing", FORGOTTEN, "fencing")
    assert found["storage.off.beside.stale"] > 20
    assert found["storage.off.beside.to_the_end"] == 1, "it never asks anew, for it does not hear the manager"
    assert found.get("storage.off.between.window_max_s", 0) <= FORGOTTEN_POLL_S
    assert found["storage.half.between.stale"] == found["storage.half.beside.stale"] == 0
