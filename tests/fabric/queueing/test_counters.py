"""Reading the counters of queues out of dumps.

``data/qdiscs.bin`` is a dump of two ports with five lanes each, of 8 kbit/s, recorded while frames waited and others
had been dropped; ``data/qdiscs.json`` is what ``tc -s -j qdisc`` said of them at that moment.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabric.errors import EmulationError
from fabric.queueing import counters
from fabric.queueing.counters import COUNTERS, QueueReader
from fabric.world.kernel_api import netlink

DATA = Path(__file__).with_name("data")
DUMP = (DATA / "qdiscs.bin").read_bytes()
TOLD_BY_TC: list[dict[str, Any]] = json.loads((DATA / "qdiscs.json").read_text())
INDICES = {"left": 11, "right": 12}
Values = dict[tuple[int, int], tuple[int, ...]]


def read(reader: QueueReader, dump: bytes) -> Values:
    keys, counters = reader.read(dump)
    return dict(zip(keys, counters.tolist(), strict=True))


def told_by_tc(*interfaces: str) -> Values:
    found = {}
    for item in TOLD_BY_TC:
        if item["kind"] == "bfifo" and item["dev"] in interfaces:
            key = INDICES[item["dev"]], int(item["handle"].rstrip(":"), 16) - 0x10
            found[key] = (*(item[name] for name in ("bytes", "packets", "qlen", "backlog", "drops")), 0)
    return found


def messages(dump: bytes) -> Iterator[bytes]:
    while dump:
        (length,) = struct.unpack_from("=I", dump)
        size = (length + 3) & ~3
        yield dump[:size]
        dump = dump[size:]


def of_interface(interface: str) -> list[bytes]:
    return [found for found in messages(DUMP) if struct.unpack_from("=i", found, 20)[0] == INDICES[interface]]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the dumps in which places of counters were searched."""
    found: list[int] = []
    search = counters._find_layout

    def noted(dump: bytes) -> Any:
        found.append(len(dump))
        return search(dump)

    monkeypatch.setattr(counters, "_find_layout", noted)
    return found


def test_counters_of_a_recorded_dump_are_those_that_tc_told() -> None:
    assert read(QueueReader(), DUMP) == told_by_tc("left", "right")


def test_the_recording_has_queues_that_wait_that_dropped_and_that_did_nothing() -> None:
    kinds = {(values[0] > 0, values[2] > 0, values[4] > 0) for values in told_by_tc("left", "right").values()}
    assert kinds == {(True, True, True), (True, False, False), (False, False, False)}


def test_a_dump_that_looks_the_same_is_read_without_searching_again(searches: list[int]) -> None:
    reader = QueueReader()
    before = read(reader, DUMP)
    key = (11, 1)
    sent = struct.pack("=QI", *before[key][:2])
    assert sent in DUMP
    grown = struct.pack("=QI", before[key][0] + 5_000_000_000, before[key][1] + 7)
    after = read(reader, DUMP.replace(sent, grown))
    assert after == {**before, key: (before[key][0] + 5_000_000_000, before[key][1] + 7, *before[key][2:])}
    assert searches == [len(DUMP)]


def test_another_sequence_number_is_no_other_layout(searches: list[int]) -> None:
    reader = QueueReader()
    read(reader, DUMP)
    renumbered = b"".join(found[:8] + struct.pack("=I", 99) + found[12:] for found in messages(DUMP))
    assert renumbered != DUMP
    assert read(reader, renumbered) == told_by_tc("left", "right")
    assert len(searches) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(b"".join(of_interface("left")), told_by_tc("left"), id="a port went away"),
        pytest.param(
            b"".join(of_interface("left") + of_interface("right")),
            told_by_tc("left", "right"),
            id="ports change places",
        ),
        pytest.param(b"".join(reversed(list(messages(DUMP)))), told_by_tc("left", "right"), id="all change places"),
    ],
)
def test_a_dump_that_changed_is_searched_again(change: bytes, expected: Values, searches: list[int]) -> None:
    reader = QueueReader()
    read(reader, DUMP)
    assert read(reader, change) == expected
    assert read(reader, DUMP) == told_by_tc("left", "right")
    assert searches == [len(DUMP), len(change), len(DUMP)]


@pytest.mark.parametrize("dump", [b"", of_interface("left")[0]], ids=["empty", "only the root"])
def test_a_dump_without_lanes_has_no_counters(dump: bytes) -> None:
    keys, counters = QueueReader().read(dump)
    assert keys == []
    assert counters.dtype == COUNTERS
    assert len(counters) == 0


def test_a_kernel_with_another_layout_is_noticed() -> None:
    lane = of_interface("left")[1]
    without = netlink.HEADER.pack(40, netlink.RTM_NEWQDISC, 0, 1, 0) + lane[16:36] + netlink.attribute(1, b"bf\0\0")[:4]
    with pytest.raises(EmulationError) as told:
        QueueReader().read(without)
    assert str(told.value) == "a message of the kernel's without attribute 7; its layout has changed"
