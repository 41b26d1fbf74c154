from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.errors import EmulationError, UsageError
from fabric.model.marking import Marking
from fabric.queueing import budgets, vl
from fabric.queueing.vl import ArbitrationEntry, DropCause, FlowControlMode, LaneBuffer, VlConfig
from fabric.world.kernel_api import netlink

PORT = VlConfig(10**9, {0: LaneBuffer(limit_bytes=1, credit_bytes=65536, xoff_bytes=2, xon_bytes=1)})


def test_options_are_laid_out_as_the_kernel_reads_them() -> None:
    port = replace(
        PORT,
        lane_of_dscp={8: 1},
        low=[ArbitrationEntry(0, 3), ArbitrationEntry(1, 255)],
        control_lane=15,
        delay_ns=5,
        return_ns=6,
        jitter_ns=7,
        crosses=True,
        watchdog_ns=8,
        paused=frozenset({0, 3}),
        trim_bytes=84,
        trim_dscp=48,
        lifetime_ns=10,
        framing_bytes=24,
        cut_through_bytes=64,
    )
    marking = Marking(kmin=6, kmax=7, pmax=0.5)
    port = replace(port, buffers={0: LaneBuffer(1, 2, 4, 3, 5).marked(marking), 1: LaneBuffer(credit_bytes=9)})
    draws = [budgets.draw(77, 5000, 0.25, 6), budgets.draw(78, 6000)]
    found = dict(netlink.attributes_of(vl.options(port, draws), 0))
    assert found[6] == struct.pack("=QQIIQQII", 77, 5000, 6, 250, 78, 6000, 0, 1000)
    assert found[1] == struct.pack(
        "=IBBBBQQQQQQIHBBHHI", 7, 1, 15, 255, 1, 10**9, 5, 6, 7, 8, 10, 9, 84, 48, 0, 24, 64, 0
    )
    assert found[2] == bytes(8) + b"\1" + bytes(55)
    assert (found[3], found[4]) == (b"", bytes([0, 3, 1, 255]))
    assert len(found[5]) == 16 * 32
    assert found[5][:64] == struct.pack("=16I", 1, 2, 4, 3, 5, 6, 7, 2**31, 0, 9, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate_bps": 0}, r"rate 0 bit/s must be above 0"),
        ({"delay_ns": -1}, r"delay -1 ns must be between 0 and 1000000000"),
        ({"return_ns": 2 * 10**9}, r"return time 2000000000 ns"),
        ({"jitter_ns": -1}, r"jitter -1 ns must be between 0 and 1000000000"),
        ({"watchdog_ns": 2 * 10**9}, r"watchdog 2000000000 ns must be between 0 and 1000000000"),
        ({"lifetime_ns": 2 * 10**9}, r"lifetime 2000000000 ns must be between 0 and 1000000000"),
        ({"framing_bytes": 65536}, r"framing 65536 B must be between 0 and 65535"),
        ({"cut_through_bytes": 64, "flow_control": FlowControlMode.LOSSY}, r"cut-through needs flow control"),
        ({"high_limit": 256}, r"limit of high priority 256"),
        ({"lane_of_dscp": {64: 0}}, r"DSCP 64"),
        ({"lane_of_dscp": {1: 3}}, r"lane 3 is in no arbitration table .*; lane 3: credit_bytes must be above 0"),
        ({"default_lane": 16}, r"lane 16 does not exist"),
        ({"low": [ArbitrationEntry(15, 1)]}, r"low priority table has lane 15"),
        ({"low": [ArbitrationEntry(0, 0)]}, r"lane 0 has weight 0; weights are 1 to 255"),
        ({"low": [ArbitrationEntry(0, 1)] * 65}, r"65 entries, more than 64"),
        ({"buffers": {}}, r"lane 0: credit_bytes must be above 0"),
        ({"buffers": {}, "flow_control": FlowControlMode.LOSSY}, r"lane 0: limit_bytes must be above 0"),
        ({"trim_bytes": 65536}, r"trimming to 65536 B must be between 0 and 65535"),
        ({"trim_dscp": 64}, r"DSCP 64 must be between 0 and 63"),
        (
            {"buffers": {0: LaneBuffer(xoff_bytes=1, xon_bytes=2)}, "flow_control": FlowControlMode.PFC},
            r"xon_bytes 2 must not be above xoff_bytes 1",
        ),
        ({"buffers": {0: LaneBuffer(credit_bytes=1, mark_min_bytes=2)}}, r"marking from 2 to 0 B must be a rising"),
        ({"buffers": {0: LaneBuffer(credit_bytes=2**31)}}, r"sizes must be between 0 and 2147483647"),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_value_and_the_limit(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        vl.options(replace(PORT, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("draws", "words"),
    [
        ([budgets.draw(7, 0)], "budget 7: rate 0 B/s must be between 1 and"),
        ([budgets.draw(7, 1, 0.0001)], "budget 7: weight 0 must be between 1 and 100000 thousandths"),
        ([budgets.draw(7, 1)] * 25, "25 draws exceed 24"),
    ],
)
def test_draws_that_cannot_be_are_refused(draws: list[vl.DrawOptions], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        vl.options(PORT, draws)


def test_the_management_lane_needs_neither_an_entry_nor_credits() -> None:
    vl.options(replace(PORT, control_lane=vl.MANAGEMENT_LANE, lane_of_dscp={48: vl.MANAGEMENT_LANE}))


def answer(*, version: int = vl.VERSION, waits: int = 2, all_waits: int = 2) -> bytes:
    port = struct.pack("=8IQQ", version, 7, 8, 2, waits, all_waits, 2, 3, 4, 5)
    lanes = b"".join(struct.pack("=II30Q", lane, *range(100 * lane, 100 * lane + 31)) for lane in (1, 15))
    held = [struct.pack("=IBBHQ", 70 + i, i, 1, 0, 1000 * i) for i in range(waits)]
    return port + lanes + b"".join(held)


def test_statistics_are_read_field_by_field() -> None:
    found = vl.parse(answer())
    assert (found.index, found.peer_index, found.flow_control) == (7, 8, FlowControlMode.PFC)
    assert (found.link_packets, found.link_bytes, found.now_ns) == (3, 4, 5)
    assert list(found.lanes) == [1, 15]
    lane = found.lanes[1]
    assert (lane.backlog_packets, lane.backlog_bytes, lane.sent_bytes, lane.sent_packets) == (100, 101, 102, 103)
    assert lane.dropped_bytes == tuple(104 + cause for cause in DropCause)
    assert lane.dropped_packets == tuple(112 + cause for cause in DropCause)
    assert (lane.stalls, lane.stalled_ns, lane.stalled_since_ns, lane.buffer_bytes) == (120, 121, 122, 123)
    assert (lane.used_bytes, lane.buffered_bytes, lane.most_buffered_bytes) == (124, 125, 126)
    assert (lane.marked_bytes, lane.marked_packets) == (127, 128)
    assert (lane.trimmed_bytes, lane.trimmed_packets) == (129, 130)
    assert found.waits == tuple(vl.Wait(input_index=70 + i, input_lane=i, lane=1, bytes=1000 * i) for i in range(2))
    assert found.dropped_bytes(DropCause.LIMIT) == 104 + 1504


def test_a_module_of_another_version_is_not_believed() -> None:
    with pytest.raises(EmulationError, match=rf"speaks version 2, this program {vl.VERSION}"):
        vl.parse(answer(version=2))


def test_waits_that_are_missing_from_an_answer_are_not_ignored() -> None:
    with pytest.raises(EmulationError, match="interface 7: only 1 of 2 waits"):
        vl.parse(answer(waits=1))


@given(st.binary(max_size=20), st.booleans())
def test_other_qdiscs_in_a_dump_are_passed_over(noise: bytes, first: bool) -> None:
    def message(kind: bytes, payload: bytes) -> bytes:
        stats = netlink.attribute(7, netlink.attribute(4, payload))
        body = bytes(20) + netlink.attribute(1, kind) + stats
        return netlink.HEADER.pack(netlink.HEADER.size + len(body), netlink.RTM_NEWQDISC, 0, 0, 0) + body

    ours, other = message(b"vl\0", answer()), message(b"htb\0", noise)
    assert list(vl.read(other + ours if first else ours + other)) == [7]
