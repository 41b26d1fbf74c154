"""The variants of an incast, and that a config that cannot be played is refused."""

from __future__ import annotations

from typing import cast

import pytest

from experiments.incast.config import IncastConfig
from experiments.incast.study import Senders
from fabric.errors import ConfigError
from fabric.model.marking import Marking
from runs.registry import resolve


def config_of(*overrides: str) -> IncastConfig:
    return cast(IncastConfig, resolve("incast", overrides)[1])


def test_every_combination_is_played_once() -> None:
    config = config_of()
    found = Senders.grid(config)
    axes = (config.queueings, config.controls, config.servers, config.request_to_send)
    count = 1
    for axis in axes:
        count *= len(axis)
    assert len(found) == len({one.name for one in found}) == count == 48
    assert {one.limit for one in found} == {None, 8, 2, 1}


def test_off_is_no_limit() -> None:
    config = config_of("request_to_send=[off, 2]", "servers=[4]", "controls=[line]", "queueings=[lanes]")
    first, second = Senders.grid(config)
    assert (first.limit, first.name, first.title) == (None, "lanes_line_n4_rts_off", "4 servers, no limit, line, lanes")
    assert (second.limit, second.name) == (2, "lanes_line_n4_rts_2")


def test_only_dcqcn_is_marked_by_its_set_unless_queues_say_otherwise() -> None:
    config = config_of()
    by_control = {one.control: config.marking_for(one.control, config.fabric()) for one in Senders.grid(config)}
    assert by_control == {"line": None, "cubic": None, "dcqcn": config.dcqcn.parameters(config.fabric()).marking}
    own = config_of("queues.marking={kmin: 20 KB, kmax: 40 KB, pmax: 1.0}")
    assert {own.marking_for(one.control, own.fabric()) for one in Senders.grid(own) if one.control == "dcqcn"} == {
        Marking(kmin=20_000, kmax=40_000, pmax=1.0)
    }


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("servers=[17]", "servers: 17 exceeds the 16 storage nodes"),
        ("servers=[4, 4]", "named more than once"),
        ("request_to_send=[0]", "greater than or equal to 1"),
        ("controls=[banana]", "'banana' is not a congestion control"),
        ("warm_up=1", "warm_up: 1 s leaves nothing of phase_time"),
        ("topology.storage=0", "0 storage nodes"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(override)
