"""Lossless queueing as a value: what each port is, what buffers its links need, and where it cannot run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric.errors import UsageError
from fabric.model.lanes import (
    DATA_LEVELS,
    SERVICE_LEVELS,
    TRIMMED_BYTES,
    Acknowledgements,
    FlowControl,
    InputBuffer,
    LaneConfig,
    LanePlan,
    QueueConfig,
    Queueing,
    ServiceLevel,
    plan_lanes,
)
from fabric.queueing import lossless, vl
from fabric.queueing.htb import ShapedPort, install_requests, rate_requests, replace_requests
from fabric.world.datapath import Datapath
from fabric.world.engines import NAMESPACE, VIRTUAL
from fabric.world.kernel_api import modules
from topologies.load import load_fabric

SMALL, TRUE_RATE = load_fabric("fire_flyer_2_small"), load_fabric("fire_flyer_2_small_200g")
ONE_LANE = plan_lanes(QueueConfig(), Queueing.LOSSLESS)
LANES = plan_lanes(QueueConfig(), Queueing.LOSSLESS_LANES)


def port(plan: LanePlan) -> vl.VlConfig:
    return lossless.vl_port(plan, 200_000_000_000, 1000)


# Ports ----------------------------------------------------------------------------------------------------------------


def test_switches_drop_what_waits_too_long_and_cut_through_to_switches_alone() -> None:
    config = QueueConfig(lifetime=0.1, framing=24, cut_through=64)
    plan = plan_lanes(config, Queueing.LOSSLESS)
    host, leaf, to_host = (
        lossless.vl_port(plan, 200_000_000_000, 1000, marks=marks, to_switch=to_switch)
        for marks, to_switch in ((False, True), (True, True), (True, False))
    )
    assert [port.lifetime_ns for port in (host, leaf, to_host)] == [0, 10**8, 10**8]
    assert [port.cut_through_bytes for port in (host, leaf, to_host)] == [64, 64, 0]
    assert {port.framing_bytes for port in (host, leaf, to_host)} == {24}


@pytest.mark.parametrize(
    ("queueing", "named"),
    [
        (Queueing.SHARED, ["queues.framing", "queues.cut_through"]),
        (Queueing.TRIMMED, ["queues.cut_through"]),
        (Queueing.LOSSLESS_LANES, []),
    ],
)
def test_what_a_queueing_does_not_have_is_refused(queueing: Queueing, named: list[str]) -> None:
    faults = list(lossless.faults(QueueConfig(framing=24, cut_through=64), queueing, TRUE_RATE))
    assert [fault.split(":")[0] for fault in faults] == named
    assert all(f": {queueing.value} has none" in fault for fault in faults)


@pytest.mark.parametrize("plan", [ONE_LANE, LANES], ids=["one lane", "lanes"])
@pytest.mark.parametrize("flow_control", FlowControl)
def test_a_port_can_be_told_to_the_kernel(plan: LanePlan, flow_control: FlowControl) -> None:
    made = port(plan_lanes(QueueConfig(flow_control=flow_control), plan.queueing))
    assert made.flow_control is vl.FlowControlMode[flow_control.name]
    assert vl.options(made)


def test_in_one_lane_acknowledgements_travel_with_data() -> None:
    made = port(ONE_LANE)
    assert made.control_lane is None
    assert {made.lane_of_dscp[level.dscp] for level in SERVICE_LEVELS} == {made.default_lane} == {0}
    assert (made.high, len(made.low)) == ([], 1)


def test_in_lanes_each_kind_waits_apart_and_control_goes_first() -> None:
    made = port(LANES)
    assert len({made.lane_of_dscp[level.dscp] for level in DATA_LEVELS}) == len(DATA_LEVELS)
    control = made.lane_of_dscp[ServiceLevel.CONTROL.dscp]
    assert made.control_lane is None, "acknowledgements wait with data"
    assert [entry.lane for entry in made.high] == [control]
    assert control not in {entry.lane for entry in made.low}
    assert made.default_lane == made.lane_of_dscp[ServiceLevel.OTHER.dscp]


def test_only_a_switch_trims_and_what_is_left_has_a_lane_ahead_of_all_data() -> None:
    plan = plan_lanes(QueueConfig(shared_limit=100_000), Queueing.TRIMMED)
    host, switch = (lossless.vl_port(plan, 200_000_000_000, 1000, marks=marks) for marks in (False, True))
    assert (host.trim_bytes, switch.trim_bytes, switch.trim_dscp) == (0, TRIMMED_BYTES, ServiceLevel.CONTROL.dscp)
    assert switch.flow_control is host.flow_control is vl.FlowControlMode.LOSSY
    data, control = (lossless.vl_number(plan.lane_of(level)) for level in (ServiceLevel.NCCL, ServiceLevel.CONTROL))
    assert {lossless.vl_number(plan.lane_of(level)) for level in DATA_LEVELS} == {data} != {control}
    assert switch.high == [vl.ArbitrationEntry(control, 1)]
    assert (switch.buffers[data].limit_bytes, switch.buffers[control].limit_bytes) == (100_000, 256 * 1024)
    assert host.buffers[data].limit_bytes > 2**29, "a NIC drops none of its host's own frames"
    assert vl.options(switch) != vl.options(host), "both can be told to the kernel"


def test_acknowledgements_go_ahead_of_data_where_the_config_says_so() -> None:
    config = QueueConfig(acknowledgements=Acknowledgements.CONTROL)
    made = port(plan_lanes(config, Queueing.LOSSLESS_LANES))
    assert made.control_lane == made.lane_of_dscp[ServiceLevel.CONTROL.dscp]
    assert port(plan_lanes(config, Queueing.LOSSLESS)).control_lane is None


@pytest.mark.parametrize("plan", [ONE_LANE, LANES], ids=["one lane", "lanes"])
def test_management_has_the_lane_that_no_data_can_block(plan: LanePlan) -> None:
    assert port(plan).lane_of_dscp[56] == vl.MANAGEMENT_LANE
    assert plan.lanes[-1].number == vl.MANAGEMENT_LANE + 1
    assert plan.lanes[-1] not in plan.with_share


def test_weights_are_as_shares() -> None:
    weights = {lane.name: weight for lane, weight in lossless.weights(LANES).items()}
    assert weights == {"hfreduce": 255, "nccl": 96, "storage": 223, "other": 32}


@pytest.mark.parametrize(("return_time", "return_ns"), [(None, 1000), (3e-6, 3000), (0.0, 0)])
def test_news_of_room_takes_as_long_as_bits_unless_told_otherwise(return_time: float | None, return_ns: int) -> None:
    plan = plan_lanes(QueueConfig(return_time=return_time), Queueing.LOSSLESS)
    assert (port(plan).delay_ns, port(plan).return_ns) == (1000, return_ns)


def test_a_lossless_plan_makes_one_qdisc_a_port_with_the_delay_in_it() -> None:
    shaped = ShapedPort("z0l00-eth1", 1000, 200_000_000_000, 4200, delay_ns=1000)
    assert install_requests(shaped, LANES) == [vl.install(1000, "z0l00-eth1", port(LANES))]
    assert len(replace_requests(shaped, LANES)) == 2


def test_another_rate_changes_options_in_place_and_nothing_else() -> None:
    shaped = ShapedPort("z0l00-eth1", 1000, 200_000_000_000, 4200, delay_ns=1000)
    slow = replace(port(LANES), rate_bps=50_000_000_000)
    assert rate_requests(shaped.at_fraction(0.25), LANES) == [vl.change(1000, "z0l00-eth1", slow)]


def test_shares_of_full_lanes_leave_half_to_control() -> None:
    shares = LANES.promised_shares(4214)
    assert shares["control"] == 0.5
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["hfreduce"] / shares["other"] == pytest.approx(0.40 / 0.05)
    assert ONE_LANE.promised_shares(4214) == {"lossless": 1.0}


def test_small_frames_of_control_go_in_larger_parties() -> None:
    assert LANES.promised_shares(1514)["control"] == 0.75


# Buffers --------------------------------------------------------------------------------------------------------------


def faults(config: QueueConfig, queueing: Queueing = Queueing.LOSSLESS) -> list[str]:
    return list(lossless.faults(config, queueing, TRUE_RATE))


@pytest.mark.parametrize("queueing", Queueing)
@pytest.mark.parametrize("flow_control", FlowControl)
def test_the_defaults_fit_a_true_link(queueing: Queueing, flow_control: FlowControl) -> None:
    config = QueueConfig(flow_control=flow_control)
    assert list(lossless.faults(config, queueing, TRUE_RATE)) == list(lossless.faults(config, queueing, SMALL)) == []


def test_credits_must_cover_the_round_trip_and_some_frames() -> None:
    needed = 200 * 2 * 1000 // 8 + 3 * 4214
    assert faults(QueueConfig(shared_buffer=InputBuffer(credits=needed))) == []
    (fault,) = faults(QueueConfig(shared_buffer=InputBuffer(credits=needed - 1)))
    assert fault == (
        f"queues.shared_buffer.credits: {needed - 1} B is less than {needed} B, which a link of 200 Gbit/s needs for "
        "its round trip of 2 us and some frames of 4214 B; raise it"
    )


def test_a_longer_return_needs_more() -> None:
    (fault,) = faults(QueueConfig(return_time=10e-6))
    assert "less than 287642 B" in fault


def test_pfc_needs_room_below_and_above_its_thresholds() -> None:
    tight = InputBuffer(xoff=64 * 1024, xon=40_000, headroom=40_000)
    found = faults(QueueConfig(flow_control=FlowControl.PFC, shared_buffer=tight))
    assert [fault.split(":")[0] for fault in found] == ["queues.shared_buffer.xon", "queues.shared_buffer.headroom"]
    with pytest.raises(ValueError, match=r"xon 99 B is above xoff 98 B"):
        InputBuffer(xoff=98, xon=99)


def test_what_only_other_queueings_use_is_no_fault() -> None:
    small = InputBuffer(credits=1)
    assert faults(QueueConfig(shared_buffer=small), Queueing.SHARED) == []
    assert faults(QueueConfig(shared_buffer=small), Queueing.LOSSLESS_LANES) == []


def test_every_lane_needs_its_credits() -> None:
    lanes = QueueConfig().lanes
    lanes = lanes | {"nccl": LaneConfig(share=0.15, credits=1000, service_levels=["nccl"])}
    (fault,) = faults(QueueConfig(lanes=lanes), Queueing.LOSSLESS_LANES)
    assert fault.startswith("queues.lanes.nccl.credits: 1000 B is less than")


def test_what_arbitration_cannot_express_is_told() -> None:
    lanes = {
        "most": LaneConfig(share=0.9, ceiling=0.95, service_levels=["hfreduce", "nccl", "other", "control"]),
        "least": LaneConfig(share=0.001, service_levels=["storage"]),
    }
    found = faults(QueueConfig(lanes=lanes), Queueing.LOSSLESS_LANES)
    assert [fault.split(":")[0] for fault in found] == ["queues.lanes.least.share", "queues.lanes.most.ceiling"]


# Where it can run -----------------------------------------------------------------------------------------------------


def test_a_kernel_that_takes_no_modules_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "why_not_on_host", lambda: "it takes none")
    with pytest.raises(UsageError, match=r"queueing lossless cannot run here: it takes none"):
        lossless.require(NAMESPACE, Queueing.SHARED, Queueing.LOSSLESS)
    lossless.require(NAMESPACE, Queueing.SHARED, Queueing.LANES)


def test_switching_in_userspace_is_a_reason_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "why_not_on_host", lambda: None)
    monkeypatch.setattr(lossless, "find_datapath", lambda: Datapath.USERSPACE)
    reason = lossless.why_not(NAMESPACE)
    assert reason is not None
    assert "userspace" in reason
    monkeypatch.setattr(lossless, "find_datapath", lambda: Datapath.KERNEL)
    assert lossless.why_not(NAMESPACE) is None


def test_a_guest_without_modules_says_how_to_build_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabric.world.virtual.kernel.find", lambda: None)
    with pytest.raises(UsageError, match="fabric virtual build"):
        lossless.require(VIRTUAL, Queueing.LOSSLESS_LANES)
