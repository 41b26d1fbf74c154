"""Lossless queueing: how every port becomes a ``vl``, which buffers its links need, and where it can run.

Its queues are those of the project's own kernel module (:mod:`fabric.world.kernel_api.modules`), which have the link's
delay in them. Frames must stay in the kernel from port to port: a switch that takes them into a process of its own and
sends copies would release their room in an input buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabric.errors import UsageError
from fabric.model.lanes import (
    HIGH_LIMIT_BYTES,
    MANAGEMENT_DSCP,
    TRIMMED_BYTES,
    FlowControl,
    InputBuffer,
    Lane,
    LanePlan,
    QueueConfig,
    Queueing,
    ServiceLevel,
    plan_lanes,
)
from fabric.model.network import Fabric, Link
from fabric.queueing import vl
from fabric.units import format_rate, format_time
from fabric.world.datapath import Datapath, find_datapath
from fabric.world.engine import Engine
from fabric.world.engines import current_engine
from fabric.world.kernel_api import modules

_MOST_WEIGHT = 255
_OWN_QUEUE_BYTES = 2**30
"""A NIC drops none of its host's own frames."""
_FRAMES_IN_LOOP = 3
"""A frame holds room from the moment that it is begun to be sent until it has left the other end: two frames' times and
the way there and back; one more, since room comes in whole frames."""
_FRAMES_AFTER_STOP = 2
"""One was begun when the word to stop came, one was just arriving when it was given."""


# Where it can run ----------------------------------------------------------------------------------------------------


def why_not(engine: Engine) -> str | None:
    """Return why lossless queueing cannot run in an engine on this machine, with what would mend it; None: it can."""
    if reason := engine.why_no_modules():
        return reason
    if not engine.has_own_kernel and find_datapath() is not Datapath.KERNEL:
        return (
            "Open vSwitch switches in userspace here, where frames lose their hold on input buffers; "
            "use the virtual engine (--engine virtual), or a kernel with the module openvswitch"
        )
    return None


def require(engine: Engine, *queueings: Queueing) -> None:
    """Raise UsageError with the reason if one of these queueings cannot run in an engine on this machine."""
    lossless = [queueing.value for queueing in queueings if queueing.is_of_vl]
    if lossless and (reason := why_not(engine)):
        raise UsageError(f"queueing {', '.join(lossless)} cannot run here: {reason}")


def provide() -> None:
    """Make the qdisc known to the kernel of this world, building its module if need be. Raises EmulationError."""
    if modules.is_loaded():
        return
    modules.load(current_engine().module(modules.VL))


# What a port is ------------------------------------------------------------------------------------------------------


def vl_number(lane: Lane) -> int:
    """Return the number of a lane's VL."""
    return lane.number - 1


def lane_names(plan: LanePlan) -> dict[int, str]:
    """Return the name of each lane by the number of its virtual lane."""
    return {vl_number(lane): lane.name for lane in plan.lanes}


def vl_port(
    plan: LanePlan, rate_bps: int, delay_ns: int, *, marks: bool = False, to_switch: bool = False
) -> vl.VlConfig:
    """Return the port of a link under a plan of ``vl``; ``marks``: it is a switch's, which also has the watchdog, drops
    what waits for too long, and trims; ``to_switch``: its link leads to one, which may cut through."""
    control, ahead = plan.control, plan.for_acknowledgements
    lane_of_dscp = {level.dscp: vl_number(lane) for lane in plan.lanes for level in lane.levels}
    return vl.VlConfig(
        rate_bps=rate_bps,
        buffers={vl_number(lane): _buffer(plan, lane, marks) for lane in plan.lanes},
        flow_control=vl.FlowControlMode[plan.flow_control.name if plan.queueing.is_lossless else "LOSSY"],
        low=[vl.ArbitrationEntry(vl_number(lane), weight) for lane, weight in weights(plan).items()],
        high=[] if control is None else [vl.ArbitrationEntry(vl_number(control), 1)],
        high_limit=HIGH_LIMIT_BYTES // vl.HIGH_LIMIT_BYTES,
        lane_of_dscp=lane_of_dscp | {MANAGEMENT_DSCP: vl.MANAGEMENT_LANE},
        default_lane=vl_number(plan.lane_of(ServiceLevel.OTHER)),
        control_lane=None if ahead is None else vl_number(ahead),
        delay_ns=delay_ns,
        return_ns=delay_ns if plan.return_ns is None else plan.return_ns,
        watchdog_ns=(plan.watchdog_ns or 0) if marks else 0,
        trim_bytes=TRIMMED_BYTES if marks and plan.queueing is Queueing.TRIMMED else 0,
        trim_dscp=ServiceLevel.CONTROL.dscp,
        lifetime_ns=(plan.lifetime_ns or 0) if marks else 0,
        framing_bytes=plan.framing_bytes,
        cut_through_bytes=(plan.cut_through_bytes or 0) if to_switch else 0,
    )


def weights(plan: LanePlan) -> dict[Lane, int]:
    """Return the weight of each lane of low priority: as its share is to the largest, which has 255."""
    lanes = [lane for lane in plan.with_share if not lane.is_control]
    largest = max(lane.share for lane in lanes)
    return {lane: round(_MOST_WEIGHT * lane.share / largest) for lane in lanes}


def _buffer(plan: LanePlan, lane: Lane, marks: bool) -> vl.LaneBuffer:
    if not plan.queueing.is_lossless:
        made = vl.LaneBuffer(limit_bytes=lane.limit_bytes if marks and lane.limit_bytes else _OWN_QUEUE_BYTES)
        return made.marked(lane.marking) if marks and lane.marking is not None else made
    if lane.buffer is None:
        return vl.LaneBuffer()
    made = vl.LaneBuffer(credit_bytes=lane.buffer.credits)
    if plan.flow_control is FlowControl.PFC:
        sizes = lane.buffer
        made = vl.LaneBuffer(xoff_bytes=sizes.xoff, xon_bytes=sizes.xon, headroom_bytes=sizes.headroom)
    return made.marked(lane.marking) if marks and lane.marking is not None else made


# What a fabric's links need ------------------------------------------------------------------------------------------


def faults(config: QueueConfig, queueing: Queueing, fabric: Fabric) -> Iterator[str]:
    """Yield the faults of a config in a queueing: what it does not have, and of a lossless one what is impossible,
    lowers a link's rate or loses frames."""
    if config.framing and not queueing.is_of_vl:
        yield f"queues.framing: {queueing.value} has none; remove it, or play lossless, lossless_lanes or trimmed"
    if config.cut_through and not queueing.is_lossless:
        yield f"queues.cut_through: {queueing.value} has none; remove it, or play lossless or lossless_lanes"
    if not queueing.is_lossless:
        return
    if queueing.has_lanes:
        yield from _lane_faults(config)
    plan = plan_lanes(config, queueing)
    worst = max(fabric.links, key=lambda link: loop_bytes(link, plan))
    for lane in plan.with_share:
        assert lane.buffer is not None, "plan_lanes gives every lane with a share one"
        key = f"queues.lanes.{lane.name}" if queueing.has_lanes else "queues.shared_buffer"
        for name, size, least in _least(plan, lane.buffer, worst, fabric.frame_bytes):
            if size < least:
                yield f"{key}.{name}: {size} B is less than {least} B, {_why(plan, worst, fabric)}; raise it"


def loop_bytes(link: Link, plan: LanePlan) -> int:
    """Return what a link sends while a bit goes there and the news of room comes back."""
    return_ns = link.delay_ns if plan.return_ns is None else plan.return_ns
    return -(-link.rate_bps * (link.delay_ns + return_ns) // (8 * 10**9))


def _least(plan: LanePlan, buffer: InputBuffer, link: Link, frame_bytes: int) -> list[tuple[str, int, int]]:
    """Return key, size and least size of each part of a buffer that flow control uses."""
    loop = loop_bytes(link, plan)
    full_rate = _FRAMES_IN_LOOP * frame_bytes + loop
    if plan.flow_control is FlowControl.CREDIT:
        return [("credits", buffer.credits, full_rate)]
    headroom = _FRAMES_AFTER_STOP * frame_bytes + loop
    return [("xon", buffer.xon, full_rate), ("headroom", buffer.headroom, headroom)]


def _why(plan: LanePlan, link: Link, fabric: Fabric) -> str:
    return_ns = link.delay_ns if plan.return_ns is None else plan.return_ns
    round_trip = format_time((link.delay_ns + return_ns) / 1e9)
    return (
        f"which a link of {format_rate(link.rate_bps)} needs for its round trip of {round_trip} "
        f"and some frames of {fabric.frame_bytes} B"
    )


def _lane_faults(config: QueueConfig) -> Iterator[str]:
    if len(config.lanes) > vl.DATA_LANES:
        yield f"queues.lanes: {len(config.lanes)} lanes exceed InfiniBand's {vl.DATA_LANES} for data; use fewer"
    plan = plan_lanes(config, Queueing.LOSSLESS_LANES)
    for lane, weight in weights(plan).items():
        if weight < 1:
            least = f"less than 1/{2 * _MOST_WEIGHT} of the largest, which no weight expresses"
            yield f"queues.lanes.{lane.name}.share: {lane.share} is {least}; raise it"
    for lane in plan.with_share:
        if lane.ceiling < 1:
            yield f"queues.lanes.{lane.name}.ceiling: InfiniBand's arbitration has no ceilings; remove it"
