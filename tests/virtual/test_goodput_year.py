"""The phases of ``goodput_year`` in which data are wrong, and of a validation, in a guest, small."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.virtual.command import TINY, VirtualCommand

pytestmark = pytest.mark.guest
RETRY_S = 3.0
SETTINGS = (
    *(f"topology={TINY}", "topology.compute=4", "events.nodes=[z0h000, z0h001, z1h000, z1h001]"),
    *("events.draws={killed: 0, silent: 0, leaf: 0, cut: 0}", "events.suspensions=0"),
    *("leaves=null", "storage_loss=null", "spine=null", "slow.time=0.2", "slow.hfreduce={size: 32 KiB, chunk: 8 KiB}"),
    *("storms.write_time=1", "storms.storm_time=1", f"storms.storage.client.retry.first={RETRY_S:g} s"),
    *("storms.storage.replicas=2", "storms.storage.cluster_manager={host: st001, restart: 1 s}"),
    *("storms.storage.stripe=2", "storms.storage.chains_per_target=2"),
    "wrong.checkpoints={size: 64 KiB, tensors: 4, chunk_size: 64 KiB, stripe: 2, replicas: 2, disks_per_node: 1, "
    "chains_per_target: 2, count: 2, keep: 2, every: 1 s}",
    *("year.days=1", "year.seeds=1", "year.intervals=[]", "year.spares=[]", "year.validations=[]"),
)


def test_wrong_data_cost_a_retry_or_a_second_restore_and_years_are_composed_of_it(command: VirtualCommand) -> None:
    rows = pd.read_parquet(command.play("goodput_year", SETTINGS) / "samples" / "shared_costs.parquet")
    found = {(str(row["phase"]), str(row["what"])): float(row["value"]) for row in rows.to_dict("records")}
    assert found["wrong_copies", "wrong copies read, and tried elsewhere"] >= 1
    restored_s = found["wrong_copies", "a restore by all nodes"]
    assert RETRY_S < restored_s < 2 * RETRY_S, "a wrong copy is tried elsewhere after the client's first retry"
    noticed_s = found["wrong_checkpoint", "until all know that the checkpoint is wrong"]
    again_s = found["wrong_checkpoint", "a restore of the one before by all nodes"]
    assert 0 < again_s < RETRY_S and 0 < noticed_s < RETRY_S, "no copy is tried again: all are as they were written"
    measured = json.loads(Path(command.here, "r", "summary.json").read_text())["measured_costs"]["measured"]
    assert measured["wrong_part"] == pytest.approx(min(1.0, noticed_s / again_s))
    assert measured["validation"] == found["validation", "all nodes of a job are validated"] > 0
