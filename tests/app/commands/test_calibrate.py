"""``fabric calibrate``, ``fabric run --rate``: what is held against which limit; no rate is used in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from app.commands.calibrate import USED, load_config, strain_of
from fabric.errors import UsageError
from fabric.measure.carried_rates import CarriedRate, Machine, keep
from fabric.measure.cores import CpuUse
from fabric.measure.verdict import Check
from fabric.records.conservation import Conservation
from fabric.results import Phase
from runs import rates
from runs.phase_meter import TimeUse
from runs.rates import CALIBRATED, named_rate, rate_settings
from runs.registry import resolve
from runs.session import PhaseOutcome
from topologies.load import read_topology
from topologies.rates import nic_rate_bps, shape
from traffic.job import Records

SMALL = read_topology("fire_flyer_2_small")
MACHINE = Machine("6.1.0", "a processor", 2, "userspace")


def outcome(busy: dict[int, float], idle: float) -> PhaseOutcome:
    rows = [{"at_s": at, "core": core, "busy_fraction": value} for at in (1.0, 2.0) for core, value in busy.items()]
    cpu = CpuUse(10 * (1 - idle), 0, 0, 0, 0, 0, 0, 10 * idle, 0, 0, 2)
    phase = Phase("load", "all", "lanes", 0.0, 10.0)
    counted = Conservation(0, 0, 0, 0, 0, 0, {}, 0)
    return PhaseOutcome(phase, Records(), counted, pd.DataFrame(), cores=pd.DataFrame(rows), used=TimeUse(cpu))


def check(value: float, limit: float) -> Check:
    return Check("lateness", value, limit, 10 * limit, "late")


@pytest.mark.parametrize(
    ("busy", "idle", "checks", "strain", "limit"),
    [
        ({0: 0.4, 1: 0.6}, 0.5, [], 0.6 / USED, "core 1 is 60% busy"),
        ({0: 0.4, 1: 0.4}, 0.3, [], 0.7 / USED, "all cores are 70% busy"),
        ({0: 0.4, 1: 0.4}, 0.6, [check(1.5, 2.0)], 0.75, "late"),
        ({0: 0.4, 1: 0.4}, 0.6, [check(0, 0)], 0.5, "core"),
        ({0: 0.4, 1: 0.4}, 0.6, [check(1, 0)], 2.0, "late"),
    ],
    ids=["a core", "all cores", "a check", "a check of nothing that holds", "a check of nothing that fails"],
)
def test_what_is_nearest_to_its_limit_counts(
    busy: dict[int, float], idle: float, checks: list[Check], strain: float, limit: str
) -> None:
    found = strain_of(10_000_000, outcome(busy, idle), checks)
    assert found.value == pytest.approx(strain)
    assert limit in found.limit


def test_a_core_may_be_busy_for_four_fifths_of_its_time() -> None:
    assert strain_of(1, outcome({0: 0.79, 1: 0.5}, 0.3), []).holds
    assert not strain_of(1, outcome({0: 0.81, 1: 0.5}, 0.3), []).holds


def test_what_the_load_did_asks_nothing_of_the_machine() -> None:
    dropped = Check("own_nic_drops_fraction", 0.005, 0, 0.01, "hosts' own NICs dropped 5 frames")
    assert strain_of(1, outcome({0: 0.5}, 0.5), [dropped]).holds


def test_small_fabrics_are_loaded_with_fewer_ranks_and_those_without_storage_refused() -> None:
    assert load_config(read_topology("fire_flyer_2_tiny")).nccl_nodes == 4
    with pytest.raises(UsageError, match="0 storage nodes; calibrate loads a fabric with collectives and storage"):
        load_config(read_topology("head_of_line"))


@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rates, "this_machine", lambda: MACHINE)
    keep(CarriedRate(shape(SMALL), MACHINE, 34_000_000, "2026-01-01T00:00:00+00:00"))


def resolved(settings: list[str]) -> dict[str, Any]:
    return resolve("isolation", settings)[2]


def test_what_was_measured_is_used_and_the_result_says_so(calibrated: None) -> None:
    config = resolved(rate_settings(CALIBRATED, SMALL, []))
    assert nic_rate_bps(config["topology"]) == 34_000_000
    assert config["topology"]["inter_zone"]["rate"] == 34_000_000
    assert config["rates_from"] == f"fabric calibrate, 2026-01-01T00:00:00+00:00: 34 Mbit/s on {MACHINE}"


def test_without_being_asked_the_topologys_own_rates_are_used(calibrated: None) -> None:
    config = resolved([])
    assert nic_rate_bps(config["topology"]) == nic_rate_bps(SMALL)
    assert config["rates_from"] is None


def test_what_was_not_measured_on_this_machine_is_refused(calibrated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Machine("6.1.0", "a processor", 4, "userspace")
    monkeypatch.setattr(rates, "this_machine", lambda: other)
    with pytest.raises(UsageError, match=r"was not calibrated on this machine .*\(4 cores.*run fabric calib"):
        rate_settings(CALIBRATED, SMALL, [])


def test_a_rate_that_is_named_scales_all_links_and_other_settings_stay() -> None:
    settings = [*rate_settings("5 Mbit/s", SMALL, []), "topology.placement=packed"]
    config = resolved(settings)
    assert (nic_rate_bps(config["topology"]), config["topology"]["uplink_rate"]) == (5_000_000, 5_000_000)
    assert config["topology"]["placement"] == "packed"
    assert config["rates_from"] == "--rate 5 Mbit/s"


def test_two_rates_for_one_run_are_refused() -> None:
    with pytest.raises(UsageError, match="both set rates; omit one of them"):
        rate_settings("5 Mbit/s", SMALL, ["topology.uplink_rate=40 Mbit/s"])


@pytest.mark.parametrize("text", ["fast", "0", "0 Mbit/s", "-1"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--rate"):
        named_rate("--rate", text)
