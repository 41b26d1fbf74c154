"""Seeded cuts: the paper's table as it is, and what a replay keeps of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from experiments.flash_cut_year.flash_cuts import (
    FlashCutReplay,
    cuts_a_day,
    flash_cut_days,
    flash_cut_replay,
    published_cuts,
    resampled_days,
)
from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.network import Tier
from tests.schedules import intervals_of
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_small")
REPLAY = checked(FlashCutReplay, {"for": "1 ms"}, "test")


def test_the_table_is_the_papers() -> None:
    """213 cuts on 100 days, at most 10 a day, and the sums of its months from April to March."""
    cuts = published_cuts()
    assert (sum(cuts.values()), sum(count > 0 for count in cuts.values()), max(cuts.values())) == (213, 100, 10)
    months = Counter[tuple[int, int]]()
    for day, count in cuts.items():
        months[day.year, day.month] += count
    assert list(months.values()) == [8, 30, 13, 39, 30, 20, 13, 8, 17, 9, 12, 14]
    assert (len(cuts_a_day()), sum(cuts_a_day())) == (348, 213)


def dispersion(days: tuple[int, ...]) -> float:
    return float(np.var(days) / np.mean(days))


def test_a_replay_is_as_bursty_as_the_table_and_poisson_is_not() -> None:
    replayed = [resampled_days(REPLAY, seed) for seed in range(40)]
    ratios = [dispersion(days) for days in replayed]
    counts = [sum(days) for days in replayed]
    print(dispersion(cuts_a_day()), np.mean(ratios), np.mean(counts))
    assert dispersion(cuts_a_day()) > 3
    assert np.mean(ratios) == pytest.approx(dispersion(cuts_a_day()), rel=0.15)
    assert np.mean(counts) == pytest.approx(213 * 365 / 348, rel=0.1)
    assert max(max(days) for days in replayed) == 10


def test_a_replay_takes_a_day_s_time_for_each_and_cuts_last_as_asked() -> None:
    config = checked(FlashCutReplay, {"for": "1 ms", "day": "100 ms", "days": 50}, "test")
    schedule = flash_cut_replay(config, FABRIC, 3)
    assert config.length_s == pytest.approx(5)
    assert config.compression == pytest.approx(864_000)
    days = Counter(int(one.began_s / 0.1) for one in intervals_of(schedule))
    assert [days[day] for day in range(50)] == list(resampled_days(config, 3))
    assert all(one.ended_s - one.began_s == pytest.approx(1e-3) for one in intervals_of(schedule))
    assert flash_cut_replay(config, FABRIC, 3) == schedule != flash_cut_replay(config, FABRIC, 4)


def test_a_fabric_with_fewer_links_has_fewer_cuts_if_asked() -> None:
    config = checked(FlashCutReplay, {"for": 1, "scale_by_links": True}, "test")
    counts = [sum(flash_cut_days(config, 320, seed)) for seed in range(40)]
    print(np.mean(counts))
    assert np.mean(counts) == pytest.approx(213 * 365 / 348 / 10, rel=0.15)
    assert sum(flash_cut_days(config, 6400, 1)) == 2 * sum(resampled_days(config, 1))


def test_only_the_tiers_asked_for_are_cut() -> None:
    config = checked(FlashCutReplay, {"for": "1 ms", "tiers": ["uplink"]}, "test")
    assert {link.tier for link in flash_cut_replay(config, FABRIC, 1).links} == {Tier.UPLINK}


def test_wrong_tiers_are_named() -> None:
    with pytest.raises(ConfigError, match="'up': no such tier; use some of access, uplink, inter_zone"):
        checked(FlashCutReplay, {"for": 1, "tiers": ["up"]}, "test")
    single = load_fabric("fire_flyer_2_small", ["zones=1", "inter_zone=null", "compute=12", "storage=2"])
    config = checked(FlashCutReplay, {"for": 1, "tiers": ["inter_zone"]}, "test")
    with pytest.raises(ConfigError, match="has no inter_zone links"):
        flash_cut_replay(config, single, 1)
