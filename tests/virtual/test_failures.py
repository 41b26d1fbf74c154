"""Cuts, rates and losses in virtual time, where the kernel switches: what is felt is exact, and all accounted for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabric.model.lanes import Queueing
from tests.guest_scripts import run_module, standing
from tests.virtual.command import TINY

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

SCRIPT = "tests.root.failing_links"
PHASE_S, STEP_BYTES = 1.6, 128 << 10  # Two steps at half the rate.
CUT_S, PERIOD_S = 0.2, 0.002


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What failing_links.failures() saw."""
    report = tmp_path_factory.mktemp("failures") / "report.json"
    run_module(
        SCRIPT,
        TINY,
        str(report),
        str(PHASE_S),
        str(STEP_BYTES),
        keep=[report.parent],
        groundwork=standing(TINY, Queueing.LANES),
    )
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.parametrize("target", ["host", "uplink", "switch"])
def test_a_flow_is_dark_for_the_cut_and_no_longer(seen: dict[str, Any], target: str) -> None:
    """Without a repair: from the last probe before to the first after, to a probe's period and the time on its way."""
    found = seen["cuts"][target]
    print(found)
    assert found["late_s"] < 1e-4
    assert found["down_s"] == pytest.approx(CUT_S, abs=1e-3)
    assert CUT_S < found["blackout_s"] < CUT_S + 2 * PERIOD_S
    assert found["probes"]["lost"] == pytest.approx(CUT_S / PERIOD_S, abs=2)
    assert found["after"] >= 1


@pytest.mark.parametrize("target", ["host", "uplink", "switch", "storage"])
def test_the_kernels_datapath_counts_no_frame_into_a_dead_port_and_each_is_booked(
    seen: dict[str, Any], target: str
) -> None:
    found = seen["cuts"][target]
    print(found["lost_in_cuts"])
    assert (found["unaccounted"], found["conservation"], found["refused"]) == ({}, "faithful", 0)
    assert sum(found["lost_in_cuts"].values()) >= found["probes"]["lost"]


def test_losses_are_exact_writes_are_kept_and_all_comes_back(seen: dict[str, Any]) -> None:
    assert seen["loss"]["by_loss"] == seen["loss"]["lost"] > 50
    assert seen["loss"]["unaccounted"] == {}
    assert seen["checked"] > 10
    assert seen["lost"] == seen["changed"] == []
    print(seen["step_s"])
    assert 1.3 < seen["step_s"]["0.5"] / seen["step_s"]["1"] < 2.5
