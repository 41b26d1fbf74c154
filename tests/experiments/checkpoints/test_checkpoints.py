"""What ``checkpoints`` plays, what it refuses, and what it makes of rows."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from cluster.checkpoints.rates import Bound
from experiments.checkpoints.config import CheckpointsRunConfig, WriteSetup, setup_on
from experiments.checkpoints.step import StepConfig
from experiments.checkpoints.summary import Alone, Beside, Waiting, gaps, needed_table, restored_table, written_table
from fabric.errors import ConfigError
from fabric.model.lanes import Queueing
from runs.registry import resolve
from topologies.load import load_fabric
from traffic.work.operations import CollectiveCall, Compute

FABRIC = load_fabric("fire_flyer_2_small_200g")
CONFIG: Any = resolve("checkpoints", []).config


def test_the_main_setup_is_played_first_and_alone_has_restores() -> None:
    assert isinstance(CONFIG, CheckpointsRunConfig)
    assert [one.name for one in CONFIG.all_setups][:2] == ["alone_4_nodes_2_replicas", "alone_4_nodes_1_replicas"]
    main = CONFIG.alone(CONFIG.main)
    assert (main.count, main.writers, main.restored_by, CONFIG.nodes_of(CONFIG.main)) == (1, 4, [4, 2, 8], 8)
    other = WriteSetup(writers=8, replicas=2)
    assert (CONFIG.alone(other).restored_by, CONFIG.nodes_of(other)) == ([], 8)
    assert (CONFIG.beside().count, CONFIG.beside().restored_by) == (2, [])
    assert not list(CONFIG.faults(FABRIC))


def test_what_does_not_fit_is_named() -> None:
    for setting, words in (
        ("checkpoints.chains_per_target=4", "alone_4_nodes_3_replicas: .* cannot be cut into chains of 3 replicas"),
        (
            "setups=[{writers: 30, replicas: 1}]",
            "alone_30_nodes_1_replicas: 30 nodes, but fire_flyer_2_small_200g has 24",
        ),
        ("checkpoints.writers=2", "checkpoints.writers: training's nodes write; leave it out"),
        ("setups=[{writers: 4, replicas: 1}, {writers: 4, replicas: 1}]", "there is the same setup twice"),
        ("topology.storage=0", "0 storage nodes, but checkpoints are on them"),
    ):
        with pytest.raises(ConfigError, match=words):
            resolve("checkpoints", [setting])


def test_storage_serves_a_zone_by_its_nics_there() -> None:
    """Of 14 nodes twelve are in one zone, where each of four storage nodes has a NIC."""
    found = setup_on(FABRIC, FABRIC.computes[:14], 2, 216e9)
    assert (found.writers, found.storage_nics, found.replicas, found.copy_Bps) == (12, 4, 2, 27e9)
    assert 24.4e9 < found.nic_Bps < 25e9


def test_a_step_adds_up_layers_while_others_are_computed() -> None:
    graph = StepConfig(ranks=3, layers=4, gradients=4096).loaded()
    assert graph.ranks == 3
    kinds = [type(one) for one in graph.operations[0]]
    assert kinds == [Compute, *[Compute, CollectiveCall] * 4, Compute]
    sums = [one for one in graph.operations[0] if isinstance(one, CollectiveCall)]
    assert [one.size_bytes for one in sums] == [1024] * 4
    assert graph.operations[0][-1].after == (2, 4, 6, 8)


def test_steps_lose_what_those_that_meet_a_checkpoint_take_longer() -> None:
    steps = [(0.0, 1.0), (1.0, 2.5), (2.5, 3.5), (3.5, 4.5)]
    one = Beside(Queueing.LANES, 1.0, steps, [(1.2, 2.2), (2.3, 2.4)], {})
    assert one.met_s == [1.5]
    assert one.lost_s == pytest.approx(0.25)
    assert one.lost_fraction == pytest.approx(0.5 / 1.1)
    assert one.numbers["slowdown"] == pytest.approx(1.5)
    none = Beside(Queueing.LANES, 1.0, steps, [], {})
    assert (none.lost_s, none.lost_fraction, "slowdown" in none.numbers) == (0.0, 0.0, False)


def test_steps_that_wait_lose_from_one_to_the_next() -> None:
    steps = [(0.0, 1.0), (1.0, 2.0), (5.0, 6.0), (6.0, 7.0)]
    assert gaps(steps, [(2.1, 4.9)]) == [3.0]
    assert gaps(steps, [(7.0, 8.0)]) == [], "the phase was over before the next step"
    assert Waiting([3.0, 1.0], {}).numbers == {"lost_s": 2.0}
    assert Waiting([], {}).lost_s == 0.0


def test_without_restores_the_table_is_empty() -> None:
    empty = pd.DataFrame({"nodes": pd.Series(dtype="int64"), "size_bytes": pd.Series(dtype="int64")})
    assert restored_table(None, empty).words == []  # type: ignore[arg-type]


def test_the_papers_10_gib_per_second_are_compared_at_the_true_rate() -> None:
    """At 1 : 100 every setup was said to be below 10 GiB/s, and that no number of NICs would do."""
    scaled = load_fabric("fire_flyer_2_small_200g", ["nic_rate=2 Gbit/s", "uplink_rate=2 Gbit/s"])
    setup = WriteSetup(writers=4, replicas=1)
    for fabric, rate_Bps in ((FABRIC, 12 * 2**30), (scaled, 0.12 * 2**30)):  # noqa: N806 - a unit
        table = written_table(fabric, [Alone(setup, {"checkpoint.node_Bps": rate_Bps}, Bound(rate_Bps, "NICs"))])
        assert table.words[0][table.columns.index("above 10 GiB/s")] == "yes"
        assert ("times the scale of 100" in (table.note or "")) is (fabric is scaled)
    assert needed_table(scaled).words == needed_table(FABRIC).words
