"""The verdict: each check at, below and beyond its limits, and what the worst of them says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from fabric.calibration import LinkCalibration
from fabric.census import Conservation
from fabric.fidelity import (
    SWITCHING_FRAME_TIMES,
    Check,
    PhaseEvidence,
    Status,
    Verdict,
    calibration_checks,
    conservation_checks,
    judge,
    machine_checks,
    memory_checks,
    switching_checks,
)
from fabric.results import TABLES

FRAME_TIME_S = 4214 * 8 / 20e6
FAITHFUL, DEGRADED, INVALID = Status.FAITHFUL, Status.DEGRADED, Status.INVALID


def check(status: Status, text: str = "text") -> Check:
    return Check("check", {FAITHFUL: 1, DEGRADED: 2, INVALID: 3}[status], 1, 2, text)


def calibration(alone: float = 1.0, share_error: float = 0.0, port: str = "z0l00:1") -> LinkCalibration:
    """Return a link of 20 Mbit/s whose lane alone gets ``alone`` of it, and whose lane "a" is off its share."""
    shares, promised = {"a": 0.6 - share_error, "b": 0.4}, {"a": 0.6, "b": 0.4}
    return LinkCalibration("leaf to compute", port, 20_000_000, 20_000_000 * alone, 20e6, shares, promised)


def counted(sent: int, unaccounted: dict[str, int] | None = None) -> Conservation:
    return Conservation(
        sent_packets=sent,
        sent_bytes=sent * 1000,
        switched_bytes=sent * 3000,
        dropped_by_queues=0,
        dropped_by_rules=0,
        waiting_packets=0,
        unaccounted=unaccounted or {},
        unaccounted_bytes=0,
    )


def phase(sent: int = 1000, waiting_bytes: float = 0, seconds: float = 10.0, name: str = "alone") -> PhaseEvidence:
    """Return a phase on an idle machine in whose input queue ``waiting_bytes`` wait on average."""
    waiting = [0, int(2 * waiting_bytes)] * 100
    return PhaseEvidence(name, counted(sent), machine(input_queue_bytes=waiting), seconds)


def machine(samples: int = 200, **columns: Any) -> pd.DataFrame:
    """Return the samples of ten idle seconds, with other values in some columns."""
    rows = {name: [0.0 if kind == "float64" else 0] * samples for name, kind in TABLES["machine"].items()}
    rows["at_s"] = [place * 10 / samples for place in range(samples)]
    return pd.DataFrame({**rows, **columns})


def named(checks: list[Check], name: str) -> Check:
    (found,) = [one for one in checks if one.name == name]
    return found


# A check and a verdict ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "status"),
    [(-1, FAITHFUL), (0.02, FAITHFUL), (0.0201, DEGRADED), (0.05, DEGRADED), (0.0501, INVALID)],
)
def test_a_check_is_faithful_up_to_one_limit_and_invalid_beyond_the_other(value: float, status: Status) -> None:
    assert Check("check", value, 0.02, 0.05, "text").status is status


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ([], FAITHFUL),
        ([FAITHFUL, FAITHFUL], FAITHFUL),
        ([FAITHFUL, DEGRADED, FAITHFUL], DEGRADED),
        ([INVALID, DEGRADED, FAITHFUL], INVALID),
        ([DEGRADED, INVALID], INVALID),
    ],
)
def test_the_verdict_is_the_worst_of_all_checks(statuses: list[Status], verdict: Status) -> None:
    assert Verdict(tuple(check(status) for status in statuses)).status is verdict


def test_reasons_name_what_is_not_faithful_the_worst_first() -> None:
    checks = (
        check(DEGRADED, "a"),
        check(INVALID, "b"),
        check(FAITHFUL, "c"),
        check(DEGRADED, "d"),
        check(INVALID, "e"),
    )
    assert Verdict(checks).reasons == ["invalid: b", "invalid: e", "degraded: a", "degraded: d"]


def test_a_faithful_run_needs_no_reasons() -> None:
    assert Verdict((check(FAITHFUL),)).reasons == []


def test_a_verdict_is_json_without_infinities() -> None:
    verdict = judge([calibration()], [phase()], FRAME_TIME_S, ["something odd"])
    text = json.dumps(verdict.as_json(), allow_nan=False)
    read = json.loads(text)
    assert read["status"] == "degraded"
    assert read["reasons"] == ["degraded: something odd"]
    by_name = {one["name"]: one for one in read["checks"]}
    assert len(by_name) == len(verdict.checks)
    assert by_name["softnet_drops"]["invalid_beyond"] is None
    assert by_name["link_rate_error"] == {
        "name": "link_rate_error",
        "status": "faithful",
        "value": 0.0,
        "faithful_up_to": 0.02,
        "invalid_beyond": 0.05,
        "text": "a lane alone gets 100.0% of the link (leaf to compute, port z0l00:1)",
    }


def test_a_quiet_run_is_faithful_in_every_respect() -> None:
    verdict = judge([calibration()], [phase(), phase(name="together")], FRAME_TIME_S)
    assert verdict.status is FAITHFUL
    assert {one.name for one in verdict.checks} >= {
        "link_rate_error",
        "lane_share_error",
        "unaccounted_packets_fraction",
        "cpu_busy_fraction",
        "switching_frame_times",
        "lateness_p99_s",
        "host_lateness_p99_s",
        "softnet_drops",
    }


# Calibration ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alone", "status"),
    [(1.0, FAITHFUL), (0.981, FAITHFUL), (1.019, FAITHFUL), (0.979, DEGRADED), (1.021, DEGRADED), (0.949, INVALID)],
)
def test_a_link_that_is_slower_or_faster_than_promised_is_noticed(alone: float, status: Status) -> None:
    found = named(calibration_checks([calibration(), calibration(alone=alone, port="z0l01:2")]), "link_rate_error")
    assert found.status is status
    assert found.value == pytest.approx(abs(alone - 1))
    if status is not FAITHFUL:
        assert found.text == f"a lane alone gets {alone:.1%} of the link (leaf to compute, port z0l01:2)"


@pytest.mark.parametrize(
    ("error", "status"),
    [(0.0, FAITHFUL), (0.049, FAITHFUL), (-0.049, FAITHFUL), (0.051, DEGRADED), (-0.051, DEGRADED), (0.101, INVALID)],
)
def test_a_lane_that_gets_more_or_less_than_its_share_is_noticed(error: float, status: Status) -> None:
    found = named(calibration_checks([calibration(share_error=error), calibration(port="z0l01:2")]), "lane_share_error")
    assert found.status is status
    assert found.value == pytest.approx(abs(error))


def test_without_calibration_nothing_is_said_of_links() -> None:
    assert calibration_checks([]) == []


# Conservation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "lost", "status"),
    [(10_000, 0, FAITHFUL), (10_000, 1, DEGRADED), (9_999, 1, INVALID), (0, 0, FAITHFUL), (0, 1, INVALID)],
)
def test_a_packet_in_no_counter_is_noticed(sent: int, lost: int, status: Status) -> None:
    (found,) = conservation_checks([counted(sent, {"switch z0l00": lost} if lost else {})])
    assert found.status is status


def test_losses_are_added_up_over_phases_and_the_first_places_named() -> None:
    (found,) = conservation_checks(
        [
            counted(100, {"switch a": 1, "switch b": -2}),
            counted(200),
            counted(300, {"wire c": 3, "wire d": 4, "wire e": 5}),
        ]
    )
    assert found.value == pytest.approx(15 / 600)
    assert found.text == ("15 of 600 packets are in no counter: switch a (1), switch b (-2), wire c (3) and 2 more")


def test_few_places_are_all_named() -> None:
    (found,) = conservation_checks([counted(100, {"switch a": 1, "switch b": 1, "wire c": 1})])
    assert found.text == "3 of 100 packets are in no counter: switch a (1), switch b (1), wire c (1)"


def test_a_run_that_lost_nothing_says_so() -> None:
    (found,) = conservation_checks([counted(7), counted(8)])
    assert found.text == "all 15 packets are accounted for"


# Switching: the default phase passes 300 kB/s, so that 300 bytes wait for 1 ms. --------------------------------------


GOOD_FRAME_TIMES, BAD_FRAME_TIMES = SWITCHING_FRAME_TIMES


@pytest.mark.parametrize(
    ("frame_times", "status"),
    [
        (0, FAITHFUL),
        (GOOD_FRAME_TIMES - 0.1, FAITHFUL),
        (GOOD_FRAME_TIMES + 0.1, DEGRADED),
        (BAD_FRAME_TIMES - 0.1, DEGRADED),
        (BAD_FRAME_TIMES + 0.1, INVALID),
    ],
)
def test_frames_that_wait_to_be_switched_are_noticed(frame_times: float, status: Status) -> None:
    (found,) = switching_checks([phase(waiting_bytes=300 * frame_times)], frame_time_s=0.001)
    assert found.status is status
    assert found.value == pytest.approx(frame_times)


def test_the_phase_in_which_switches_did_worst_decides() -> None:
    phases = [phase(waiting_bytes=300), phase(waiting_bytes=900, name="together"), phase(sent=10**6, waiting_bytes=900)]
    (found,) = switching_checks(phases, frame_time_s=0.0017)
    assert found.text == (
        "in phase together a frame waits up to 3.0 ms to be switched, on average; the largest takes 1.7 ms on the wire"
    )


def test_a_phase_in_which_nothing_was_sent_waits_for_nothing() -> None:
    (found,) = switching_checks([phase(sent=0, waiting_bytes=10)], frame_time_s=0.001)
    assert found.value == 0


def test_a_phase_without_a_sample_makes_the_run_invalid() -> None:
    short = PhaseEvidence("short", counted(1000), machine(samples=0), 0.01)
    verdict = judge([calibration()], [short, phase()], FRAME_TIME_S)
    assert verdict.reasons == [
        "invalid: no samples of the machine in 1 of 2 phases (short first): nothing says whether it kept up"
    ]
    json.dumps(verdict.as_json(), allow_nan=False)


def test_one_sample_a_phase_is_enough() -> None:
    verdict = judge([calibration()], [PhaseEvidence("short", counted(1000), machine(samples=1), 0.01)], FRAME_TIME_S)
    assert verdict.status is FAITHFUL


def test_in_virtual_time_busy_cores_say_nothing_and_all_else_counts() -> None:
    busy = PhaseEvidence("busy", counted(1000), machine(cpu_busy_fraction=1.0), 10.0)
    assert judge([calibration()], [busy], FRAME_TIME_S).status is INVALID
    verdict = judge([calibration()], [busy], FRAME_TIME_S, is_virtual=True)
    assert verdict.status is FAITHFUL
    late = PhaseEvidence("late", counted(1000), machine(cpu_busy_fraction=1.0, lateness_s=0.5), 10.0)
    assert judge([calibration()], [late], FRAME_TIME_S, is_virtual=True).status is INVALID


@pytest.mark.parametrize(("times", "status"), [(0, FAITHFUL), (1, DEGRADED), (11, INVALID)])
def test_tcp_short_of_memory_is_noticed(times: int, status: Status) -> None:
    (found,) = memory_checks([replace(counted(1000), tcp_short_of_memory=times), counted(1000)])
    assert found.status is status


def test_without_phases_nothing_can_be_believed() -> None:
    verdict = judge([calibration()], [], FRAME_TIME_S)
    assert verdict.reasons == ["invalid: no samples of the machine: nothing says whether it kept up"]


# The machine ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "name", "value", "status"),
    [
        ("cpu_busy_fraction", "cpu_busy_fraction", 0.95, FAITHFUL),
        ("cpu_busy_fraction", "cpu_busy_fraction", 0.96, DEGRADED),
        ("cpu_busy_fraction", "cpu_busy_fraction", 0.995, INVALID),
        ("lateness_s", "lateness_p99_s", 0.005, FAITHFUL),
        ("lateness_s", "lateness_p99_s", 0.006, DEGRADED),
        ("lateness_s", "lateness_p99_s", 0.026, INVALID),
        ("host_lateness_s", "host_lateness_p99_s", 0.05, FAITHFUL),
        ("host_lateness_s", "host_lateness_p99_s", 0.06, DEGRADED),
        ("host_lateness_s", "host_lateness_p99_s", 0.26, INVALID),
    ],
)
def test_a_machine_that_cannot_keep_up_is_noticed(column: str, name: str, value: float, status: Status) -> None:
    checks = machine_checks(machine().assign(**{column: value}))
    assert named(checks, name).status is status
    assert all(one.status is FAITHFUL for one in checks if one.name != name)


@pytest.mark.parametrize(("busy_seconds", "status"), [(0, FAITHFUL), (1, FAITHFUL), (2, INVALID)])
def test_a_machine_may_be_busy_for_one_second_of_ten(busy_seconds: int, status: Status) -> None:
    busy = [1.0 if place < busy_seconds * 20 else 0.5 for place in range(200)]
    found = named(machine_checks(machine(cpu_busy_fraction=busy)), "cpu_busy_fraction")
    assert found.status is status


def test_busy_moments_within_a_second_are_averaged() -> None:
    alternating = [1.0, 0.8] * 100
    found = named(machine_checks(machine(cpu_busy_fraction=alternating)), "cpu_busy_fraction")
    assert found.value == pytest.approx(0.9)
    assert found.text == "all cores are 90% busy in one second of ten"


@pytest.mark.parametrize(("late_samples", "status"), [(1, FAITHFUL), (3, INVALID)])
def test_one_wake_up_of_a_hundred_may_be_late(late_samples: int, status: Status) -> None:
    late = [0.5] * late_samples + [0.0] * (200 - late_samples)
    assert named(machine_checks(machine(lateness_s=late)), "lateness_p99_s").status is status


@pytest.mark.parametrize(
    ("drops", "status"), [([7] * 200, FAITHFUL), ([7] * 199 + [8], DEGRADED), ([0] + [10**6] * 199, DEGRADED)]
)
def test_frames_that_the_kernel_dropped_during_the_run_are_noticed(drops: list[int], status: Status) -> None:
    found = named(machine_checks(machine(softnet_drops=drops)), "softnet_drops")
    assert found.status is status
    assert found.text == f"the kernel's input queues dropped {drops[-1] - drops[0]} frames"
