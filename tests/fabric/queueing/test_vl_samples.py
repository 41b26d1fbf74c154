"""Lossless ports read fast: the same as they are read one by one, whatever waits, and errors that say what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.errors import EmulationError
from fabric.queueing import vl
from fabric.queueing.counters import QueueReader
from fabric.queueing.vl import PortStats, Wait
from fabric.queueing.vl_samples import VlReader, VlSample
from tests.fabric.queueing.vl_dumps import lane, message, other_qdisc, port

_COUNT = st.integers(0, 2**40)
_LANE = st.fixed_dictionaries(
    dict.fromkeys(("sent_bytes", "sent_packets", "stalls", "stalled_ns", "buffered_bytes", "used_bytes"), _COUNT)
    | {"backlog_packets": st.integers(0, 10**6), "backlog_bytes": st.integers(0, 2**31), "drops": st.integers(0, 9)}
)
_NUMBER = st.integers(0, 15)
_WAIT = st.builds(Wait, input_index=st.integers(1, 9), input_lane=_NUMBER, lane=_NUMBER, bytes=_COUNT)
_WAITS = st.lists(_WAIT, max_size=5)


@st.composite
def ports(draw: st.DrawFn) -> list[PortStats]:
    indices = draw(st.lists(st.integers(2, 3000), min_size=1, max_size=6, unique=True))
    numbers = draw(st.lists(st.integers(0, 15), min_size=1, max_size=4, unique=True))
    return [port(index, [lane(n, **draw(_LANE)) for n in numbers], draw(_WAITS), peer=index + 1) for index in indices]


def verify(sample: VlSample | None, found: list[PortStats]) -> None:
    assert sample is not None
    lanes = [(one, stats) for one in found for stats in one.lanes.values()]
    assert sample.keys == [(one.index, stats.lane + 1) for one, stats in lanes]
    assert sample.peers.tolist() == [one.peer_index for one, _ in lanes]
    for name in ("sent_bytes", "sent_packets", "stalls", "stalled_ns", "buffered_bytes", "backlog_bytes"):
        assert sample.lanes[name].tolist() == [getattr(stats, name) for _, stats in lanes]
    assert sample.lanes["dropped_packets"].tolist() == [list(stats.dropped_packets) for _, stats in lanes]
    waits = [(one.index, w.lane + 1, w.input_index, w.input_lane + 1, w.bytes) for one in found for w in one.waits]
    assert sample.waits.tolist() == waits


@given(st.lists(ports(), min_size=1, max_size=3), st.sampled_from([0, 300, 804]))
def test_a_reader_finds_what_is_read_one_by_one(dumps: list[list[PortStats]], options: int) -> None:
    reader = VlReader()
    for found in dumps:
        dump = other_qdisc(1) + b"".join(message(one, options=options) for one in found) + other_qdisc(9)
        assert list(vl.read(dump).values()) == found
        verify(reader.read(dump), found)


def test_places_that_move_are_found_again() -> None:
    reader = VlReader()
    for options in (300, 100, 900):
        found = [port(5, [lane(0, sent_bytes=options)])]
        verify(reader.read(message(found[0], options=options)), found)


def test_a_dump_without_lossless_ports_has_none() -> None:
    assert VlReader().read(other_qdisc(1) + other_qdisc(2)) is None
    assert VlReader().read(b"") is None


def test_counters_of_a_lane_are_those_of_other_queues_too() -> None:
    full = lane(3, sent_bytes=2**33, sent_packets=7, backlog_packets=2, backlog_bytes=300, drops=4, marked_packets=6)
    sample = QueueReader().sample(message(port(5, [full])))
    assert sample.keys == [(5, 4)]
    assert sample.counters.tolist() == [(2**33, 7, 2, 300, 4, 6)]


def test_a_reader_follows_queues_that_are_replaced() -> None:
    """Of the recorded queues that drop, and of lossless ones after them, and back."""
    from tests.fabric.queueing.test_counters import DUMP, read

    reader = QueueReader()
    before = read(reader, DUMP)
    assert read(reader, message(port(5, [lane(0, sent_bytes=9)]))) == {(5, 1): (9, 0, 0, 0, 0, 0)}
    assert read(reader, DUMP) == before


def test_a_module_of_another_version_is_refused() -> None:
    with pytest.raises(EmulationError, match=r"speaks version 9, this program \d+; load the matching one"):
        VlReader().read(message(port(5, [lane(0)]), version=9))


def test_an_answer_that_was_cut_is_refused() -> None:
    with pytest.raises(EmulationError, match="interface 5: only 0 of 3 waits fitted"):
        VlReader().read(message(port(5, [lane(0)]), missing_waits=3))
