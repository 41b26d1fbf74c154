"""What `isolation` prints, derived once more from its raw rows by other code, and beside closed forms.

One short run on the tiny fabric, with more load than it carries, so that queues drop, flows are cut off and refused,
and lanes stall. What is not derived again: retransmissions, which only the kernel counts, and congestion trees.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.virtual.command import TINY, VirtualCommand
from tests.virtual.raw import Phase, Raw, Row, Tally, at_time, bandwidth, between, median, percentile, printed

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
SETTINGS = (
    f"topology={TINY}", "nccl_nodes=4", "hfreduce.size=256 KiB", "nccl.size=128 KiB", "alone_time=1 s",
    "together_time=3.5 s", "background.load=0.4", "heavy_load=0", "background.max_flows=6",
    "queueings=[shared, lanes, lossless_lanes]",
)  # fmt: skip
RANKS = {"hfreduce": 8, "nccl": 4}
ALONE = {"hfreduce": "hfreduce_alone", "nccl": "nccl_alone", "read": "storage_alone", "write": "storage_alone"}
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@pytest.fixture(scope="module")
def raw(shared_command: VirtualCommand) -> Raw:
    return Raw(shared_command.play("isolation", SETTINGS, "--seed", "3", out="short"))


@pytest.fixture(scope="module")
def by_title(raw: Raw) -> dict[str, Phase]:
    return {phase.title: phase for phase in raw.phases}


@pytest.fixture(scope="module")
def by_name(raw: Raw) -> dict[str, Phase]:
    return {phase.name: phase for phase in raw.phases}


def all_agree(tally: Tally, least: int) -> None:
    assert tally.differing == []
    assert tally.derived >= least


# From rows -----------------------------------------------------------------------------------------------------------


def steps_of(raw: Raw, phase: Phase, level: str) -> list[Row]:
    return [row for row in raw.rows("steps") if row["phase"] == phase.name and row["service_level"] == level]


def step_s(raw: Raw, phase: Phase, level: str) -> float:
    return median([row["ended_s"] - row["started_s"] for row in steps_of(raw, phase, level)])


def test_allreduce(raw: Raw, by_title: dict[str, Phase], by_name: dict[str, Phase]) -> None:
    tally = Tally()
    nic_Bps = 20e6 / 8  # noqa: N806 - bytes
    assert {raw.rate_bps[port] for port in raw.rate_bps if port.startswith("z0h")} == {20e6}
    for cells in raw.cells("Allreduce"):
        phase, level = by_title[cells["phase"]], cells["collective"]
        rows = steps_of(raw, phase, level)
        assert {row["ranks"] for row in rows} == {RANKS[level]}
        speeds = [row["size_bytes"] / (row["ended_s"] - row["started_s"]) for row in rows]
        factor = 2 * (RANKS[level] - 1) / RANKS[level]
        # A ring sends 2 (n - 1) / n of the data, the busiest node of a double binary tree twice the data.
        ideal = nic_Bps / (factor if level == "nccl" else 2)
        times_s = [row["ended_s"] - row["started_s"] for row in rows]
        what = f"{phase.name} {level}"
        tally.compare(f"{what} algbw", cells["algbw"], median(speeds))
        tally.compare(f"{what} busbw", cells["busbw"], median(speeds) * factor)
        tally.compare(f"{what} of ideal", cells["of ideal"], median(speeds) / ideal)
        tally.compare(f"{what} median step", cells["median step"], median(times_s))
        tally.compare(f"{what} slowest", cells["slowest"], max(times_s))
        tally.compare(f"{what} steps", cells["steps"], len(rows))
        tally.compare(
            f"{what} / alone", cells["time / alone"], median(times_s) / step_s(raw, by_name[ALONE[level]], level)
        )
        # One step may be faster: what a queue was spared while it was idle, it may send at once (a frame or two).
        assert median(speeds) <= ideal, "nobody is faster than a full NIC allows"
    all_agree(tally, 7 * 8)


def operations_of(raw: Raw, phase: Phase, kind: str) -> tuple[list[Row], list[Row]]:
    """Return those that completed, and all that began while the load played, whatever became of them."""
    rows = [row for row in raw.rows("operations") if row["phase"] == phase.name and row["operation"].startswith(kind)]
    began = [row for row in rows if phase.loaded_from_s <= row["started_s"] <= phase.loaded_until_s]
    return [row for row in rows if row["operation"] == kind], began


def bandwidth_of(raw: Raw, phase: Phase, kind: str) -> float:
    return bandwidth(operations_of(raw, phase, kind)[0], phase.loaded_from_s, phase.loaded_until_s)


def count(rows: list[Row], operation: str) -> int:
    return sum(row["operation"] == operation for row in rows)


def test_storage(raw: Raw, by_title: dict[str, Phase], by_name: dict[str, Phase]) -> None:
    tally = Tally()
    for cells in raw.cells("Storage"):
        phase, kind = by_title[cells["phase"]], cells["operation"]
        _, began = operations_of(raw, phase, kind)
        what = f"{phase.name} {kind}"
        found = bandwidth_of(raw, phase, kind)
        tally.compare(f"{what} bandwidth", cells["bandwidth"], found)
        tally.compare(
            f"{what} / alone", cells["bandwidth / alone"], found / bandwidth_of(raw, by_name[ALONE[kind]], kind)
        )
        for name, part in PERCENTILES.items():
            tally.compare(f"{what} {name}", cells[name], *percentile(began, kind, part))
        tally.compare(f"{what} completed", cells["completed"], count(began, kind))
        tally.compare(f"{what} failed", cells["failed"], count(began, f"{kind}_failed"))
    all_agree(tally, 7 * 8)


def test_other_traffic(raw: Raw, by_title: dict[str, Phase], by_name: dict[str, Phase]) -> None:
    tally, outcomes = Tally(), {"abandoned", "failed", "refused"}
    alone_s, alone_is_least = percentile(operations_of(raw, by_name["other_alone"], "flow")[1], "flow", 0.99)
    for cells in raw.cells("Other traffic"):
        phase = by_title[cells["phase"]]
        _, began = operations_of(raw, phase, "flow")
        for name, part in PERCENTILES.items():
            tally.compare(f"{phase.name} {name}", cells[name], *percentile(began, "flow", part))
        tally.compare(f"{phase.name} completed", cells["completed"], count(began, "flow"))
        for outcome in outcomes:
            tally.compare(f"{phase.name} {outcome}", cells[outcome], count(began, f"flow_{outcome}"))
        p99_s, is_least = percentile(began, "flow", 0.99)
        if is_least and alone_is_least:
            assert cells["p99 / alone"] == "-", "nobody knows how many times"
        else:
            assert cells["p99 / alone"].startswith("> ") is is_least
            tally.compare(f"{phase.name} / alone", cells["p99 / alone"], p99_s / alone_s, is_least)
    all_agree(tally, 7 * 4)
    assert sum(float(cells["refused"]) + float(cells["abandoned"]) for cells in raw.cells("Other traffic")) > 100


def grown(raw: Raw, phase: Phase, column: str, is_counted: Callable[[str], bool]) -> int:
    """Return how much a counter of some ports grew from the first sample of a phase to its last, just after its end."""
    total = 0
    for (port, _), rows in raw.counters.items():
        if is_counted(port) and (inside := between(rows, phase.started_s - 0.01, phase.ended_s + 0.01)):
            total += inside[-1][column] - inside[0][column]
    return total


def test_network(raw: Raw, by_title: dict[str, Phase]) -> None:
    """Packets of the last moments are still on their way at the last sample: acknowledgements, and ends of flows that
    were cut off."""
    tally = Tally()
    for cells in raw.cells("Network"):
        phase = by_title[cells["phase"]]
        sent = grown(raw, phase, "sent_packets", lambda port: port.rpartition(":")[0] in raw.hosts)
        drops = grown(raw, phase, "drops_packets", lambda port: True)
        told = printed(cells["packets sent"]).value
        assert sent <= told <= 1.03 * sent, phase.name
        tally.compare(f"{phase.name} drops", cells["dropped by queues"], drops)
        tally.compare(f"{phase.name} of packets", cells["of packets"], drops / told)
        queued = [row["backlog_bytes"] for row in between(raw.rows("ports"), phase.started_s, phase.ended_s)]
        tally.compare(f"{phase.name} deepest queue", cells["deepest queue"], max(queued))
    all_agree(tally, 3 * 7)
    assert sum(printed(cells["dropped by queues"]).value for cells in raw.cells("Network")) > 0


def test_shares_of_the_busiest_port(raw: Raw, by_name: dict[str, Phase]) -> None:
    """By the lanes of the samples, of which each level of data has its own; in one queue all of it together.

    Samples are 50 ms apart, so the counters at the start and the end of the load are known to a frame or two: a
    thousandth of what the port sends in that time.
    """
    columns = {"lanes": "lanes", "lossless_lanes": "lossless lanes"}
    cells = {row["service level"]: row for row in raw.cells("Shares of the busiest port")}
    (note,) = [one["note"] for one in raw.summary["tables"] if one["title"].startswith("Shares")]
    port = note.rpartition("port ")[2].partition(" of ")[0]

    def share(phase: Phase, lane: str) -> float:
        rows = between(raw.counters[port, lane], phase.started_s - 1, phase.ended_s + 1)
        sent = at_time(rows, "sent_bytes", phase.loaded_until_s) - at_time(rows, "sent_bytes", phase.loaded_from_s)
        return sent * 8 / phase.loaded_s / raw.rate_bps[port]

    compared = 0
    for name, column in columns.items():
        for level in ("hfreduce", "nccl", "storage", "other"):
            assert share(by_name[name], level) == pytest.approx(printed(cells[level][column]).value, abs=0.004)
            compared += 1
    all_together = printed(cells["all"]["one shared queue"]).value
    assert share(by_name["shared"], "shared") == pytest.approx(all_together, abs=0.004)
    assert compared == 8
    for column in (*columns.values(), "one shared queue", "one lossless lane"):
        if column in cells["all"]:
            assert printed(cells["all"][column]).value <= 1.001, "no port sends more than its rate"
    for level in ("hfreduce", "other"):
        least = {"hfreduce": 0.5, "other": 0.05}[level]
        measured = printed(cells[level]["lanes"]).value
        # HFReduce waits between steps and may have less than its share; other traffic never lacks data here.
        assert measured >= (least if level == "other" else 0.0)


def test_waiting_for_room(raw: Raw, by_title: dict[str, Phase]) -> None:
    tally = Tally()
    (cells,) = raw.cells("Waiting for room")
    phase = by_title[cells["phase"]]
    lanes: dict[tuple[str, str], list[Row]] = {}
    for row in between(raw.rows("stalls"), phase.started_s, phase.ended_s):
        lanes.setdefault((row["port"], row["lane"]), []).append(row)
    grown_by = [
        (rows[-1]["stalls"] - rows[0]["stalls"], (rows[-1]["stalled_ns"] - rows[0]["stalled_ns"]) / 1e9)
        for rows in lanes.values()
    ]
    fractions = []
    for rows in lanes.values():
        inside = between(rows, phase.loaded_from_s, phase.loaded_until_s)
        seconds = inside[-1]["at_s"] - inside[0]["at_s"]
        fractions.append((inside[-1]["stalled_ns"] - inside[0]["stalled_ns"]) / 1e9 / seconds)
    tally.compare("stalls", cells["stalls"], sum(stalls for stalls, _ in grown_by))
    tally.compare("stalled", cells["stalled, all lanes of all ports"], sum(seconds for _, seconds in grown_by))
    tally.compare("most", cells["the most stalled lane"], max(fractions))
    fullest = max(row["buffered_bytes"] for rows in lanes.values() for row in rows)
    tally.compare("fullest", cells["fullest input buffer"], fullest)
    all_agree(tally, 4)


# Tables and metrics ---------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_summary(raw: Raw) -> None:
    """The table ``metrics`` and the summary are written apart."""
    table = {row["path"]: row["value"] for row in raw.rows("metrics")}
    assert table == pytest.approx(raw.summary["metrics"])
    assert any(name.endswith("_at_least_s") for name in table)


# Beside what cannot be otherwise -------------------------------------------------------------------------------------


def test_storage_in_company_is_no_faster_than_alone(raw: Raw, by_name: dict[str, Phase]) -> None:
    """The same load on the same fabric, beside others: nothing gives it more. A few percent are the chance of a second
    alone."""
    for kind in ("read", "write"):
        alone = bandwidth_of(raw, by_name["storage_alone"], kind)
        for name in ("shared", "lanes", "lossless_lanes"):
            assert bandwidth_of(raw, by_name[name], kind) / alone < 1.03, (kind, name)


def test_hosts_take_in_what_operations_brought_and_no_more_than_their_links_carry(
    raw: Raw, by_name: dict[str, Phase]
) -> None:
    """Storage alone: what leaves' ports send to hosts beside what reads and writes brought. A write goes to each of its
    replicas, and a full frame has 66 bytes of headers to 4,148 of data. Counted whole where they end, operations would
    have brought a tenth less."""
    phase = by_name["storage_alone"]
    reads, writes = (bandwidth_of(raw, phase, kind) for kind in ("read", "write"))
    ends = {link[end]: link[other] for link in raw.fabric["links"] for end, other in (("a", "b"), ("b", "a"))}
    into_hosts = [port for port, peer in ends.items() if peer.rpartition(":")[0] in raw.hosts]
    sent = 0.0
    for port in into_hosts:
        rows = between(raw.counters[port, "shared"], phase.started_s - 1, phase.ended_s + 1)
        sent += at_time(rows, "sent_bytes", phase.loaded_until_s) - at_time(rows, "sent_bytes", phase.loaded_from_s)
    replicas = 2
    brought = reads + replicas * writes
    assert sent / phase.loaded_s == pytest.approx(brought * 4214 / 4148, rel=0.03)
    assert sent * 8 / phase.loaded_s <= sum(raw.rate_bps[port] for port in into_hosts)
