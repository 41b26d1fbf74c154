"""The grid of DCQCN's parameters: which points it comes to, and that a wrong one is refused."""

from __future__ import annotations

from typing import cast

import pytest

from experiments.dcqcn_frontier.cases import Alone, Setting
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from experiments.dcqcn_frontier.study import cases
from fabric.errors import ConfigError, UsageError
from fabric.model.lanes import Queueing
from fabric.model.marking import Marking
from fabric.world.engines import VIRTUAL
from runs.registry import resolve
from traffic.congestion_control import require
from traffic.dcqcn import PROFILES, DcqcnConfig


def config_of(*overrides: str) -> DcqcnFrontierConfig:
    return cast(DcqcnFrontierConfig, resolve("dcqcn_frontier", overrides)[1])


CONFIG = config_of()
FABRIC = CONFIG.fabric()
POINTS = [one for one in cases(CONFIG) if not isinstance(one, Alone)]


def named(name: str) -> Setting:
    return next(point for point in POINTS if point.name == name)


def test_the_grid_has_all_named_sets_with_and_without_lanes() -> None:
    grid = [point for point in POINTS if point.profile]
    assert len(grid) == len({point.name for point in POINTS}) - 4 == 48
    played = {(point.profile, point.queueing) for point in grid if (point.thresholds, point.increase) == (1, 1)}
    assert played == {(name, queueing) for name in PROFILES for queueing in CONFIG.queueings}
    assert {point.control for point in POINTS if not point.profile} == {"line", "dctcp"}


def test_a_named_set_plays_as_it_is() -> None:
    point = named("dcqcn_hpcc_t1_i1_lossless")
    known = DcqcnConfig(profile="hpcc", scaling=CONFIG.dcqcn.scaling).parameters(FABRIC)
    assert point.dcqcn(CONFIG, FABRIC).parameters(FABRIC) == known
    assert point.marking(CONFIG, FABRIC) == known.marking


def test_a_faster_increase_has_larger_steps_and_shorter_stages() -> None:
    known, fast = (
        named(f"dcqcn_ns3_rdma_t1_i{factor}_lossless").dcqcn(CONFIG, FABRIC).parameters(FABRIC) for factor in (1, 10)
    )
    assert fast.increase_period_s == pytest.approx(known.increase_period_s / 10)
    assert fast.increase_bytes == known.increase_bytes / 10
    assert (fast.additive_step_bps, fast.hyper_step_bps) == (10 * known.additive_step_bps, 10 * known.hyper_step_bps)
    assert (fast.gain, fast.cnp_interval_s) == (known.gain, known.cnp_interval_s)


def test_no_step_exceeds_a_nic() -> None:
    config = config_of("grid.increase=[1000]")
    for point in cases(config):
        assert point.dcqcn(config, FABRIC).parameters(FABRIC).additive_step_bps <= FABRIC.nic_rate_bps


def test_thresholds_keep_two_frames_and_their_order() -> None:
    assert Marking(kmin=100_000, kmax=400_000, pmax=0.2).scaled(0.25, 4214) == Marking(
        kmin=25_000, kmax=100_000, pmax=0.2
    )
    assert Marking(kmin=5_000, kmax=6_000, pmax=0.2).scaled(0.001, 4214) == Marking(kmin=8_428, kmax=12_642, pmax=0.2)


def test_only_what_steers_by_marks_is_marked() -> None:
    assert named("line_lossless").marking(CONFIG, FABRIC) is None
    assert named("dctcp_lossless").marking(CONFIG, FABRIC) == CONFIG.dcqcn.parameters(FABRIC).marking
    stated = config_of("queues.marking={kmin: 20 KB, kmax: 40 KB, pmax: 1.0}")
    assert named("dctcp_lossless").marking(stated, FABRIC) == Marking(kmin=20_000, kmax=40_000, pmax=1.0)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("grid.profiles=[paper, rocky]", "dcqcn.profile: 'rocky' does not exist"),
        ("grid.thresholds=[1, 1]", "named more than once"),
        ("others=[line, dcqcn]", "others: dcqcn is what the grid plays"),
        ("others=[line, banana]", "'banana' is not a congestion control"),
        ("nodes=9", "nodes: 9 exceeds the 8 compute nodes of zone 0"),
        ("warm_up=1", "warm_up: 1 s leaves nothing of phase_time"),
        ("topology.storage=0", "0 storage nodes"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of(override)


def test_controls_of_the_points_are_what_an_engine_must_have() -> None:
    assert CONFIG.controls_played == {"dcqcn": "dcqcn", "line": "line", "dctcp": "dctcp"}
    require(VIRTUAL, CONFIG.controls_played)
    with pytest.raises(UsageError, match="vegas"):
        require(VIRTUAL, {"vegas": "vegas"})
    assert CONFIG.queueings_played == (Queueing.LOSSLESS, Queueing.LOSSLESS_LANES)
