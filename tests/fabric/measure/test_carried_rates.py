"""What was measured on a machine is kept for it and for no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fabric.errors import ResultError
from fabric.measure.carried_rates import CarriedRate, Machine, carried_rate, keep, kept, this_machine
from fabric.world import cache

HERE = Machine("6.1.0", "a processor", 2, "userspace")
RATE = CarriedRate("0123", HERE, 12_000_000, "2026-01-01T00:00:00+00:00")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_rate_is_found_again_for_its_shape_and_machine_only() -> None:
    assert carried_rate("0123", HERE) is None
    keep(RATE)
    assert carried_rate("0123", HERE) == RATE
    assert carried_rate("4567", HERE) is None
    for changed in ({"kernel": "6.2.0"}, {"cpu": "another"}, {"cores": 4}, {"datapath": "kernel"}):
        assert carried_rate("0123", replace(HERE, **changed)) is None


def test_a_new_measurement_takes_the_place_of_the_old_one() -> None:
    other = replace(RATE, shape="4567")
    for rate in (RATE, other, replace(RATE, nic_rate_bps=13_000_000)):
        keep(rate)
    assert sorted(one.nic_rate_bps for one in kept()) == [12_000_000, 13_000_000]


@pytest.mark.parametrize("text", ["no JSON", "[1]", '[{"shape": "0123"}]'])
def test_a_broken_file_is_named(text: str) -> None:
    path = keep(RATE)
    path.write_text(text)
    with pytest.raises(ResultError, match=str(path)):
        kept()


def test_this_machine_is_described() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.kernel in str(machine)
    assert cache.NAME in str(keep(replace(RATE, machine=machine)))
