"""Which streams a port that stands still takes in theory, and what the config says."""

from __future__ import annotations

from collections import Counter

import pytest

from controllers.planning.pause_trees import taken
from experiments.pfc_storm.config import EVER_S, PfcStormConfig
from experiments.pfc_storm.study import Storm
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.network import Port
from runs.registry import resolve
from topologies.load import load_fabric

FABRIC = load_fabric("fat_tree_k4")


def config(*overrides: str) -> PfcStormConfig:
    found = resolve("pfc_storm", list(overrides)).config
    assert isinstance(found, PfcStormConfig)
    return found


def port(name: str) -> Port:
    return Port(NodeId.parse(name), 1)


ROOT, UP, DOWN, ASIDE, A, B, C = map(port, ("z0l00", "z0l01", "z0s00", "z0l02", "z0h001", "z0h002", "z0h003"))


def test_a_stream_to_the_port_takes_those_that_share_a_link_on_its_way() -> None:
    to_root, beside, apart = ((A, UP, DOWN, ROOT), ()), ((B, UP, ASIDE), ()), ((C, ASIDE), ())
    assert taken([to_root, beside, apart], ROOT) == [True, True, False]
    assert taken([beside, apart], ROOT) == [False, False]
    assert taken([to_root, beside, apart], ROOT, spreads=False) == [True, False, False], "a watchdog drops"


def test_what_is_taken_takes_others_in_its_turn() -> None:
    chain = [((A, UP, ROOT), ()), ((B, DOWN, UP), ()), ((C, DOWN), ())]
    assert taken(chain, ROOT) == [True, True, True]


def test_a_stream_whose_acknowledgements_cannot_come_stands_still_and_takes_nobody() -> None:
    assert taken([((A, UP), (B, ROOT)), ((B, UP), ())], ROOT) == [True, False]


def test_every_host_sends_and_receives_as_many_streams() -> None:
    streams = config().played(FABRIC)
    assert {*Counter(one.source for one in streams).values(), *Counter(one.sink for one in streams).values()} == {2}
    assert streams != config("seed=2").played(FABRIC)


def test_a_pause_may_be_for_ever_and_has_its_watchdog() -> None:
    assert config().pauses == [None, 0.0003, EVER_S]
    assert [Storm(pause, None).title for pause in config().pauses] == [
        "no pause, no watchdog", "for 300 us, no watchdog", "forever, no watchdog"
    ]  # fmt: skip
    assert Storm(None, 0.0002).name == "pause_off_watchdog_0p0002"
    own = Storm(EVER_S, 0.0002).in_config(config())
    assert isinstance(own, PfcStormConfig)
    assert own.queues.watchdog == 0.0002


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["queues.flow_control=credit"], "queues.flow_control: credit pauses nobody; use pfc"),
        (["queues.watchdog=1 ms"], "queues.watchdog: is not what decides here; remove it and set watchdogs"),
        (["measured=1 us"], "measured: 1 us, in which nothing can be measured"),
        (["pauses=[soon]"], "pauses"),
    ],
)
def test_what_does_not_fit_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        config(*overrides)
    assert any(said in fault for fault in failed.value.faults), failed.value.faults
