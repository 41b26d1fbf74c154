"""The verdict: each check at, below and beyond its limits, and what the worst of them says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fabric.measure import fidelity
from fabric.measure.cores import CpuUse
from fabric.measure.fidelity import (
    PhaseEvidence,
    calibration_checks,
    conservation_checks,
    full_queue_checks,
    memory_checks,
    socket_checks,
)
from fabric.measure.load_checks import (
    FailedOperations,
    PlayedLoad,
    failed_checks,
    load_checks,
    own_nic_checks,
)
from fabric.measure.machine_checks import (
    SWITCHING_FRAME_TIMES,
    core_checks,
    input_queue_checks,
    machine_checks,
    quota_checks,
    softnet_backlog_checks,
    softnet_drop_checks,
    spinning_checks,
)
from fabric.measure.port_rates import FullQueue
from fabric.measure.verdict import Check, Status, Verdict
from fabric.records.calibration import LinkCalibration
from fabric.records.conservation import Conservation
from fabric.tables import TABLES
from fabric.world.datapath import Datapath
from fabric.world.engine import Spun
from fabric.world.engines import NAMESPACE, VIRTUAL
from tests.rows import table_of

FRAME_TIME_S = 4214 * 8 / 20e6
judge = partial(fidelity.judge, engine=NAMESPACE)
"""The verdict in real time, unless a test names another engine."""
FAITHFUL, DEGRADED, INVALID = Status.FAITHFUL, Status.DEGRADED, Status.INVALID


def check(status: Status, text: str = "text") -> Check:
    return Check("check", {FAITHFUL: 1, DEGRADED: 2, INVALID: 3}[status], 1, 2, text)


def calibration(alone: float = 1.0, share_error: float = 0.0, port: str = "z0l00:1") -> LinkCalibration:
    """Return a link of 20 Mbit/s whose lane alone gets ``alone`` of it, and whose lane "a" is off its share."""
    shares, promised = {"a": 0.6 - share_error, "b": 0.4}, {"a": 0.6, "b": 0.4}
    return LinkCalibration("leaf to compute", port, 20_000_000, 20_000_000 * alone, 20e6, shares, promised)


def counted(sent: int, unaccounted: dict[str, int] | None = None) -> Conservation:
    """Return that ``sent`` packets of 1,000 bytes went over three switches each."""
    return Conservation(
        sent_packets=sent,
        sent_bytes=sent * 1000,
        switched_bytes=sent * 3000,
        dropped_by_queues=0,
        dropped_by_rules=0,
        waiting_packets=0,
        unaccounted=unaccounted or {},
        unaccounted_bytes=0,
        switched_packets=sent * 3,
    )


def phase(sent: int = 1000, waiting_bytes: float = 0, seconds: float = 10.0, name: str = "alone") -> PhaseEvidence:
    """Return a phase on an idle machine in whose input queue ``waiting_bytes`` wait on average."""
    waiting = [0, int(2 * waiting_bytes)] * 100
    return PhaseEvidence(name, counted(sent), machine(input_queue_bytes=waiting), seconds, cores())


def on(machine: pd.DataFrame, name: str = "alone", seconds: float = 10.0, **evidence: Any) -> PhaseEvidence:
    """Return a phase on such a machine, with idle cores unless told otherwise."""
    return PhaseEvidence(name, counted(100_000), machine, seconds, **({"cores": cores()} | evidence))


def machine(samples: int = 200, seconds: float = 10.0, **columns: Any) -> pd.DataFrame:
    """Return the samples of idle seconds, with other values in some columns."""
    rows = {name: [0.0 if kind == "float64" else 0] * samples for name, kind in TABLES["machine"].dtypes.items()}
    rows["at_s"] = [place * seconds / samples for place in range(samples)]
    return pd.DataFrame({**rows, **columns})


def cores(count: int = 2, seconds: int = 10, busy: float = 0.3, **of: Iterable[float]) -> pd.DataFrame:
    """Return readings of cores, four a second, ``busy`` but for those whose seconds are given as ``core3=[...]``."""
    rows = [
        (at / 4, core, list(of.get(f"core{core}", [busy] * seconds))[at // 4], 0.0, 0.0)
        for at in range(4 * seconds)
        for core in range(count)
    ]
    return table_of("cores", rows)


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
    assert by_name["lateness_p99_s"]["by_phase"] == {"alone": 0.0}
    assert by_name["link_rate_error"] == {
        "name": "link_rate_error",
        "status": "faithful",
        "value": 0.0,
        "faithful_up_to": 0.02,
        "invalid_beyond": 0.05,
        "margin": 1.0,
        "phase": "",
        "by_phase": {},
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
        "core_busy_fraction",
        "switch_stall_s",
        "host_stall_s",
        "clock_step_s",
        "full_port_rate_error",
        "udp_dropped",
        "connections_dropped",
        "tcp_discarded",
    }


def test_a_margin_is_what_is_left_of_the_limit() -> None:
    assert Check("check", 0.015, 0.02, 0.05, "text").margin == pytest.approx(0.25)
    assert Check("check", 0.03, 0.02, 0.05, "text").margin == pytest.approx(-0.5)
    assert Check("check", 0, 0, 10, "none allowed").margin is None


def test_the_closest_checks_come_first_and_those_without_a_margin_not_at_all() -> None:
    checks = [Check(str(value), value, limit, 9, "text") for value, limit in ((1, 2), (0, 0), (3, 2), (1, 4))]
    assert [check.name for check in Verdict(tuple(checks)).closest] == ["3", "1", "1"]
    assert [check.faithful_up_to for check in Verdict(tuple(checks)).closest] == [2, 2, 4]


def test_every_phase_is_judged_and_the_worst_named_with_the_values_of_all() -> None:
    late = {"alone": 0.001, "shared": 0.012, "lanes": 0.009}
    phases = [on(machine(lateness_s=value), name) for name, value in late.items()]
    found = named(list(judge([], phases, FRAME_TIME_S).checks), "lateness_p99_s")
    assert found.by_phase == late
    assert (found.phase, found.value, found.status) == ("shared", 0.012, DEGRADED)
    assert found.text == (
        "phase shared (and 1 more): one wake-up in a hundred is 12.0 ms late or more, 7.12 frame times"
    )


# Holes that a verdict once had ----------------------------------------------------------------------------------------


def test_one_phase_of_eleven_that_is_busy_throughout_counts() -> None:
    idle = [on(machine(cpu_busy_fraction=0.3), f"p{number}") for number in range(10)]
    verdict = judge([], [*idle, on(machine(cpu_busy_fraction=1.0), "p10")], FRAME_TIME_S)
    assert verdict.reasons == ["invalid: phase p10: all cores are 100% busy in one second of ten"]


def test_one_short_phase_of_many_that_is_late_in_every_sample_counts() -> None:
    good = [on(machine(20, 1.0), f"p{number}", 1.0, cores=cores(seconds=1)) for number in range(119)]
    bad = machine(20, 1.0, lateness_s=0.3, host_lateness_s=0.3)
    verdict = judge([], [*good, on(bad, "p119", 1.0, cores=cores(seconds=1))], FRAME_TIME_S)
    assert {reason.split(":")[0] for reason in verdict.reasons} == {"invalid", "degraded"}
    assert all("phase p119:" in reason for reason in verdict.reasons)


def test_a_phase_too_short_for_a_quantile_is_judged_by_its_maximum() -> None:
    short = machine(samples=20, seconds=1.0, lateness_s=[0.0] * 19 + [0.03])
    found = named(machine_checks(short, FRAME_TIME_S, NAMESPACE), "lateness_p99_s")
    assert (found.value, found.status) == (0.03, INVALID)
    busy = machine(samples=40, seconds=2.0, cpu_busy_fraction=[1.0] * 20 + [0.1] * 20)
    assert named(machine_checks(busy, FRAME_TIME_S, NAMESPACE), "cpu_busy_fraction").value == pytest.approx(1.0)


def test_lateness_is_in_frame_times_of_the_fabric() -> None:
    late = machine(lateness_s=0.0049)
    assert named(machine_checks(late, FRAME_TIME_S, NAMESPACE), "lateness_p99_s").status is FAITHFUL
    assert named(machine_checks(late, FRAME_TIME_S / 5, NAMESPACE), "lateness_p99_s").status is DEGRADED
    assert named(machine_checks(late, FRAME_TIME_S / 50, NAMESPACE), "lateness_p99_s").status is INVALID


def test_one_core_of_sixteen_that_is_always_busy_counts() -> None:
    """It has softirqs to carry out, or one program; the mean of all cores is 7 %."""
    sixteen = cores(count=16, busy=0.01, core5=[1.0] * 10)
    verdict = judge([], [on(machine(cpu_busy_fraction=0.07), cores=sixteen)], FRAME_TIME_S)
    assert verdict.reasons == [
        "invalid: phase alone: core 5 is 100% busy in one second of ten, without polling by the switches"
    ]


def test_where_the_kernel_switches_and_does_not_tell_what_waits_nothing_passes() -> None:
    silent = on(machine(softnet_backlog=-1))
    verdict = judge([], [silent], FRAME_TIME_S, datapath=Datapath.KERNEL)
    assert verdict.status is DEGRADED
    assert "not measured: this kernel does not report how many frames wait to be switched" in verdict.reasons[0]


def test_frames_that_wait_for_the_kernel_to_switch_them_are_noticed() -> None:
    # 300,000 packets are switched in 10 s: 150 that wait on average wait 5 ms, 3 frame times.
    for backlog, status in ((0, FAITHFUL), (140, FAITHFUL), (170, DEGRADED), (1000, INVALID)):
        found, _ = softnet_backlog_checks(machine(softnet_backlog=backlog), 300_000, 10.0, FRAME_TIME_S)
        assert found.status is status, backlog


@pytest.mark.parametrize(
    ("datapath", "column", "much"),
    [(Datapath.USERSPACE, "input_queue_bytes", 16 * 2**20), (Datapath.KERNEL, "softnet_backlog", 1600)],
)
def test_input_that_waits_in_one_sample_of_a_hundred_counts(datapath: Datapath, column: str, much: int) -> None:
    """16 MiB twice in ten seconds are nothing to the mean, and 1,600 frames that wait for a whole period and longer."""
    waiting, waits = np.zeros(200), np.zeros(200)
    waiting[::100], waits[::100] = much, 0.05
    columns: dict[str, Any] = {column: waiting, "input_wait_s": waits}
    late = on(machine(**columns))
    verdict = judge([], [late], FRAME_TIME_S, datapath=datapath)
    assert verdict.status is DEGRADED
    assert any("in one sample of a hundred, frames wait 50 ms" in text for text in verdict.reasons)


@pytest.mark.parametrize("column", ["lateness_s", "input_wait_s", "host_lateness_s"])
def test_a_single_long_stall_counts(column: str) -> None:
    """Once in ten minutes is enough, however many samples are in order."""
    values = np.zeros(12_000)
    for seconds, status in ((0.15, FAITHFUL), (0.3, DEGRADED), (1.5, INVALID)):
        values[7_000] = seconds
        long = machine(samples=12_000, seconds=600.0, **{column: values})
        checks = machine_checks(long, FRAME_TIME_S, NAMESPACE)
        assert max((check.status for check in checks), key=list(Status).index) is status, seconds
        name = "host_stall_s" if column == "host_lateness_s" else "switch_stall_s"
        assert named(checks, name).status is status


def test_a_quota_that_keeps_programs_waiting_counts() -> None:
    def used(throttled_s: float) -> CpuUse:
        return CpuUse(5, 1, 4, 2, 0, 0, 0, 8, 1, throttled_s, 2)

    (none,), (some,), (much,) = (quota_checks(used(throttled_s)) for throttled_s in (0.0, 1.0, 5.0))
    assert (none.status, some.status, much.status) == (FAITHFUL, DEGRADED, INVALID)
    assert some.text.startswith("a quota of CPU time (cgroup) kept programs waiting for 5.0% of the cores' time")
    assert quota_checks(None) == []


def test_programs_that_make_virtual_time_pass_while_others_are_ready_count() -> None:
    """A phase of a millisecond is too short for a late wake-up to be seen: this is."""
    spun = [on(machine(), seconds=0.001, spun=Spun(seconds, "spinner")) for seconds in (0.0, 5e-6, 5e-5, 5e-4)]
    found = [judge([], [one], FRAME_TIME_S, engine=VIRTUAL) for one in spun]
    assert [one.status for one in found] == [FAITHFUL, FAITHFUL, DEGRADED, INVALID]
    assert found[0].reasons == []
    assert "50.0% of the time passed while programs spun, spinner last, and kept others waiting" in found[3].reasons[0]
    assert spinning_checks(None, 1.0) == []


def test_a_date_that_is_set_during_a_phase_is_told() -> None:
    offset = np.full(200, 1.8e9)
    slewed = offset + np.arange(200) * 25e-6  # 500 ppm, the most that NTP slews by.
    for clock, status in ((offset, FAITHFUL), (slewed, FAITHFUL), (offset + (np.arange(200) > 90) * 0.7, DEGRADED)):
        found = named(machine_checks(machine(clock_offset_s=clock), FRAME_TIME_S, NAMESPACE), "clock_step_s")
        assert found.status is status
    assert found.text == "the machine's date was set, by 700.0 ms: times taken from it are wrong by as much"


# What is the machine's and not the run's ------------------------------------------------------------------------------


def test_strangers_niced_programs_are_told_and_not_judged() -> None:
    filled = cores().assign(niced_fraction=0.65)
    (found,) = core_checks(filled, Datapath.USERSPACE)
    assert found.status is FAITHFUL
    assert found.value == pytest.approx(0.3)
    assert found.text.endswith("and without niced programs, which used 65% of all cores")


def test_polling_of_userspace_switches_keeps_no_core_busy_and_work_of_others_does() -> None:
    polling = cores(busy=1.0).assign(switch_fraction=0.7)
    (found,) = core_checks(polling, Datapath.USERSPACE)
    assert found.value == pytest.approx(0.3)
    (found,) = core_checks(polling, Datapath.KERNEL)
    assert found.status is INVALID


def test_frames_of_strangers_that_the_kernel_dropped_are_told_and_not_judged() -> None:
    dropping = machine(softnet_drops=[0] * 199 + [8])
    (found,) = softnet_drop_checks(dropping, counted(1000))
    assert found.status is FAITHFUL
    assert (
        found.text
        == "the kernel's input queues dropped 8 frames, none of them this run's: all of its frames are accounted for"
    )
    for ours in (counted(1000, {"wire a": 8}), replace(counted(1000), lost_in_cuts={"wire a": 8})):
        (found,) = softnet_drop_checks(dropping, ours)
        assert found.status is DEGRADED


# Full ports -----------------------------------------------------------------------------------------------------------


def full(rate: float, lane: str = "", share: float = 1.0) -> FullQueue:
    return FullQueue("z0l00:1", lane, 4.2, rate, share)


@pytest.mark.parametrize(
    ("rate", "status"), [(1.0, FAITHFUL), (0.981, FAITHFUL), (0.97, DEGRADED), (1.03, DEGRADED), (0.94, INVALID)]
)
def test_a_full_port_that_is_off_its_rate_is_noticed(rate: float, status: Status) -> None:
    found = named(full_queue_checks([full(1.0), full(rate)]), "full_port_rate_error")
    assert found.status is status
    if status is not FAITHFUL:
        assert found.text == f"port z0l00:1, full for 4.2 s, sent at {rate:.1%} of its link's rate; the worst of 2"


def test_a_full_lane_is_judged_by_what_of_the_link_it_lacks() -> None:
    for rate, status in ((0.95, FAITHFUL), (0.85, DEGRADED), (0.7, INVALID), (1.9, FAITHFUL)):
        found = named(full_queue_checks([full(rate, "hfreduce", 0.5)]), "full_lane_share_error")
        assert found.status is status, rate


def test_a_run_without_a_full_port_says_so_and_one_with_one_names_the_phase() -> None:
    quiet = judge([], [phase()], FRAME_TIME_S)
    found = named(list(quiet.checks), "full_port_rate_error")
    assert (found.status, found.by_phase) == (FAITHFUL, {})
    assert found.text == "no port was full for long enough to be compared with its link's rate"
    loaded = replace(phase(name="lanes"), full_queues=[full(0.999), full(1.2, "hfreduce", 0.5)])
    checks = list(judge([], [phase(), loaded], FRAME_TIME_S).checks)
    assert named(checks, "full_port_rate_error").by_phase == {"lanes": pytest.approx(0.001)}
    assert named(checks, "full_lane_share_error").text.startswith("phase lanes: z0l00:1 hfreduce")


# Sockets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["udp_dropped", "connections_dropped"])
def test_what_hosts_dropped_at_their_sockets_is_noticed(name: str) -> None:
    for count, status in ((0, FAITHFUL), (1, DEGRADED), (11, INVALID)):
        dropping: dict[str, Any] = {name: count}
        assert named(socket_checks(replace(counted(1000), **dropping)), name).status is status


def test_segments_that_tcp_discarded_since_others_overtook_them_are_noticed() -> None:
    for count, status, advised in ((10, FAITHFUL, False), (11, DEGRADED, True)):
        check = named(socket_checks(replace(counted(1000), discarded=count)), "tcp_discarded")
        assert (check.status, "queues.acknowledgements" in check.text) == (status, advised)


def test_a_counter_that_the_kernel_lacks_is_not_taken_for_zero() -> None:
    verdict = judge([], [replace(phase(), conservation=replace(counted(9), not_counted=("TcpExt:A",)))], FRAME_TIME_S)
    assert verdict.reasons == ["degraded: phase alone: not measured: this kernel does not count TcpExt:A"]


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


def test_losses_are_told_of_all_phases_and_judged_by_the_worst() -> None:
    (found,) = conservation_checks(
        [
            counted(100, {"switch a": 1, "switch b": -2}),
            counted(200),
            counted(300, {"wire c": 3, "wire d": 4, "wire e": 5}),
        ]
    )
    assert found.value == pytest.approx(12 / 300)
    assert found.text == ("15 of 600 packets are in no counter: switch a (1), switch b (-2), wire c (3) and 2 more")


def test_few_places_are_all_named() -> None:
    (found,) = conservation_checks([counted(100, {"switch a": 1, "switch b": 1, "wire c": 1})])
    assert found.text == "3 of 100 packets are in no counter: switch a (1), switch b (1), wire c (1)"


def test_a_run_that_lost_nothing_says_so() -> None:
    (found,) = conservation_checks([counted(7), counted(8)])
    assert found.text == "all 15 packets are accounted for"


# Switching: the default phase passes 300 kB/s, so that 300 bytes wait for 1 ms. --------------------------------------


GOOD_FRAME_TIMES, BAD_FRAME_TIMES = SWITCHING_FRAME_TIMES


def switching(phase: PhaseEvidence, frame_time_s: float) -> Check:
    switched = phase.conservation.switched_bytes
    checks = input_queue_checks(phase.machine, switched, phase.seconds, frame_time_s)
    return named(checks, "switching_frame_times")


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
    found = switching(phase(waiting_bytes=300 * frame_times), frame_time_s=0.001)
    assert found.status is status
    assert found.value == pytest.approx(frame_times)


def test_the_phase_in_which_switches_did_worst_decides() -> None:
    phases = [phase(waiting_bytes=300), phase(waiting_bytes=900, name="together"), phase(sent=10**6, waiting_bytes=900)]
    found = named(list(judge([], phases, 0.0017).checks), "switching_frame_times")
    assert found.text == (
        "phase together: a frame waits up to 3.0 ms to be switched, on average; the largest takes 1.7 ms on the wire"
    )


def test_a_phase_in_which_nothing_was_sent_waits_for_nothing() -> None:
    assert switching(phase(sent=0, waiting_bytes=10), frame_time_s=0.001).value == 0


def test_a_phase_without_a_sample_makes_the_run_invalid() -> None:
    short = PhaseEvidence("short", counted(1000), machine(samples=0), 0.01)
    verdict = judge([calibration()], [short, phase()], FRAME_TIME_S)
    assert verdict.reasons == [
        "invalid: no samples of the machine in 1 of 2 phases (short first): whether it kept up is unknown"
    ]
    json.dumps(verdict.as_json(), allow_nan=False)


def test_one_sample_a_phase_is_enough() -> None:
    verdict = judge([calibration()], [on(machine(samples=1), "short", 0.01)], FRAME_TIME_S)
    assert verdict.status is FAITHFUL


def test_a_phase_whose_cores_were_not_read_makes_the_run_invalid_in_real_time_only() -> None:
    unread = replace(phase(), cores=cores().iloc[:0])
    assert judge([], [unread], FRAME_TIME_S).status is INVALID
    assert judge([], [unread], FRAME_TIME_S, engine=VIRTUAL).status is FAITHFUL


def test_in_virtual_time_busy_cores_say_nothing_and_all_else_counts() -> None:
    busy = on(machine(cpu_busy_fraction=1.0), cores=cores(busy=1.0))
    assert judge([calibration()], [busy], FRAME_TIME_S).status is INVALID
    verdict = judge([calibration()], [busy], FRAME_TIME_S, engine=VIRTUAL)
    assert verdict.status is FAITHFUL
    assert "by construction, not by measurement" in named(list(verdict.checks), "virtual_time").text
    late = on(machine(cpu_busy_fraction=1.0, lateness_s=0.5))
    assert judge([calibration()], [late], FRAME_TIME_S, engine=VIRTUAL).status is INVALID


def test_in_virtual_time_frames_take_less_than_any_clock_tells() -> None:
    two_hundred_gigabit = 4214 * 8 / 200e9
    late = on(machine(lateness_s=1e-6, host_lateness_s=1e-6))
    assert judge([], [late], two_hundred_gigabit, engine=VIRTUAL).status is FAITHFUL


@pytest.mark.parametrize(("times", "status"), [(0, FAITHFUL), (1, DEGRADED), (11, INVALID)])
def test_tcp_short_of_memory_is_noticed(times: int, status: Status) -> None:
    (found,) = memory_checks([replace(counted(1000), tcp_short_of_memory=times), counted(1000)])
    assert found.status is status


def test_without_phases_nothing_can_be_believed() -> None:
    verdict = judge([calibration()], [], FRAME_TIME_S)
    assert verdict.reasons == ["invalid: no samples of the machine: whether it kept up is unknown"]


# The machine ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "name", "value", "status"),
    [
        ("cpu_busy_fraction", "cpu_busy_fraction", 0.949, FAITHFUL),
        ("cpu_busy_fraction", "cpu_busy_fraction", 0.96, DEGRADED),
        ("cpu_busy_fraction", "cpu_busy_fraction", 0.995, INVALID),
        ("lateness_s", "lateness_p99_s", 0.005, FAITHFUL),
        ("lateness_s", "lateness_p99_s", 0.006, DEGRADED),
        ("lateness_s", "lateness_p99_s", 0.026, INVALID),
        ("host_lateness_s", "host_lateness_p99_s", 0.0505, FAITHFUL),
        ("host_lateness_s", "host_lateness_p99_s", 0.06, DEGRADED),
        ("host_lateness_s", "host_lateness_p99_s", 0.26, INVALID),
    ],
)
def test_a_machine_that_cannot_keep_up_is_noticed(column: str, name: str, value: float, status: Status) -> None:
    checks = machine_checks(machine().assign(**{column: value}), FRAME_TIME_S, NAMESPACE)
    assert named(checks, name).status is status
    assert all(one.status is FAITHFUL for one in checks if one.name not in (name, "host_stall_s"))


@pytest.mark.parametrize(("busy_seconds", "status"), [(0, FAITHFUL), (1, FAITHFUL), (2, INVALID)])
def test_a_machine_may_be_busy_for_less_than_one_second_of_ten(busy_seconds: int, status: Status) -> None:
    busy = [1.0 if place < busy_seconds * 20 else 0.5 for place in range(400)]
    on_machine = machine(samples=400, seconds=20.0, cpu_busy_fraction=busy)
    found = named(machine_checks(on_machine, FRAME_TIME_S, NAMESPACE), "cpu_busy_fraction")
    assert found.status is status


def test_busy_moments_within_a_second_are_averaged() -> None:
    alternating = [1.0, 0.8] * 100
    found = named(machine_checks(machine(cpu_busy_fraction=alternating), FRAME_TIME_S, NAMESPACE), "cpu_busy_fraction")
    assert found.value == pytest.approx(0.9)
    assert found.text == "all cores are 90% busy in one second of ten"


def test_a_short_sample_in_which_a_tick_falls_makes_no_second_busy() -> None:
    """The last reading comes when a phase ends, milliseconds after the one before."""
    rows = [(at / 4, 0, 0.6, 0.0, 0.0) for at in range(8)] + [(1.755, 0, 2.0, 0.0, 0.0)]
    (found,) = core_checks(table_of("cores", rows), Datapath.USERSPACE)
    assert found.value == pytest.approx(0.61, abs=0.01)


def test_seconds_without_a_sample_are_no_seconds() -> None:
    stood = machine(samples=100, cpu_busy_fraction=0.5).query("at_s < 2 or at_s > 6.5")
    assert named(machine_checks(stood, FRAME_TIME_S, NAMESPACE), "cpu_busy_fraction").value == pytest.approx(0.5)
    verdict = judge([], [on(stood)], FRAME_TIME_S)
    json.dumps(verdict.as_json(), allow_nan=False)


@pytest.mark.parametrize(("late_samples", "status"), [(1, FAITHFUL), (3, INVALID)])
def test_one_wake_up_of_a_hundred_may_be_late(late_samples: int, status: Status) -> None:
    late = [0.5] * late_samples + [0.0] * (200 - late_samples)
    assert named(machine_checks(machine(lateness_s=late), FRAME_TIME_S, NAMESPACE), "lateness_p99_s").status is status


@pytest.mark.parametrize(
    ("stolen_at", "told"),
    [
        pytest.param([], "", id="none"),
        pytest.param([50], "in 1 of the 4", id="then"),
        pytest.param([51], "in 2 of the 4", id="between"),
        pytest.param([60], "", id="when none was late"),
    ],
)
@pytest.mark.parametrize("of", ["", "host_"])
def test_a_verdict_tells_whether_a_hypervisor_had_the_cores_when_wake_ups_were_late(
    of: str, stolen_at: list[int], told: str
) -> None:
    late, stolen = np.zeros(200), np.zeros(200)
    late[[10, 50, 51, 150]] = 5.0
    stolen[stolen_at] = 0.01
    rows = machine(stolen_s=stolen)
    rows[f"{of}lateness_s"] = late
    text = named(machine_checks(rows, FRAME_TIME_S, NAMESPACE), f"{of}lateness_p99_s").text
    sentence = f"a hypervisor took time from the cores {told} samples beyond the limit"
    assert text.partition("; ")[2] == (sentence if told else "")


@pytest.mark.parametrize(
    ("drops", "status"), [([7] * 200, FAITHFUL), ([7] * 199 + [8], DEGRADED), ([0] + [10**6] * 199, DEGRADED)]
)
def test_frames_that_the_kernel_dropped_during_the_run_are_noticed(drops: list[int], status: Status) -> None:
    (found,) = softnet_drop_checks(machine(softnet_drops=drops), counted(1000, {"wire a": 1}))
    assert found.status is status
    assert found.text == f"the kernel's input queues dropped {drops[-1] - drops[0]} frames"


# Own NICs, and the load -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dropped", "status"), [(0, FAITHFUL), (1, DEGRADED), (10, DEGRADED), (11, INVALID)])
def test_a_frame_dropped_at_its_senders_own_nic_is_a_loss_of_the_emulation(dropped: int, status: Status) -> None:
    counts = {"z0h000:0": dropped} if dropped else {}
    found = named(own_nic_checks(replace(counted(1000 - dropped), dropped_at_senders=counts)), "own_nic_drops_fraction")
    assert found.status is status
    assert ("z0h000:0" in found.text) is bool(dropped)
    assert ("a real host lets the socket wait instead" in found.text) is bool(dropped)


def load(**values: Any) -> PlayedLoad:
    usual = {"seconds": 10.0, "idle_begin_s": 0.0, "idle_end_s": 0.0, "longest_pause_s": 0.1, "operations": 100}
    return PlayedLoad("storage", **(usual | values))


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({}, FAITHFUL),
        ({"idle_end_s": 0.5}, FAITHFUL),
        ({"idle_end_s": 0.51}, DEGRADED),
        ({"idle_begin_s": 0.51}, DEGRADED),
        ({"idle_begin_s": 0.6, "idle_end_s": 0.6}, INVALID),
        ({"idle_end_s": 5.0}, INVALID),
        ({"idle_end_s": 2.9, "longest_pause_s": 1.0}, FAITHFUL),  # It pauses, as random arrivals do.
        ({"idle_end_s": 5.0, "operations": 9}, FAITHFUL),  # So few tell nothing.
        ({"idle_end_s": 5.0, "operations": 2, "is_steady": True}, INVALID),  # Steps follow each other.
        ({"operations": 0}, FAITHFUL),
    ],
)
def test_a_load_plays_for_the_time_in_which_it_is_told_to(values: dict[str, Any], status: Status) -> None:
    found = named(load_checks([load(), load(**values)]), "load_not_played_fraction")
    assert found.status is status
    assert ("storage did not play for" in found.text) is (values.get("idle_end_s") == 0.5 or status is not FAITHFUL)


def test_a_load_that_began_a_moment_later_played_for_the_whole_of_its_time() -> None:
    (found,) = load_checks([load(idle_begin_s=1e-6, longest_pause_s=0.0)])
    assert (found.status, found.text) == (FAITHFUL, "every load played for the whole of its time")


def test_the_load_of_a_phase_is_among_its_checks() -> None:
    stopped = replace(phase(), loads=[load(idle_end_s=5.0)], failed=[FailedOperations("other", "flow", 10, 1, 1, 0.5)])
    names = {"load_not_played_fraction", "failed_fraction"}

    def judged(one: PhaseEvidence) -> dict[str, Status]:
        verdict = judge([calibration()], [one], FRAME_TIME_S)
        return {check.name: check.status for check in verdict.checks if check.name in names}

    assert judged(stopped) == dict.fromkeys(names, INVALID)
    excused = FailedOperations("other", "flow", 10, 1, 0, 0.5, 1, ["z0l00:1--z0h000:0 down (failures.0)"])
    touched = replace(phase(), loads=[load(excused_s=5.0, asked=["x"])], failed=[excused])
    assert judged(touched) == dict.fromkeys(names, FAITHFUL), "they stay in the verdict"
    assert judged(phase()) == {}


def test_what_failures_could_touch_is_said_of_the_job_that_they_touched() -> None:
    failed = [
        FailedOperations("storage", "read", 50, 3, 0, 0.1, 3, ["st001/2 fails (failures.0)"]),
        FailedOperations("other", "flow", 100, 60, 60, 0.001),
    ]
    (found,) = failed_checks(failed)
    assert found.status is INVALID
    assert found.text == (
        "operations failed: 3 of 50 (read of storage, 3 of them as asked for: st001/2 fails (failures.0)), "
        "60 of 100 (flow of other); 60 flow of other for no reason that the network gives: the slowest flow that "
        "completed took 0.001 s, and no failure that was asked for could touch them"
    )
    (idle,) = load_checks([load(idle_end_s=3.0, excused_s=2.0, asked=["programs on h stopped (failures.1)"] * 2)])
    assert idle.text.endswith(
        "storage was idle for 2 s beside that, while failures could touch it that were asked for: programs on h "
        "stopped (failures.1)"
    )


@pytest.mark.parametrize(
    ("begun", "failed", "unexplained", "status"),
    [
        (1000, 0, 0, FAITHFUL),
        (1000, 7, 0, FAITHFUL),
        (1000, 7, 1, DEGRADED),
        (1000, 10, 10, DEGRADED),
        (100, 2, 2, INVALID),
    ],
)
def test_operations_that_fail_for_no_reason_are_judged(
    begun: int, failed: int, unexplained: int, status: Status
) -> None:
    found = failed_checks([FailedOperations("other", "flow", begun, failed, unexplained, 0.5)])
    assert [one.status for one in found] == [status]
    assert (f"{failed} of {begun} (flow of other)" in found[0].text) is bool(failed)
