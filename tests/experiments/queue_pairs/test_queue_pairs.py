"""Who writes to whom, by which hashes, and what theory says of it."""

from __future__ import annotations

import pytest

from controllers.planning.balls_in_bins import used_of_uplinks
from experiments.queue_pairs.config import QueuePairsConfig
from experiments.queue_pairs.study import Spread
from fabric.errors import ConfigError
from runs.registry import resolve
from topologies.load import load_fabric

FABRIC = load_fabric("eight_spines")


def config(*overrides: str) -> QueuePairsConfig:
    found = resolve("queue_pairs", list(overrides)).config
    assert isinstance(found, QueuePairsConfig)
    return found


def test_each_host_writes_to_one_at_the_other_leaf_and_hears_from_one() -> None:
    messages = config().messages(FABRIC, 1)
    hosts = set(FABRIC.computes)
    assert {one.source for one in messages} == {one.sink for one in messages} == hosts
    leaf_of = {nic.node: FABRIC.leaf_of(nic) for nic in FABRIC.nics}
    assert all(leaf_of[one.source] != leaf_of[one.sink] for one in messages)
    assert messages == config().messages(FABRIC, 1)
    assert messages != config().messages(FABRIC, 2)
    assert messages != config("seed=2").messages(FABRIC, 1)


def test_draws_and_seeds_have_hashes_of_their_own() -> None:
    seeds = [one.hash_seed for seed in (1, 2, 3) for one in config(f"seed={seed}").routings_played]
    assert len({*seeds}) == 6


def test_a_case_has_its_labels_and_its_words() -> None:
    case = Spread(4, None, 2)
    assert (case.name, case.title) == ("qp4_labels_off_2", "4 queue pairs, ports by numbers, draw 2")
    own = Spread(4, 16, 1).in_config(config())
    assert isinstance(own, QueuePairsConfig)
    assert own.transport.queue_pairs.flow_labels == 16


def test_more_queue_pairs_get_more_in_theory_and_never_all() -> None:
    found = [used_of_uplinks(FABRIC, count) for count in (1, 2, 4, 8, 16, 32)]
    assert found == sorted(found)
    assert found[0] == pytest.approx(0.36, abs=0.01)
    assert found[-1] < 0.8


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["transport.kind=tcp"], "transport.kind: tcp has no queue pairs; use verbs"),
        (["routing.policy=spray"], "routing.policy: spray is not what decides here"),
        (["flow_labels=[0]"], "flow_labels"),
        (["topology=head_of_line_200g", "topology.compute=4"], "has no two leaves with as many hosts each"),
    ],
)
def test_what_does_not_fit_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        config(*overrides)
    assert any(said in fault for fault in failed.value.faults), failed.value.faults
