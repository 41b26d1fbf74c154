"""What `protection` and `incast` print, derived once more from their raw rows by other code. One short run each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.virtual.command import TINY, VirtualCommand
from tests.virtual.raw import Phase, Raw, Row, Tally, at_time, bandwidth, between, percentile

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
PROTECTION = (
    f"topology={TINY}", "topology.compute=4", "queueings=[shared, lanes]", "other_loads=[0, 2]", "storage_depths=[4]",
    "warm_up=500 ms", "phase_time=2 s", "hfreduce.size=32 KiB", "hfreduce.chunk=8 KiB", "background.max_flows=16",
)  # fmt: skip
INCAST = (
    "topology=storage_zone_200g", "topology.storage=8", "servers=[8]", "request_to_send=[off, 2]",
    "controls=[line]", "queueings=[lossless_lanes, lanes]", "phase_time=1.5 ms", "warm_up=0.5 ms",
)  # fmt: skip
QUEUEINGS = {"one shared queue": "shared", "lanes": "lanes", "lossless lanes": "lossless_lanes"}
NIC_BPS = 25e9
"""Bytes, of 200 Gbit/s."""


@pytest.fixture(scope="module")
def protection(shared_command: VirtualCommand) -> Raw:
    return Raw(shared_command.play("protection", PROTECTION, out="protection"))


@pytest.fixture(scope="module")
def incast(shared_command: VirtualCommand) -> Raw:
    return Raw(shared_command.play("incast", INCAST, out="incast"))


def phase_of(raw: Raw, name: str) -> Phase:
    return next(phase for phase in raw.phases if phase.name == name)


class Counted:
    """The operations of a phase after its warm-up."""

    def __init__(self, raw: Raw, phase: Phase, warm_up_s: float) -> None:
        self.raw, self.phase = raw, phase
        self.from_s, self.until_s = phase.loaded_from_s + warm_up_s, phase.loaded_until_s

    def rows(self, kind: str) -> list[Row]:
        found = (row for row in self.raw.rows("operations") if row["phase"] == self.phase.name)
        return [row for row in found if row["operation"].startswith(kind)]

    def began(self, kind: str) -> list[Row]:
        return [row for row in self.rows(kind) if self.from_s <= row["started_s"] <= self.until_s]

    def bandwidth(self, kind: str) -> float:
        return bandwidth((row for row in self.rows(kind) if row["operation"] == kind), self.from_s, self.until_s)

    def percentile(self, kind: str, part: float) -> tuple[float, bool] | tuple[None]:
        began = self.began(kind)
        return percentile(began, kind, part) if began else (None,)

    def count(self, operation: str) -> int:
        return sum(row["operation"] == operation for row in self.began(operation.partition("_")[0]))

    def acknowledged(self, level: str) -> float:
        """Return what connections of a level had acknowledged in that time, in bytes per second."""
        seen: dict[tuple[str, str, float], int] = defaultdict(int)
        connections: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
        rows = (row for row in self.raw.rows("flows") if row["phase"] == self.phase.name)
        for row in sorted((row for row in rows if row["service_level"] == level), key=lambda row: row["at_s"]):
            at = row["host"], row["peer"], row["at_s"]
            connections[row["host"], row["peer"], seen[at]].append(row)
            seen[at] += 1
        ends = (
            at_time(rows, "bytes_acked", self.until_s) - at_time(rows, "bytes_acked", self.from_s)
            for rows in connections.values()
        )
        return sum(ends) / (self.until_s - self.from_s)


def table(raw: Raw, title: str) -> tuple[list[str], list[list[str]]]:
    (found,) = [one for one in raw.summary["tables"] if one["title"].startswith(title)]
    return found["columns"], found["rows"]


def labelled(rows: Iterable[list[str]]) -> Iterable[tuple[str, list[str]]]:
    """Yield each row with its first cell, or that of the row above."""
    label = ""
    for row in rows:
        label = row[0] or label
        yield label, row


@pytest.mark.soak
def test_protection_under_load(protection: Raw) -> None:
    """In a step each edge of two trees of half the data carries it up and down: 2 (n - 1) times the data in all."""
    tally, ranks = Tally(), 4

    def counted(name: str) -> Counted:
        return Counted(protection, phase_of(protection, name), 0.5)

    def algbw(one: Counted) -> float:
        return one.acknowledged("hfreduce") / (2 * (ranks - 1))

    alone = algbw(counted("hfreduce_alone")), counted("storage_alone").bandwidth("read")
    for title, name in (
        ("Under growing load", "{queueing}_other_{other:g}_depth_2"),
        ("With storage only", "{queueing}_other_0_depth_{label}"),
    ):
        for label, row in labelled(table(protection, title)[1]):
            other = float(label.rstrip("%")) / 100 if "%" in label else 0.0
            one = counted(name.format(queueing=QUEUEINGS[row[1]], other=other, label=label))
            found = algbw(one), one.bandwidth("read")
            for place, (value, base) in enumerate(zip(found, alone, strict=True)):
                tally.compare(f"{one.phase.name} {place}", row[2 + 2 * place], value)
                tally.compare(f"{one.phase.name} {place} of alone", row[3 + 2 * place], value / base)
            tally.compare(f"{one.phase.name} flows", row[6], one.bandwidth("flow") if one.rows("flow") else None)
    assert tally.differing == []
    assert tally.derived == 40


@pytest.mark.soak
def test_protection_says_what_did_not_complete(protection: Raw) -> None:
    tally = Tally()
    for other, depth, queueing, *cells in table(protection, "Completion")[1]:
        name = f"{QUEUEINGS[queueing]}_other_{float(other.rstrip('%')) / 100:g}_depth_{depth}"
        one = Counted(protection, phase_of(protection, name), 0.5)
        tally.compare(f"{name} reads", cells[0], *one.percentile("read", 0.99))
        tally.compare(f"{name} reads failed", cells[1], one.count("read_failed"))
        tally.compare(f"{name} flows", cells[2], *one.percentile("flow", 0.99))
        for cell, outcome in zip(cells[3:], ("flow", "flow_abandoned", "flow_failed", "flow_refused"), strict=True):
            tally.compare(f"{name} {outcome}", cell, one.count(outcome) if one.began("flow") else None)
    assert tally.differing == []
    assert tally.derived == 7 * 6
    assert any(cells[5].startswith("> ") for cells in table(protection, "Completion")[1])


@pytest.mark.soak  # A study; allreduces and isolation are computed again in every run of the tests.
def test_incast(incast: Raw) -> None:
    tally = Tally()
    columns, rows = table(incast, "Variants")
    client = min(row["host"] for row in incast.rows("operations"))
    (into_client,) = [
        link[end] for link in incast.fabric["links"] for end, other in (("a", "b"), ("b", "a"))
        if link[other] == f"{client}:0"
    ]  # fmt: skip
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        name = f"{QUEUEINGS[cells['in']]}_{cells['control']}_n8_rts_{cells['at once']}"
        one = Counted(incast, phase_of(incast, name), 0.0005)
        tally.compare(f"{name} bandwidth", cells["bandwidth"], one.bandwidth("read"))
        tally.compare(f"{name} of the NIC", cells["of the NIC"], one.bandwidth("read") / NIC_BPS)
        for column, part in (("median", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            tally.compare(f"{name} {column}", cells[column], *one.percentile("read", part))
        tally.compare(f"{name} failed", cells["failed"], one.count("read_failed"))
        samples = between(incast.counters[into_client, "storage"], one.from_s, one.until_s)
        waiting = [sample["backlog_bytes"] for sample in samples]
        tally.compare(f"{name} mean queue", cells["queue, mean"], sum(waiting) / len(waiting))
        tally.compare(f"{name} most", cells["queue, most"], max(waiting))
        inside = (
            between(samples, one.phase.started_s - 1e-4, one.phase.ended_s + 1e-3)
            for samples in incast.counters.values()
        )
        drops = sum(rows[-1]["drops_packets"] - rows[0]["drops_packets"] for rows in inside if rows)
        tally.compare(f"{name} drops", cells["drops"], drops)
    assert tally.differing == []
    assert tally.derived == 9 * 4
