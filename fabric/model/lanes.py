"""Service Levels and Virtual Lanes: which traffic waits in which queue, and what share of a link each queue has.

InfiniBand's terms: a packet carries a Service Level (SL); a port maps it to a Virtual Lane (VL), a queue with a share
of the link. Here the DSCP of an IP packet carries the SL: that of the five built-in ones is the class selector
``SL << 3``, and a config may add more (``queues.service_levels``). Every port of the fabric, of hosts and of switches
alike, has one queue per lane. Shares are of the link's rate; a lane may borrow what others
leave idle up to its ceiling. The paper gives no shares (arXiv 2408.14158, VI-A1): they are config.

In a lossless fabric a lane may send only while the input buffer at the other end of its link has room: by InfiniBand's
credits, or by PFC, which RoCE fabrics have in their place. There shares are weights of InfiniBand's arbitration, the
lane of control messages is in its table of high priority, and the management lane (VL 15) goes before all and is never
subject to flow control.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field, model_validator

from fabric.config import SizeBytes, Strict, TimeS, require_none
from fabric.model.marking import Marking

CONTROL = "control"
SHARED = "shared"
LOSSLESS = "lossless"
TRIMMED = "trimmed"
MANAGEMENT = "management"
MANAGEMENT_NUMBER = 16
"""The number of VL 15: a lane's number is that of its VL plus one."""
MANAGEMENT_DSCP = 56
"""Class selector 7, network control (RFC 4594): data can never block it."""
TRIMMED_BYTES = 84
"""What a switch leaves of a trimmed IP packet: the headers of IPv4, UDP and of messages (``messages.h``)."""
HIGH_LIMIT_BYTES = 4096
"""Bytes that the control lane may send between two frames of data, rounded up to frames: 62 acknowledgements."""


@dataclass(frozen=True)
class ServiceLevel:
    """A kind of traffic: its name in configs, tables and figures, and the DSCP that carries it. Data never starves
    CONTROL."""

    label: str
    dscp: int

    OTHER: ClassVar[ServiceLevel]
    STORAGE: ClassVar[ServiceLevel]
    NCCL: ClassVar[ServiceLevel]
    HFREDUCE: ClassVar[ServiceLevel]
    CONTROL: ClassVar[ServiceLevel]

    @property
    def tos(self) -> int:
        """The IP TOS byte for ``IP_TOS`` and ``iperf3 -S``."""
        return self.dscp << 2


SERVICE_LEVELS = tuple(
    ServiceLevel(label, number << 3)
    for label, number in (("other", 0), ("storage", 1), ("nccl", 2), ("hfreduce", 3), (CONTROL, 6))
)
"""The built-in ones, by their SL."""
ServiceLevel.OTHER, ServiceLevel.STORAGE, ServiceLevel.NCCL = SERVICE_LEVELS[:3]
ServiceLevel.HFREDUCE, ServiceLevel.CONTROL = SERVICE_LEVELS[3:]


def level_of_dscp(dscp: int, levels: Sequence[ServiceLevel] = SERVICE_LEVELS) -> ServiceLevel:
    """Return the service level that a DSCP carries; OTHER for every DSCP that is none's."""
    return next((level for level in levels if level.dscp == dscp), ServiceLevel.OTHER)


DATA_LEVELS = (ServiceLevel.HFREDUCE, ServiceLevel.NCCL, ServiceLevel.STORAGE, ServiceLevel.OTHER)
"""The four kinds of data traffic of Fire-Flyer 2."""
MOST_LANES = MANAGEMENT_NUMBER - 1
"""What a port carries: InfiniBand's data lanes, VL 0 to 14."""
LevelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=20)]


class PortLane(NamedTuple):
    """A lane of a port, both by the names that users and results have for them: ``z0l03:7``, ``storage``."""

    port: str
    lane: str

    def __str__(self) -> str:
        return f"{self.port} {self.lane}"


class Queueing(str, Enum):
    """How a port queues: one queue or lanes; frames without room are dropped, not sent (lossless), or trimmed.

    ``lossless`` has one data lane for everything, acknowledgements included, as InfiniBand's travel with data.
    ``trimmed`` has one, too, and a control lane ahead of it: a datagram without room loses its payload, and what is
    left goes there, with what carries its service level. Other frames are dropped.
    """

    SHARED = "shared"
    LANES = "lanes"
    LOSSLESS = "lossless"
    LOSSLESS_LANES = "lossless_lanes"
    TRIMMED = "trimmed"

    @property
    def is_lossless(self) -> bool:
        """Whether a lane without room at the other end of its link is paused."""
        return self in (Queueing.LOSSLESS, Queueing.LOSSLESS_LANES)

    @property
    def is_of_vl(self) -> bool:
        """Whether ports are of the qdisc ``vl``, links' delays included, instead of HTB and netem."""
        return self.is_lossless or self is Queueing.TRIMMED

    @property
    def has_lanes(self) -> bool:
        """Whether kinds of traffic have queues of their own."""
        return self in (Queueing.LANES, Queueing.LOSSLESS_LANES)

    @property
    def words(self) -> str:
        """Its name in tables, after "in"."""
        words = {
            Queueing.SHARED: "one shared queue",
            Queueing.LANES: "lanes",
            Queueing.LOSSLESS: "one lossless lane",
            Queueing.LOSSLESS_LANES: "lossless lanes",
            Queueing.TRIMMED: "one trimmed queue",
        }
        return words[self]


class FlowControl(str, Enum):
    """How the receiving end of a link pauses a lane for which it has no room."""

    CREDIT = "credit"
    PFC = "pfc"


class Acknowledgements(str, Enum):
    """Which lane TCP's segments without data wait in, where there are lanes.

    ``with_data``: that of their service level, as InfiniBand's acknowledgements travel in the lane of what they
    acknowledge. ``control``: the control lane, and ICMP with them, as simulators of RoCE send them at the highest
    priority. There they overtake data that goes the same way. On a connection with data both ways, data that waited for
    longer than a window of the other way takes then acknowledges what is so old that TCP drops it (RFC 5961, 5.2).
    """

    WITH_DATA = "with_data"
    CONTROL = "control"


class InputBuffer(Strict):
    """A lane's input buffer at the other end of a link, in lossless queueing.

    InfiniBand switches have tens of KB per port and lane. 64 KiB cover the round trip of 2 us of a link of 200 Gbit/s
    (50,000 B) and three frames of 4,214 B; PFC needs the same below xon, not to run dry, and again above xoff, not to
    overflow. The needs of each link are checked.
    """

    credits: Annotated[SizeBytes, Field(gt=0, lt=2**31)] = Field(
        default=64 * 1024,
        description=(
            "Size of the input buffer with credit flow control. Raise it for longer or faster links, which else "
            "run dry."
        ),
    )
    xoff: Annotated[SizeBytes, Field(gt=0, lt=2**31)] = Field(
        default=96 * 1024, description="PFC pauses the lane when more than this waits in the buffer."
    )
    xon: Annotated[SizeBytes, Field(gt=0, lt=2**31)] = Field(
        default=64 * 1024,
        description="PFC resumes the lane when no more than this waits. Too low, and the link idles after a pause.",
    )
    headroom: Annotated[SizeBytes, Field(gt=0, lt=2**31)] = Field(
        default=64 * 1024,
        description="Room above `xoff` for frames that arrive until the sender stops. Raise it for longer links.",
    )

    @model_validator(mode="after")
    def _verify_order(self) -> InputBuffer:
        if self.xon > self.xoff:
            raise ValueError(f"xon {self.xon} B is above xoff {self.xoff} B, and the lane would never stop; lower it")
        return self


class LaneConfig(InputBuffer):
    """One Virtual Lane."""

    share: Annotated[float, Field(gt=0, le=1)] = Field(
        description="Fraction of the link that the lane gets at least while it has frames waiting."
    )
    ceiling: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="Fraction of the link that the lane never exceeds, even on an idle link."
    )
    limit: Annotated[SizeBytes, Field(gt=0, lt=2**31)] = Field(
        default=256 * 1024,
        description=(
            "Largest backlog at a switch's port, beyond which frames are dropped (lossy queueing). A host's own "
            "port holds all that its sockets send."
        ),
    )
    marking: Marking | None = Field(
        default=None, description="ECN marking of this lane, where it differs from `queues.marking`."
    )
    service_levels: list[str] = Field(
        description="Service Levels that use the lane. Each Service Level is in exactly one lane."
    )

    @property
    def buffer(self) -> InputBuffer:
        """Its input buffer alone."""
        return InputBuffer(credits=self.credits, xoff=self.xoff, xon=self.xon, headroom=self.headroom)


def _default_lanes() -> dict[str, LaneConfig]:
    def lane(share: float, *levels: ServiceLevel) -> LaneConfig:
        return LaneConfig(share=share, service_levels=[level.label for level in levels])

    return {
        "hfreduce": lane(0.40, ServiceLevel.HFREDUCE),
        "nccl": lane(0.15, ServiceLevel.NCCL),
        "storage": lane(0.35, ServiceLevel.STORAGE),
        "other": lane(0.05, ServiceLevel.OTHER),
        CONTROL: lane(0.05, ServiceLevel.CONTROL),
    }


class QueueConfig(Strict):
    """The queues of every port.

    ``jitter`` is for virtual time, where only wires take time, so that senders stay in step and the same one loses
    every time. It follows Floyd and Jacobson ("On traffic phase effects in packet-switched gateways", 1992): a frame's
    time at most, at the source, before the queue. It also separates the starts of flows, and switches and links stay
    exact.
    """

    service_levels: dict[LevelName, Annotated[int, Field(ge=1, le=63)]] = Field(
        default_factory=dict,
        description=(
            "Service Levels beside the built-in ones, by name, with the DSCP that carries each. Jobs name them in "
            "`service_level`, and each needs a lane in `lanes`."
        ),
    )
    lanes: dict[str, LaneConfig] = Field(
        default_factory=_default_lanes, description="The lanes of `lanes` and `lossless_lanes` queueing, by name."
    )
    shared_limit: Annotated[SizeBytes, Field(gt=0, lt=2**31)] = Field(
        default=1024 * 1024,
        description="Largest backlog of the one queue at a switch's port, in `shared` and `trimmed` queueing.",
    )
    shared_buffer: InputBuffer = Field(
        default_factory=InputBuffer, description="Input buffer of the one data lane, in `lossless` queueing."
    )
    flow_control: Annotated[FlowControl, Field(strict=False)] = Field(
        default=FlowControl.CREDIT,
        description="How lossless lanes are paused: by credits as InfiniBand's, or by PFC as Ethernet's.",
    )
    return_time: Annotated[TimeS, Field(ge=0, le=1)] | None = Field(
        default=None, description="Time that credits take to return to the sender. Without it, the delay of the link."
    )
    watchdog: Annotated[TimeS, Field(gt=0, le=1)] | None = Field(
        default=None,
        description=(
            "Time after which a lossless lane of a switch that stands still drops what it has and what comes, until "
            "there has been room for as long again (PFC watchdog). Without it, it never drops."
        ),
    )
    lifetime: Annotated[TimeS, Field(gt=0, le=1)] | None = Field(
        default=None,
        description=(
            "Longest time for which the first frame of a lossless lane of a switch may lack room at the other end; "
            "then it is dropped (InfiniBand's HOQLife). Without it, it waits until there is room."
        ),
    )
    framing: Annotated[SizeBytes, Field(ge=0, lt=2**16)] = Field(
        default=0,
        description=(
            "What each frame takes of the wire beside its own bytes: 24 B with Ethernet's preamble, FCS and gap. In "
            "lossless and trimmed queueing."
        ),
    )
    cut_through: Annotated[SizeBytes, Field(gt=0, lt=2**16)] | None = Field(
        default=None,
        description=(
            "How much of a frame has to come before a switch may send it on, in lossless queueing. Without it, the "
            "whole frame (store and forward)."
        ),
    )
    marking: Marking | None = Field(
        default=None,
        description="ECN marking at every switch port, in every lane of data. Without it, nothing is marked.",
    )
    acknowledgements: Annotated[Acknowledgements, Field(strict=False)] = Field(
        default=Acknowledgements.WITH_DATA,
        description="Lane of TCP's segments without data: that of their Service Level, or the control lane.",
    )
    jitter: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0,
        description=(
            "Longest random wait of each frame that a host sends, in times of a full frame on its link; order "
            "stays. Keeps senders out of step in virtual time."
        ),
    )

    @property
    def levels(self) -> tuple[ServiceLevel, ...]:
        """All Service Levels, the built-in ones first."""
        return (*SERVICE_LEVELS, *(ServiceLevel(name, dscp) for name, dscp in self.service_levels.items()))

    @property
    def data_levels(self) -> tuple[ServiceLevel, ...]:
        """Those of data: all but CONTROL."""
        return (*DATA_LEVELS, *self.levels[len(SERVICE_LEVELS) :])

    @property
    def promised(self) -> dict[str, float]:
        """The fraction of every link that each Service Level has in lanes, by its name, whatever the others send."""
        total = sum(lane.share for lane in self.lanes.values())
        return {label: lane.share / total for lane in self.lanes.values() for label in lane.service_levels}

    @property
    def marks(self) -> bool:
        """Whether any lane marks."""
        return self.marking is not None or any(lane.marking for lane in self.lanes.values())

    @model_validator(mode="after")
    def _verify(self) -> QueueConfig:
        require_none(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        if len(self.lanes) > MOST_LANES:
            yield f"lanes: {len(self.lanes)}; a port has {MOST_LANES} at most, so map several service levels to one"
        total = sum(lane.share for lane in self.lanes.values())
        if total > 1 + 1e-9:
            yield f"shares add up to {total:.3f}, above 1; lower some"
        for name, lane in self.lanes.items():
            if lane.ceiling < lane.share:
                yield f"{name}: ceiling {lane.ceiling} is below share {lane.share}; raise it"
        alone = any(lane.service_levels == [ServiceLevel.CONTROL.label] for lane in self.lanes.values())
        if self.acknowledgements is Acknowledgements.CONTROL and not alone:
            words = f"no lane has the service level {ServiceLevel.CONTROL.label!r} alone"
            yield f"acknowledgements: control: {words}; give it one, or leave them with_data"
        yield from self._own_level_faults()
        yield from self._service_level_faults()

    def _own_level_faults(self) -> Iterator[str]:
        taken = {level.dscp: level.label for level in SERVICE_LEVELS} | {MANAGEMENT_DSCP: MANAGEMENT}
        names = {level.label for level in SERVICE_LEVELS}
        for name, dscp in self.service_levels.items():
            if name in names:
                yield f"service_levels: {name!r} is built in; choose another name"
            if dscp in taken:
                yield f"service_levels: {name}: DSCP {dscp} is {taken[dscp]}'s; choose one of the others"
            taken.setdefault(dscp, name)

    def _service_level_faults(self) -> Iterator[str]:
        known = {level.label for level in self.levels}
        mapped = [label for lane in self.lanes.values() for label in lane.service_levels]
        for label in sorted(set(mapped) - known):
            add = "or add it to service_levels with a DSCP"
            yield f"service level {label!r} does not exist; use {', '.join(sorted(known))}, {add}"
        for label in sorted(known):
            if mapped.count(label) != 1:
                yield f"service level {label!r} is mapped to {mapped.count(label)} lanes; map it to exactly one"


@dataclass(frozen=True)
class Lane:
    """A queue of a port: its name, its place in the port's tree (from 1), and its rates as fractions of the link.

    The management lane has a share of 0 and takes what it needs. ``buffer`` is for lossless queueing only. ``marking``
    is for ports of switches only.
    """

    name: str
    number: int
    share: float
    ceiling: float
    limit_bytes: int
    levels: tuple[ServiceLevel, ...]
    buffer: InputBuffer | None = None
    marking: Marking | None = None

    @property
    def is_control(self) -> bool:
        """Whether control messages wait here, ahead of data."""
        return ServiceLevel.CONTROL in self.levels and len(self.levels) == 1


@dataclass(frozen=True)
class LanePlan:
    """The queues that every port has under one queueing, in order of their numbers.

    ``flow_control``, ``return_ns`` (None: each link's delay), ``watchdog_ns``, ``lifetime_ns`` and
    ``cut_through_bytes`` are for lossless queueing only, ``framing_bytes`` for that and trimmed queueing.
    ``jitter_frames`` is the longest random wait of a frame that a host sends, in times of a full frame.
    """

    queueing: Queueing
    lanes: tuple[Lane, ...]
    flow_control: FlowControl = FlowControl.CREDIT
    return_ns: int | None = None
    jitter_frames: float = 0.0
    acknowledgements: Acknowledgements = Acknowledgements.WITH_DATA
    watchdog_ns: int | None = None
    lifetime_ns: int | None = None
    framing_bytes: int = 0
    cut_through_bytes: int | None = None

    @property
    def levels(self) -> tuple[ServiceLevel, ...]:
        """All service levels, in the order of their DSCPs."""
        return tuple(sorted((level for lane in self.lanes for level in lane.levels), key=lambda level: level.dscp))

    def lane_of(self, level: ServiceLevel) -> Lane:
        """Return the lane in which a service level waits."""
        return next(lane for lane in self.lanes if level in lane.levels)

    def lane_of_label(self, label: str) -> Lane:
        """Return the lane in which the service level of a name waits."""
        return next(lane for lane in self.lanes if any(level.label == label for level in lane.levels))

    def named(self, name: str) -> Lane:
        """Return the lane of that name. Raises KeyError if there is none."""
        return {lane.name: lane for lane in self.lanes}[name]

    @property
    def control(self) -> Lane | None:
        """The lane of control messages alone, if there is one."""
        return next((lane for lane in self.lanes if lane.is_control), None)

    @property
    def for_acknowledgements(self) -> Lane | None:
        """The lane of TCP's segments without data and of ICMP; None: that of their DSCP."""
        return self.control if self.acknowledgements is Acknowledgements.CONTROL else None

    @property
    def with_share(self) -> tuple[Lane, ...]:
        """The lanes that compete for the link: all but the management lane."""
        return tuple(lane for lane in self.lanes if lane.share > 0)

    def promised_shares(self, frame_bytes: int) -> dict[str, float]:
        """Return each lane's fraction of the link while all are full with frames of that size.

        What the shares leave of the link is lent to control first, up to its ceiling, and then to the others in
        proportion to their shares. In lossless lanes, control goes first, by HIGH_LIMIT_BYTES between two frames of the
        others, which have the rest by their shares.
        """
        if not self.queueing.is_of_vl:
            return self._lent()
        if self.control is None:
            total = sum(lane.share for lane in self.with_share)
            return {lane.name: lane.share / total for lane in self.with_share}
        first = math.ceil(HIGH_LIMIT_BYTES / frame_bytes)
        total = sum(lane.share for lane in self.with_share if not lane.is_control) * (first + 1)
        return {lane.name: first / (first + 1) if lane.is_control else lane.share / total for lane in self.with_share}

    def _lent(self) -> dict[str, float]:
        """Return each lane's fraction: its share, and what it borrows before it is at its ceiling."""
        given = {lane: lane.share for lane in self.with_share}
        for lanes in ([lane for lane in given if lane.is_control], [lane for lane in given if not lane.is_control]):
            borrowing = lanes
            while (spare := 1 - sum(given.values())) > 1e-9 and borrowing:
                total = sum(lane.share for lane in borrowing)
                for lane in borrowing:
                    given[lane] = min(lane.ceiling, given[lane] + spare * lane.share / total)
                borrowing = [lane for lane in borrowing if given[lane] < lane.ceiling - 1e-9]
        return {lane.name: fraction for lane, fraction in given.items()}


def plan_lanes(config: QueueConfig, queueing: Queueing) -> LanePlan:
    """Return the queues of a port: one for all service levels, or those of ``config.lanes``."""
    lanes = _lanes(config) if queueing.has_lanes else (_only_lane(config, queueing),)
    if queueing is Queueing.TRIMMED:
        lanes = _trimmed_lanes(config)
    if not queueing.is_of_vl:
        return LanePlan(queueing, lanes, jitter_frames=config.jitter, acknowledgements=config.acknowledgements)
    management = Lane(MANAGEMENT, MANAGEMENT_NUMBER, 0.0, 1.0, 0, ())
    return LanePlan(
        queueing,
        (*lanes, management),
        config.flow_control,
        return_ns=_ns(config.return_time),
        jitter_frames=config.jitter,
        acknowledgements=config.acknowledgements,
        watchdog_ns=_ns(config.watchdog),
        lifetime_ns=_ns(config.lifetime),
        framing_bytes=config.framing,
        cut_through_bytes=config.cut_through,
    )


def _ns(time_s: float | None) -> int | None:
    return None if time_s is None else round(time_s * 1e9)


def _only_lane(config: QueueConfig, queueing: Queueing) -> Lane:
    name = LOSSLESS if queueing.is_lossless else SHARED
    return Lane(name, 1, 1.0, 1.0, config.shared_limit, config.levels, config.shared_buffer, config.marking)


def _trimmed_lanes(config: QueueConfig) -> tuple[Lane, ...]:
    """Return the lane of data, and that of control and of what is left of trimmed packets, whose limit is that of the
    lane ``control``."""
    data = tuple(level for level in config.levels if level != ServiceLevel.CONTROL)
    limit_bytes = config.lanes[CONTROL].limit if CONTROL in config.lanes else config.shared_limit
    return (
        Lane(TRIMMED, 1, 0.9, 1.0, config.shared_limit, data, None, config.marking),
        Lane(CONTROL, 2, 0.1, 1.0, limit_bytes, (ServiceLevel.CONTROL,)),
    )


def _lanes(config: QueueConfig) -> tuple[Lane, ...]:
    by_label = {level.label: level for level in config.levels}
    return tuple(
        Lane(
            name,
            number,
            lane.share,
            lane.ceiling,
            lane.limit,
            tuple(by_label[text] for text in lane.service_levels),
            lane.buffer,
            lane.marking or (None if name == CONTROL else config.marking),
        )
        for number, (name, lane) in enumerate(config.lanes.items(), start=1)
    )
