"""Lossless links that slow down, lose frames, are cut or have buffers too small, and routes that make a circle."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.guest_scripts import run_module

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
GBPS = 1e9
SLOW = 0.3
XOFF_BYTES, HEADROOM_BYTES = 96 * 1024, 64 * 1024
"""The defaults of PFC's input buffers."""
CIRCLE = {"z0l00:3", "z0s00:2", "z0l01:4", "z0s01:1"}
"""From the first leaf over the first spine to the second leaf, and over the second spine back."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What lossless_links.seen() saw."""
    report = tmp_path_factory.mktemp("lossless_links") / "report.json"
    run_module("tests.virtual.lossless_links", str(report), keep=[report.parent])
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_throughput_follows_the_rate_of_a_slow_link_and_comes_back(seen: dict[str, Any]) -> None:
    """It is the link of a host whom three send to: all buffers before it are full."""
    found = seen["rate"]
    print(found)
    assert found["bps"] == pytest.approx([GBPS, SLOW * GBPS, GBPS], rel=0.01)
    assert found["dropped_by_cause"] == {}
    assert_accounted_for(found)


def test_random_loss_takes_frames_and_gives_their_credits_back(seen: dict[str, Any]) -> None:
    found = seen["loss"]
    print(found)
    assert found["by_loss"] > 20
    assert found["dropped_by_cause"] == {}
    assert_accounted_for(found)


def test_a_cut_takes_what_waits_in_its_ports_and_nothing_else(seen: dict[str, Any]) -> None:
    found = seen["cut"]
    print(found)
    assert set(found["dropped_by_cause"]) == {"link_down"}
    assert found["bps"][1] == 0
    assert found["bps"][0] == pytest.approx(GBPS, rel=0.01)
    assert_accounted_for(found)


def test_pfc_stops_and_lets_go_on_within_its_headroom_and_loses_nothing(seen: dict[str, Any]) -> None:
    """Another host's link is cut meanwhile, which is nothing to these."""
    found = seen["pfc"]
    print(found)
    assert found["dropped_by_cause"] == {}
    assert (found["lost_in_cuts"], found["retransmissions"]) == (0, 0)
    assert found["stalls"] > 100, "stopped, and let go on, again and again"
    assert XOFF_BYTES < found["most_buffered_bytes"] <= XOFF_BYTES + HEADROOM_BYTES
    assert found["bps"][0] == pytest.approx(GBPS, rel=0.01)
    assert_accounted_for(found)


def test_pfc_with_too_little_headroom_drops_and_every_frame_is_accounted_for(seen: dict[str, Any]) -> None:
    found = seen["headroom"]
    print(found)
    assert found["dropped_by_cause"]["headroom"] > 0
    assert_accounted_for(found)


def assert_accounted_for(found: dict[str, Any]) -> None:
    assert found["unaccounted"] == {}
    assert found["held"] == [], "credits were lost"


def test_a_soak_drops_leaks_and_leaves_unexplained_nothing(seen: dict[str, Any]) -> None:
    metrics = seen["soak"]["metrics"]
    print(metrics)
    assert (metrics["drops"], metrics["leaked_bytes"], metrics["unexplained_stalls"]) == (0, 0, 0)
    assert (metrics["deadlocks"], metrics["unaccounted_packets"]) == (0, 0)


def test_a_soak_puts_the_fabric_through_something(seen: dict[str, Any]) -> None:
    metrics = seen["soak"]["metrics"]
    assert metrics["flows_completed"] > 200
    assert metrics["rounds_broken_off"] == 0
    assert 10 <= metrics["flaps"] <= 12, "two of one link may be one"
    assert metrics["lost_in_cuts"] > 0
    assert metrics["long_stalls"] > 0


def test_the_verdict_on_a_soak_rests_on_its_promises(seen: dict[str, Any]) -> None:
    verdict = seen["soak"]["verdict"]
    assert verdict["status"] == "faithful", verdict["reasons"]
    assert {"lossless_drops", "leaked_bytes", "unexplained_stalls"} <= {check["name"] for check in verdict["checks"]}


def test_routes_in_a_circle_end_a_run_soon_and_it_names_the_ports_that_wait_for_each_other(
    seen: dict[str, Any],
) -> None:
    found = seen["circle"]
    print(found)
    assert found["words"].startswith("deadlock: ")
    named = {port for port in CIRCLE if f"{port} lossless" in found["words"]}
    assert named == CIRCLE
    assert found["after_s"] < 3, "it would have gone on for 40 s"


def test_a_deadlock_while_jobs_are_halted_ends_a_run_soon(seen: dict[str, Any]) -> None:
    found = seen["circle"]["at_its_end"]
    assert found["words"].startswith("deadlock: ")
    assert found["after_s"] < 3, "jobs would have been waited for, for 40 s"


def test_a_fabric_that_is_emptied_after_a_deadlock_goes_on_as_if_there_had_been_none(seen: dict[str, Any]) -> None:
    found = seen["circle"]
    print(found["held_at_once"], found["after"])
    assert found["held_at_once"] == []
    assert_accounted_for(found["after"])
    assert found["after"]["dropped_by_cause"] == {}
    assert found["after"]["bps"][0] == pytest.approx(GBPS, rel=0.01)
