"""What programs and the qdisc ``vl`` say to each other over rtnetlink: the one place where that is declared.

``python -m fabric.queueing.vl_abi`` writes the C side of it, ``fabric/kernel/vl_abi.h``, which is kept with the sources
so that the module builds without Python. All numbers are in the machine's byte order. VERSION is raised when anything
here changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated

from fabric.model.marking import Marking
from fabric.queueing.c_struct import U8, U16, U32, U64, Numbering, StructLayout, definition

HEADER = Path(__file__).resolve().parents[1] / "kernel" / "vl_abi.h"

VERSION = 7
LANES = 16
MANAGEMENT_LANE = 15
DSCPS = 64
MOST_ENTRIES = 64
NO_LANE = 255
WEIGHT_BYTES = 64
HIGH_LIMIT_BYTES = 4096
HIGH_UNLIMITED = 255
MOST_DRAWS = 24
WEIGHT_ONE = 1000
MOST_DRAW_WEIGHT = 100 * WEIGHT_ONE
MOST_BUDGET = 10**15
RESERVED_PIECE_BYTES = 65536
BUDGETS_FILE = "vl_budgets"


class FlowControlMode(Enum):
    """How the end of a link keeps frames that it has no room for from being sent."""

    LOSSY = 0
    CREDIT = 1
    PFC = 2


class Option(IntEnum):
    """The attributes in TCA_OPTIONS."""

    PORT = 1
    DSCP = 2
    HIGH = 3
    LOW = 4
    LANES = 5
    DRAWS = 6


class DropCause(IntEnum):
    """Why ``vl`` dropped a frame."""

    LIMIT = 0
    HEADROOM = 1
    TOO_BIG = 2
    LINK_DOWN = 3
    RESET = 4
    NO_MEMORY = 5
    WATCHDOG = 6
    LIFETIME = 7


@dataclass(frozen=True, kw_only=True)
class PortOptions:
    """A port and the link behind it, as the kernel is told."""

    version: Annotated[int, U32]
    mode: Annotated[int, U8]
    control_lane: Annotated[int, U8, "of ICMP and of TCP segments without data or FIN; VL_NO_LANE: as their DSCP says"]
    high_limit: Annotated[int, U8, "in VL_HIGH_LIMIT_BYTES"]
    crosses: Annotated[int, U8, "1: to another guest of the run, by a link that delays by itself (guest_link)"] = 0
    rate_bps: Annotated[int, U64]
    delay_ns: Annotated[int, U64, "from the last bit sent to the last bit received"]
    return_ns: Annotated[int, U64, "from a frame's leaving the other end's buffer until this end knows"]
    jitter_ns: Annotated[int, U64, "a frame waits up to so long, at random, before it may be sent; order stays"]
    watchdog_ns: Annotated[int, U64, "a lane that has stood still for so long drops what it has; 0: it never does"] = 0
    lifetime_ns: Annotated[int, U64, "a frame that lacks room, first in its lane, for so long is dropped; 0: never"] = 0
    paused: Annotated[int, U32, "a bit for each lane that the other end has stopped, whatever room it has"] = 0
    trim_bytes: Annotated[
        int, U16, "VL_LOSSY: to so many, of IP, a UDP datagram without checksum is cut that finds no room"
    ] = 0
    trim_dscp: Annotated[int, U8, "and it goes on with this DSCP; if trim_bytes is 0 it is dropped"] = 0
    reserved: Annotated[int, U8] = 0
    framing_bytes: Annotated[int, U16, "of the wire that each frame takes beside its own"] = 0
    cut_through_bytes: Annotated[
        int, U16, "VL_CREDIT, VL_PFC: once so much of a frame has come, the other end has it; 0: once all has"
    ] = 0
    reserved_too: Annotated[int, U32] = 0


@dataclass(frozen=True)
class ArbitrationEntry:
    """A turn in an arbitration table: ``lane`` may send ``weight`` times 64 bytes."""

    lane: Annotated[int, U8]
    weight: Annotated[int, U8, "in VL_WEIGHT_BYTES"]


@dataclass(frozen=True)
class LaneBuffer:
    """A lane's room. ``limit_bytes``: what may wait in the port (LOSSY). The rest is of the other end's input buffer:
    its size (CREDIT), or when the lane is stopped, goes on, and how much fits in after it was stopped (PFC).

    ``mark_...``: ECN by what waits behind a frame that is being sent. Without ``mark_max_bytes`` nothing is marked."""

    limit_bytes: Annotated[int, U32, "VL_LOSSY: what may wait in this port"] = 0
    credit_bytes: Annotated[int, U32, "VL_CREDIT: the other end's input buffer"] = 0
    xoff_bytes: Annotated[int, U32, "VL_PFC: above this in the other end's input buffer the lane is stopped,"] = 0
    xon_bytes: Annotated[int, U32, "at this it goes on,"] = 0
    headroom_bytes: Annotated[int, U32, "and so much above xoff_bytes there is room for."] = 0
    mark_min_bytes: Annotated[int, U32, "a frame that leaves more than this behind in its lane may be marked,"] = 0
    mark_max_bytes: Annotated[int, U32, "above this it is (0: none is),"] = 0
    mark_probability: Annotated[int, U32, "and at this by so much of 2^32; in between linearly"] = 0

    def marked(self, marking: Marking) -> LaneBuffer:
        """Return the same with frames marked."""
        probability = min(round(marking.pmax * 2**32), 2**32 - 1)
        return replace(self, mark_min_bytes=marking.kmin, mark_max_bytes=marking.kmax, mark_probability=probability)


@dataclass(frozen=True)
class PortHead:
    """How the kernel's answer begins: the port at ``now_ns``, and how many records of each kind follow."""

    version: Annotated[int, U32]
    index: Annotated[int, U32, "of this interface and of the one at the other end"]
    peer_index: Annotated[int, U32]
    lanes: Annotated[int, U32, "how many vl_lane_stats follow"]
    waits: Annotated[int, U32, "how many vl_wait follow those,"]
    all_waits: Annotated[int, U32, "and how many there would be if they had fitted into the answer"]
    mode: Annotated[int, U32]
    link_packets: Annotated[int, U32, "being sent or under way,"]
    link_bytes: Annotated[int, U64, "in no lane's backlog any more"]
    now_ns: Annotated[int, U64, "CLOCK_MONOTONIC"]


@dataclass(frozen=True)
class LaneStats:
    """A lane of a port. Counters are cumulative, in bytes, packets, ns (CLOCK_MONOTONIC); drops by Cause.

    ``sent``: delivered to the other end. ``stalls``: how often the frame in front found no room at the other end;
    ``stalled_ns``: how long the link was free, a frame waited and there was no room; ``stalled_since_ns``: since when
    there has been none, 0 if there is. Of the other end's input buffer: ``buffer_bytes`` is its size, ``used_bytes``
    what of it is taken as far as this end knows, ``buffered_bytes`` what is in it. ``marked``: frames that this port
    marked, those not yet marked by another. ``trimmed``: frames that came for this lane and went on without payload.
    """

    lane: Annotated[int, U32]
    backlog_packets: Annotated[int, U32]
    backlog_bytes: Annotated[int, U64]
    sent_bytes: Annotated[int, U64, "delivered to the other end"]
    sent_packets: Annotated[int, U64]
    dropped_bytes: Annotated[tuple[int, ...], U64.array(len(DropCause), "VL_CAUSES")]
    dropped_packets: Annotated[tuple[int, ...], U64.array(len(DropCause), "VL_CAUSES")]
    stalls: Annotated[int, U64, "how often the frame in front found no room at the other end"]
    stalled_ns: Annotated[int, U64, "how long the link was free, a frame waited, and there was no room"]
    stalled_since_ns: Annotated[int, U64, "since when there has been no room, 0: there is"]
    buffer_bytes: Annotated[int, U64, "the other end's input buffer: its size,"]
    used_bytes: Annotated[int, U64, "what is taken of it, as far as this end knows,"]
    buffered_bytes: Annotated[int, U64, "what is in it"]
    most_buffered_bytes: Annotated[int, U64]
    marked_bytes: Annotated[int, U64, "by this port"]
    marked_packets: Annotated[int, U64]
    trimmed_bytes: Annotated[int, U64, "what this port cut off,"]
    trimmed_packets: Annotated[int, U64, "and of how many"]


@dataclass(frozen=True, kw_only=True)
class Wait:
    """``bytes`` in the input buffer of ``input_lane`` of the interface ``input_index`` wait in ``lane`` of a port."""

    input_index: Annotated[int, U32, "of the interface by which frames came,"]
    input_lane: Annotated[int, U8, "in whose input buffer for this lane they are"]
    lane: Annotated[int, U8, "until this lane of this port has sent them"]
    reserved: Annotated[int, U16] = 0
    bytes: Annotated[int, U64]


@dataclass(frozen=True)
class DrawOptions:
    """A budget that a port's frames draw on, by its number; it comes into being with the first port that names it.

    A frame takes ``weight`` thousandths of its size from it, if it came in by ``input_index`` (0: whatever it came by).
    """

    budget: Annotated[int, U64, "its number, the same in all network namespaces"]
    rate: Annotated[int, U64, "in bytes a second, of the budget as a whole"]
    input_index: Annotated[int, U32, "draws only what came in by this interface, 0: everything"]
    weight: Annotated[int, U32, "what a byte takes, in 1 / VL_WEIGHT_ONE bytes"]


@dataclass(frozen=True)
class Reservation:
    """What a program writes to take bytes of a budget; it waits until they have been given."""

    budget: Annotated[int, U64]
    bytes: Annotated[int, U64]


@dataclass(frozen=True)
class BudgetStats:
    """A budget at ``now_ns``. ``drawn`` is cumulative, in 1 / 1000 bytes, as is how long those who drew had waited."""

    budget: Annotated[int, U64]
    rate: Annotated[int, U64, "in bytes a second"]
    drawn: Annotated[int, U64, "in 1 / VL_WEIGHT_ONE bytes"]
    waited_ns: Annotated[int, U64, "from when frames and programs asked until their turns came, summed up"]
    now_ns: Annotated[int, U64, "CLOCK_MONOTONIC"]


PORT_OPTIONS = StructLayout("vl_port_options", PortOptions)
ENTRY = StructLayout("vl_entry", ArbitrationEntry)
LANE_OPTIONS = StructLayout("vl_lane_options", LaneBuffer)
PORT_STATS = StructLayout("vl_port_stats", PortHead)
LANE_STATS = StructLayout("vl_lane_stats", LaneStats)
WAIT = StructLayout("vl_wait", Wait)
DRAW_OPTIONS = StructLayout("vl_draw_options", DrawOptions)
RESERVATION = StructLayout("vl_reservation", Reservation)
BUDGET_STATS = StructLayout("vl_budget_stats", BudgetStats)
LAYOUTS = (PORT_OPTIONS, ENTRY, LANE_OPTIONS, PORT_STATS, LANE_STATS, WAIT, DRAW_OPTIONS, RESERVATION, BUDGET_STATS)

_CONSTANTS = (
    ("VL_VERSION", VERSION, ""),
    ("VL_LANES", LANES, "InfiniBand's: data lanes 0 to 14 and 15"),
    ("VL_MANAGEMENT_LANE", MANAGEMENT_LANE, "before all others, and never subject to flow control"),
    ("VL_DSCPS", DSCPS, ""),
    ("VL_MOST_ENTRIES", MOST_ENTRIES, "of an arbitration table"),
    ("VL_NO_LANE", NO_LANE, ""),
    ("VL_WEIGHT_BYTES", WEIGHT_BYTES, ""),
    ("VL_HIGH_LIMIT_BYTES", HIGH_LIMIT_BYTES, ""),
    ("VL_HIGH_UNLIMITED", HIGH_UNLIMITED, ""),
    ("VL_MOST_DRAWS", MOST_DRAWS, "budgets that a port draws on"),
    ("VL_WEIGHT_ONE", WEIGHT_ONE, "the weight with which a byte takes a byte"),
    ("VL_MOST_DRAW_WEIGHT", MOST_DRAW_WEIGHT, ""),
    ("VL_MOST_BUDGET", f"{MOST_BUDGET}ULL", "in bytes a second"),
    ("VL_RESERVED_PIECE", RESERVED_PIECE_BYTES, "bytes that a program takes in one turn"),
    ("VL_BUDGETS_FILE", f'"{BUDGETS_FILE}"', "in /proc: write a vl_reservation, read a vl_budget_stats for each"),
)
_MODES = Numbering(
    "vl_mode",
    FlowControlMode,
    "VL_",
    "VL_MODES",
    {
        FlowControlMode.LOSSY: "a lane that is full drops what comes",
        FlowControlMode.CREDIT: "a frame is sent only if the other end has room for it",
        FlowControlMode.PFC: "the other end stops a lane that fills, and lets it go on",
    },
)
_OPTIONS = Numbering(
    "vl_option",
    Option,
    "VL_OPTION_",
    "VL_OPTION_COUNT",
    {
        Option.PORT: "struct vl_port_options",
        Option.DSCP: "__u8[VL_DSCPS]: the lane of each DSCP",
        Option.HIGH: "struct vl_entry[]: the tables of arbitration",
        Option.LANES: "struct vl_lane_options[VL_LANES]",
        Option.DRAWS: "struct vl_draw_options[]; may be left out",
    },
    first_name="VL_OPTION_UNSPEC",
)
_CAUSES = Numbering(
    "vl_cause",
    DropCause,
    "VL_DROP_",
    "VL_CAUSES",
    {
        DropCause.LIMIT: "its lane was full (VL_LOSSY)",
        DropCause.HEADROOM: "the other end's input buffer was full (VL_PFC)",
        DropCause.TOO_BIG: "it would not fit into the other end's input buffer when that is empty",
        DropCause.LINK_DOWN: "it waited, or was under way, when the link went down",
        DropCause.RESET: "the queues were replaced or taken away",
        DropCause.NO_MEMORY: "this machine has no memory left",
        DropCause.WATCHDOG: "its lane had stood still for longer than the watchdog lets it",
        DropCause.LIFETIME: "it had lacked room for longer than the first of a lane may",
    },
)


def header() -> str:
    """Return the C header that says the same."""
    parts = [
        "/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */\n"
        "/* Written by python -m fabric.queueing.vl_abi; change fabric/queueing/vl_abi.py instead. */\n"
        "#ifndef VL_ABI_H\n#define VL_ABI_H",
        "#include <linux/types.h>",
        "\n".join(definition(*constant) for constant in _CONSTANTS),
        _MODES.declaration(),
        "/* TCA_OPTIONS; a change must bring all of them again. */\n" + _OPTIONS.declaration(),
        "/* Why a frame was dropped. */\n" + _CAUSES.declaration(),
        *(layout.declaration() for layout in (PORT_OPTIONS, ENTRY, LANE_OPTIONS)),
        "/* TCA_STATS_APP: a vl_port_stats, vl_lane_stats for each lane in use, then vl_waits. */\n"
        + PORT_STATS.declaration(),
        *(layout.declaration() for layout in (LANE_STATS, WAIT)),
        "/* Budgets: limits that several ports, and programs, share. */\n" + DRAW_OPTIONS.declaration(),
        *(layout.declaration() for layout in (RESERVATION, BUDGET_STATS)),
        "#endif\n",
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    HEADER.write_text(header())
