"""What the isolation experiment says of a run: all numbers from rows, and no row is needed for it to say something."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.isolation.config import IsolationConfig
from experiments.isolation.experiment import EXPERIMENT
from experiments.isolation.playing import WatchedHFReduce, busiest_switch_port, got
from experiments.isolation.study import STUDY
from fabric.config import read_yaml
from fabric.errors import ConfigError
from fabric.metrics import by_path, metrics_frame
from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel
from fabric.records.conservation import Conservation
from fabric.report.figures.side_by_side import draw_panels
from fabric.results import Phase, ResultWriter
from fabric.tables import TABLES
from runs.record import summary_as_json
from runs.registry import resolve
from runs.session import PhaseOutcome, Session
from runs.study import SameJobs
from tests.experiments.declared import undeclared
from tests.fakes import AT_20_MBIT
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.collectives.hfreduce import HFReduceJob
from traffic.job import Records
from traffic.storage.client.verification import Verification

SMALL = load_fabric("fire_flyer_2_small", AT_20_MBIT)
CONFIG = cast(IsolationConfig, resolve("isolation", ["heavy_load=0"])[1])
HEAVY = cast(IsolationConfig, resolve("isolation", ["heavy_load=0.5"])[1])
ALONE = ("hfreduce", "nccl", "storage", "other")
NAMES = (*(f"{name}_alone" for name in ALONE), "shared", "lanes")
HEAVY_NAMES = (*NAMES[:4], "shared", "shared_heavy", "lanes", "lanes_heavy")
TITLES = {case.name: case.title for case in STUDY.cases_of(HEAVY)}
PHASE_S = 10.0
HFREDUCE = "HFReduce, algbw"
MIB = 2**20


def table(name: str, rows: Sequence[Sequence[object]]) -> pd.DataFrame:
    columns = TABLES[name].dtypes
    return table_of(name, rows).astype(columns)


def counted(sent: int, drops: int, retransmissions: int = 0) -> Conservation:
    return Conservation(
        sent_packets=sent,
        sent_bytes=sent * 1000,
        switched_bytes=sent * 3000,
        dropped_by_queues=drops,
        dropped_by_rules=0,
        waiting_packets=0,
        unaccounted={},
        unaccounted_bytes=0,
        retransmissions=retransmissions,
    )


def outcome(place: int, name: str) -> PhaseOutcome:
    started = place * PHASE_S
    phase = Phase(name, "any title", "lanes" if name.startswith("lanes") else "shared", started, started + PHASE_S)
    return PhaseOutcome(
        phase, Records(), counted(1000 * (place + 1), place, 2 if name == "shared" else 0), TABLES["machine"].empty()
    )


class FakeSession:
    """Phases of 10 s, with the rows that it is given."""

    def __init__(self, names: Sequence[str] = NAMES, **tables: pd.DataFrame) -> None:
        self.phases = [outcome(place, name) for place, name in enumerate(names)]
        self.live = SimpleNamespace(fabric=SMALL)
        self._tables = tables

    def table(self, name: str) -> pd.DataFrame:
        return self._tables.get(name, table(name, []))


def collective_rows() -> list[list[object]]:
    """Return three steps a phase: of 1 s alone, of 4 s in the shared queue, of 2 s in lanes; the middle one counts."""
    rows: list[list[object]] = []
    for place, name in enumerate(NAMES):
        for level, ranks in (("hfreduce", 24), ("nccl", 8)):
            if name in (f"{level}_alone", "shared", "lanes"):
                time_s = {"shared": 4.0, "lanes": 2.0}.get(name, 1.0)
                for step, spent in enumerate((0.5 * time_s, time_s, 1.5 * time_s)):
                    started = place * PHASE_S + step
                    rows.append([name, level, step, ranks, MIB, started, started + spent])
    return rows


def operation_rows() -> list[list[object]]:
    """Return five reads, two writes and a flow in each phase that has them; together reads take longer."""
    rows: list[list[object]] = []
    for place, name in enumerate(NAMES):
        started = place * PHASE_S
        slow = {"shared": 3.0, "lanes": 1.5}.get(name, 1.0)
        if name in ("storage_alone", "shared", "lanes"):
            for number in range(5):
                end = started + number + 0.1 * slow
                rows.append([name, "storage", "read", "z0h000", "st000", 100_000, started + number, end, 0])
            rows += [[name, "storage", "write", "z0h000", "st000", 50_000, started, started + 0.5, 0]] * 2
        if name in ("other_alone", "shared", "lanes"):
            rows.append([name, "other", "flow", "z0h000", "z0h001", 1000, started, started + 0.01 * slow, 0])
            rows.append([name, "other", "flow_abandoned", "z0h000", "z0h001", 1000, started, started + 0.001, 0])
    return rows


def port_rows(backlogs: Sequence[int]) -> list[list[object]]:
    """Return a sample in the middle of each phase."""
    return [
        [place * PHASE_S + 5.0, "z0l00:1", "shared", place * 1000, place, 0, backlog, 0]
        for place, backlog in enumerate(backlogs)
    ]


def full_session() -> FakeSession:
    flows = [
        [PHASE_S * 4 + at, "shared", "hfreduce", "z0h000", "z0h001", 0.01, retransmissions, 1000]
        for at, retransmissions in ((0.0, 7), (1.0, 7), (2.0, 9))
    ]
    return FakeSession(
        steps=table("steps", collective_rows()),
        operations=table("operations", operation_rows()),
        flows=table("flows", flows),
        ports=table("ports", port_rows([0, 1024, 0, 0, 256 * 1024, 4096])),
    )


def summary_of(session: FakeSession) -> dict[str, Any]:
    shares = {got(level): 0.1 if level == ServiceLevel.HFREDUCE else 0.01 for level in SERVICE_LEVELS}
    counted = {"shared": dict.fromkeys(shares, 0.0), "lanes": shares}
    return STUDY.summarize(cast(Session, session), CONFIG, STUDY.cases_of(CONFIG), counted)


SUMMARY = summary_of(full_session())


def rows_of(summary: dict[str, Any], title: str) -> list[list[str]]:
    (found,) = [one for one in summary["tables"] if one.title.startswith(title)]
    return [[str(cell) for cell in row] for row in found.words]


# The whole ------------------------------------------------------------------------------------------------------------


def test_every_row_of_every_table_has_a_cell_for_each_column() -> None:
    assert [one.title.partition(" ")[0].rstrip(":,") for one in SUMMARY["tables"]] == [
        "Allreduce",
        "Storage",
        "Other",
        "Network",
        "Shares",
    ]
    for one in SUMMARY["tables"]:
        assert one.words
        assert {len(row) for row in one.words} == {len(one.columns)}


def test_a_summary_can_be_written_and_read(tmp_path: Any) -> None:
    said = summary_as_json(SUMMARY)
    ResultWriter(tmp_path).write_json("summary.json", said)
    assert json.loads((tmp_path / "summary.json").read_text()) == said


def test_storage_is_found_by_its_job_although_paths_do_not_say_it() -> None:
    found = metrics_frame(SUMMARY["metrics"]).query("job == 'storage'")
    assert undeclared("isolation", SUMMARY["metrics"]) == []
    assert {"shared.read.p99_s", "lanes.read.bandwidth_Bps", "lanes.write.operations"} <= set(found["path"])
    assert set(found["name"].str.split(".").str[0]) == {"read", "write"}


def test_the_answer_says_what_company_costs() -> None:
    assert SUMMARY["answer"] == (
        "Of their bandwidth alone, HFReduce and storage reads keep, while other traffic offers 5% of every NIC's rate: "
        "25% and 100% in one shared queue (p99 of reads: 3.0 x), 50% and 100% in lanes (p99 of reads: 1.5 x) (promised "
        "in lanes: 50% and 30%)."
    )


def test_the_ideal_is_a_full_nic() -> None:
    nic_Bps = SMALL.nic_rate_bps / 8  # noqa: N806 - bytes a second
    assert SUMMARY["ideal_algbw_Bps"] == pytest.approx({"hfreduce": nic_Bps / 2, "nccl": nic_Bps * 8 / 14})


def test_writes_that_were_acknowledged_and_lost_are_told() -> None:
    assert isinstance(STUDY.play, SameJobs)
    storage = SimpleNamespace(verify_acknowledged=lambda: Verification(12, ("chunk 3",)))
    session = SimpleNamespace(tell=lambda text: None)
    assert STUDY.play.behind(cast(Session, session), CONFIG, [None, None, storage, None]) == {
        "acknowledged_writes": {"checked": 12, "lost": 1, "out_of_reach": 0}
    }


def test_the_promised_shares_are_those_of_the_config() -> None:
    assert SUMMARY["lane_shares"] == {name: lane.share for name, lane in CONFIG.queues.lanes.items()}


# Numbers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hfreduce_alone.hfreduce.step_s", 1.0),
        ("shared.hfreduce.step_s", 4.0),
        ("shared.hfreduce.slowest_step_s", 6.0),
        ("lanes.hfreduce.algbw_Bps", MIB / 2),
        ("lanes.hfreduce.busbw_Bps", MIB / 2 * 2 * 23 / 24),
        ("lanes.nccl.busbw_Bps", MIB / 2 * 2 * 7 / 8),
        ("lanes.nccl.steps", 3),
        ("storage_alone.read.bandwidth_Bps", 5 * 100_000 / PHASE_S),
        ("storage_alone.write.bandwidth_Bps", 2 * 50_000 / PHASE_S),
        ("storage_alone.read.operations", 5),
        ("shared.read.p99_s", 0.3),
        ("lanes.flow.p50_s", 0.015),
        ("lanes.flow.operations", 1),
        ("shared.retransmissions", 2),
        ("lanes.retransmissions", 0),
        ("shared.drops_packets", 4),
        ("lanes.sent_packets", 6000),
        ("shared.deepest_queue_bytes", 256 * 1024),
        ("lanes.deepest_queue_bytes", 4096),
    ],
)
def test_a_number_comes_from_the_rows_of_its_phase(name: str, value: float) -> None:
    assert by_path(SUMMARY["metrics"])[name] == pytest.approx(value)


@pytest.mark.parametrize(
    "name", ["storage_alone.hfreduce.step_s", "hfreduce_alone.read.p99_s", "nccl_alone.flow.p50_s"]
)
def test_what_did_not_play_has_no_numbers(name: str) -> None:
    assert name not in by_path(SUMMARY["metrics"])


def test_every_phase_has_its_network_numbers() -> None:
    rows = rows_of(SUMMARY, "Network")
    assert [row[0] for row in rows] == [TITLES[name] for name in NAMES]
    assert rows[4] == [TITLES["shared"], "5000", "4", "0.08%", "2", "256 KiB"]


def test_a_collective_is_told_beside_its_time_alone() -> None:
    rows = rows_of(SUMMARY, "Allreduce")
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        (TITLES["hfreduce_alone"], "hfreduce", "1.00 x"),
        (TITLES["shared"], "hfreduce", "4.00 x"),
        (TITLES["lanes"], "hfreduce", "2.00 x"),
        (TITLES["nccl_alone"], "nccl", "1.00 x"),
        (TITLES["shared"], "nccl", "4.00 x"),
        (TITLES["lanes"], "nccl", "2.00 x"),
    ]
    assert rows[0][2:8] == ["1.049 MB/s", "2.010 MB/s", "84%", "1 s", "1.5 s", "3"]


def test_storage_and_other_traffic_are_told_beside_theirs() -> None:
    reads = [row for row in rows_of(SUMMARY, "Storage") if row[1] == "read"]
    assert [row[3:] for row in reads] == [
        ["100 ms", "100 ms", "100 ms", "5", "0", "1.00 x"],
        ["300 ms", "300 ms", "300 ms", "5", "0", "1.00 x"],
        ["150 ms", "150 ms", "150 ms", "5", "0", "1.00 x"],
    ]
    assert [row[-1] for row in rows_of(SUMMARY, "Other")] == ["1.00 x", "3.00 x", "1.50 x"]


def test_flows_without_an_end_are_counted_and_make_percentiles_at_least() -> None:
    """In lanes two of a hundred flows fail, and one is refused: the 99th percentile is none of the others'."""
    lanes_s = NAMES.index("lanes") * PHASE_S
    rows = [
        ["lanes", "other", "flow", "z0h000", "z0h001", 1000, lanes_s + 1, lanes_s + 1 + number / 1000, 0]
        for number in range(1, 97)
    ]
    rows += [["lanes", "other", "flow_failed", "z0h000", "z0h001", 1000, lanes_s + 1, lanes_s + 11.1, 0]] * 2
    rows.append(["lanes", "other", "flow_refused", "z0h000", "z0h001", 1000, lanes_s + 2, lanes_s + 2, 0])
    others = [row for row in operation_rows() if (row[0], row[1]) != ("lanes", "other")]
    session = FakeSession(NAMES, **{**full_session()._tables, "operations": table("operations", [*others, *rows])})
    summary = summary_of(session)
    assert rows_of(summary, "Other")[2][1:] == ["50 ms", "> 10.1 s", "> 10.1 s", "96", "0", "2", "1", "> 1010.00 x"]
    metrics = by_path(summary["metrics"])
    assert metrics["lanes.flow.p99_at_least_s"] == pytest.approx(10.1)
    assert "lanes.flow.p99_s" not in metrics
    found = summary["side_by_side"]
    assert found["flows_without_end"] == [0, 3]
    assert [panel.get("at_least") for panel in found["panels"]] == [None, None, None, None, [False, True]]
    (body,) = Figure().subfigures(1, 1, squeeze=False).flat
    draw_panels(body, found)
    assert "> 1,010" in [text.get_text() for axes in body.axes for text in axes.texts]
    assert "flows that failed or were refused" in [axes.get_title() for axes in body.axes]


def test_storage_alone_is_as_fast_as_in_company_that_takes_nothing_from_it() -> None:
    """Reads at a constant rate, alone for 8 s and together for 40 s; what is under way then takes 2 s more."""
    rows: list[list[object]] = []
    for name, plays_s in (("storage_alone", 8.0), ("shared", 40.0)):
        began = NAMES.index(name) * 100.0
        for number in range(round(plays_s * 10)):
            end = plays_s + 2 if number == round(plays_s * 10) - 1 else (number + 1) / 10
            rows.append([name, "storage", "read", "z0h000", "st000", 10**6, began + number / 10, began + end, 0])
    session = FakeSession(operations=table("operations", rows))
    session.phases = [
        replace(
            one,
            phase=Phase(
                one.phase.name, one.phase.title, "shared", place * 100.0, place * 100.0 + length + 2, "",
                place * 100.0, place * 100.0 + length,
            ),
        )
        for place, one in enumerate(session.phases)
        for length in [8.0 if one.phase.name.endswith("_alone") else 40.0]
    ]  # fmt: skip
    found = by_path(summary_of(session)["metrics"])
    together, alone = (found[f"{phase}.read.bandwidth_Bps"] for phase in ("shared", "storage_alone"))
    assert together / alone == pytest.approx(1, abs=0.01)
    assert alone == pytest.approx(10e6, rel=0.02)


def test_what_a_port_sent_counts_until_the_first_job_is_told_to_halt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sends while others end what they have under way is of a load that plays no more."""
    now, sent = [100.0], [0]

    def read() -> dict[ServiceLevel, int]:
        found, sent[0] = sent[0], 0
        return {ServiceLevel.HFREDUCE: found}

    def ends_slowly() -> Records:
        now[0], sent[0] = now[0] + 10, 7000
        return Records()

    monkeypatch.setattr("experiments.isolation.playing.time.monotonic", lambda: now[0])
    monkeypatch.setattr(HFReduceJob, "play", lambda job, phase: None)
    monkeypatch.setattr(HFReduceJob, "halt", lambda job: ends_slowly())
    job = object.__new__(WatchedHFReduce)
    job.play("alone")
    job.halt()
    assert job.levels_Bps == {}, "nothing is watched yet"
    job.read = read
    sent[0] = 12345
    job.play("p")
    now[0], sent[0] = now[0] + 4, 4000
    job.halt()
    assert job.levels_Bps == {ServiceLevel.HFREDUCE: 1000.0}


def test_shares_of_the_busiest_port_are_told_by_service_level() -> None:
    rows = {row[0]: row[1:] for row in rows_of(SUMMARY, "Shares")}
    lanes = CONFIG.queues.lanes
    assert rows["hfreduce"] == [f"{lanes['hfreduce'].share:.0%}", "0.0%", "10.0%"]
    assert rows["control"] == [f"{lanes['control'].share:.0%}", "0.0%", "1.0%"]
    assert rows["all"] == ["100%", "0.0%", "14.0%"]
    assert len(rows) == len(SERVICE_LEVELS) + 1


# Under heavy load -----------------------------------------------------------------------------------------------------


def heavy_summary() -> dict[str, Any]:
    """Of steps of 1 s alone, 2 s in company, and under heavy load 5 s in the shared queue and 2 s in lanes."""
    took = {"hfreduce_alone": 1.0, "nccl_alone": 1.0, "shared_heavy": 5.0}
    steps, operations = [], []
    for place, name in enumerate(HEAVY_NAMES):
        at = place * PHASE_S
        levels = [("hfreduce", 24), ("nccl", 8)] if not name.endswith("_alone") else []
        levels += [(level, 24) for level in ("hfreduce", "nccl") if name == f"{level}_alone"]
        steps += [[name, level, 0, ranks, MIB, at, at + took.get(name, 2.0)] for level, ranks in levels]
        if name not in ("hfreduce_alone", "nccl_alone", "other_alone"):
            size = 50_000 if name == "shared_heavy" else 100_000
            operations.append([name, "storage", "read", "z0h000", "st000", size, at, at + 1.0, 0])
        if name != "hfreduce_alone":
            operations.append([name, "other", "flow", "z0h000", "z0h001", 1000, at, at + 0.01, 0])
    ports = table("ports", port_rows([0] * len(HEAVY_NAMES)))
    session = FakeSession(
        HEAVY_NAMES, steps=table("steps", steps), operations=table("operations", operations), ports=ports
    )
    shares = {name: {got(level): 0.01 for level in SERVICE_LEVELS} for name in HEAVY_NAMES[4:]}
    return STUDY.summarize(cast(Session, session), HEAVY, STUDY.cases_of(HEAVY), shares)


def test_the_answer_says_what_is_kept_under_heavy_load_and_what_was_promised() -> None:
    assert heavy_summary()["answer"] == (
        "Of their bandwidth alone, HFReduce and storage reads keep, while other traffic offers 5% of every NIC's rate: "
        "50% and 100% in one shared queue (p99 of reads: 1.0 x), 50% and 100% in lanes (p99 of reads: 1.0 x); 50% of "
        "every NIC's rate: 20% and 50% in one shared queue (p99 of reads: 1.0 x), 50% and 100% in lanes (p99 of reads: "
        "1.0 x) (promised in lanes: 50% and 30%)."
    )


def test_tables_and_figures_have_the_same_port_and_cases() -> None:
    summary = heavy_summary()
    kept = {case["phase"]: case["aside"] for case in summary["cases"] if case["settings"].get("program") == HFREDUCE}
    got = {
        case["phase"]: case["aside"]["got"] for case in summary["cases"] if case["settings"].get("level") == "hfreduce"
    }
    assert list(kept) == list(got) == list(HEAVY_NAMES[4:])
    assert [one["kept"] for one in kept.values()] == pytest.approx([0.5, 0.2, 0.5, 0.5])
    assert [one["promised"] for one in kept.values()] == pytest.approx([0.5] * 4)
    (shares,) = [one for one in summary["tables"] if one.title.startswith("Shares")]
    assert [one.partition(",")[0] for one in shares.columns[2:]] == [*["one shared queue"] * 2, *["lanes"] * 2]
    assert "port z0l00:1 of 20 Mbit/s" in (shares.note_words or "")
    assert summary["busiest_port"] == "z0l00:1"
    assert shares.words[0][2:] == [f"{part:.1%}" for part in got.values()]


def test_the_tail_of_others_under_heavy_load_is_not_compared_with_a_moderate_one_alone() -> None:
    rows = {row[0]: row[-1] for row in rows_of(heavy_summary(), "Other")}
    assert rows[TITLES["shared"]] == "1.00 x"
    assert rows[TITLES["shared_heavy"]] == rows[TITLES["lanes_heavy"]] == "-"


def test_a_heavy_load_must_be_more_than_the_moderate_one() -> None:
    with pytest.raises(ConfigError, match=r"heavy_load: 0.05 is no more than background.load, 0.05; raise it"):
        resolve("isolation", ["heavy_load=0.05"])


# Runs in which little happened ----------------------------------------------------------------------------------------


def test_a_run_in_which_nothing_completed_still_says_so() -> None:
    summary = summary_of(FakeSession())
    assert summary["answer"] == (
        "Of their bandwidth alone, HFReduce and storage reads keep, while other traffic offers 5% of every NIC's rate: "
        "- and - in one shared queue (p99 of reads: -), - and - in lanes (p99 of reads: -) (promised in lanes: 50% and "
        "30%)."
    )
    assert [one.title.partition(" ")[0] for one in summary["tables"]] == ["Network", "Shares"]
    assert [row[-1] for row in rows_of(summary, "Network")] == ["0 KiB"] * 6


@pytest.mark.parametrize("phase", NAMES)
def test_a_phase_in_which_nothing_completed_leaves_the_others_told(phase: str) -> None:
    steps, operations = (
        table(name, [row for row in rows if row[0] != phase])
        for name, rows in (("steps", collective_rows()), ("operations", operation_rows()))
    )
    ports = table("ports", [row for row in port_rows([0] * 6) if cast(float, row[0]) // PHASE_S != NAMES.index(phase)])
    summary = summary_of(FakeSession(steps=steps, operations=operations, ports=ports))
    json.dumps(summary_as_json(summary), allow_nan=False)
    told = {row[0] for title in ("Allreduce", "Storage", "Other") for row in rows_of(summary, title)}
    assert told == {TITLES[name] for name in NAMES if name != phase}


# Parts ----------------------------------------------------------------------------------------------------------------


def sent(*rows: tuple[float, str, str, int]) -> pd.DataFrame:
    return table("ports", [[at, port, lane, size, 0, 0, 0, 0] for at, port, lane, size in rows])


def test_the_busiest_port_sends_the_most_over_all_its_lanes() -> None:
    ports = sent(
        *((0.0, port, lane, 1000) for port in ("z0l00:1", "z0l01:2") for lane in ("a", "b")),
        *((9.0, "z0l00:1", lane, 1600) for lane in ("a", "b")),
        *((9.0, "z0l01:2", lane, size) for lane, size in (("a", 2000), ("b", 1000))),
    )
    assert str(busiest_switch_port(ports, SMALL)) == "z0l00:1"


def test_what_was_sent_before_the_first_sample_does_not_count() -> None:
    ports = sent(
        (0.0, "z0l00:1", "a", 10**9),
        (9.0, "z0l00:1", "a", 10**9 + 5),
        (0.0, "z0l01:2", "a", 0),
        (9.0, "z0l01:2", "a", 6),
    )
    assert str(busiest_switch_port(ports, SMALL)) == "z0l01:2"


def test_ports_of_hosts_are_no_candidates() -> None:
    ports = sent(
        (0.0, "z0h000:0", "a", 0), (9.0, "z0h000:0", "a", 10**9), (0.0, "ix0:1", "a", 0), (9.0, "ix0:1", "a", 1)
    )
    assert str(busiest_switch_port(ports, SMALL)) == "ix0:1"


def test_a_port_is_busy_by_the_fraction_of_its_link() -> None:
    faster = load_fabric("fire_flyer_2_small", ["uplink_rate=200 Mbit/s"])
    uplink = next(str(link.a) for link in faster.links if link.tier.value == "uplink")
    ports = sent((0.0, uplink, "a", 0), (9.0, uplink, "a", 5000), (0.0, "z0l01:1", "a", 0), (9.0, "z0l01:1", "a", 1000))
    assert str(busiest_switch_port(ports, faster)) == "z0l01:1"


def test_the_config_at_the_true_rate_plays_four_queueings_without_congestion_control() -> None:
    config = cast(IsolationConfig, resolve(str(EXPERIMENT.folder / "true_rate.yaml"), [])[1])
    assert [queueing.value for queueing in config.queueings] == ["shared", "lanes", "lossless", "lossless_lanes"]
    assert {str(control) for control in config.congestion_controls().values()} == {"line"}
    assert config.fabric().nic_rate_bps == 200_000_000_000


def test_a_collective_without_bytes_has_no_bandwidth() -> None:
    with pytest.raises(ConfigError, match=r"nccl.size: 0 bytes of barrier have no bandwidth to keep; raise it"):
        resolve("isolation", ["nccl.collective=barrier", "nccl.size=0"])


def test_the_config_of_two_minutes_differs_by_sizes_and_times_alone() -> None:
    whole, short = (read_yaml(EXPERIMENT.folder / f"{name}.yaml") for name in ("isolation", "two_minutes"))

    def differing(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> Iterator[str]:
        assert one.keys() == other.keys(), path
        for key, value in one.items():
            if isinstance(value, Mapping):
                yield from differing(value, other[key], f"{path}{key}.")
            elif value != other[key]:
                yield f"{path}{key}"

    assert set(differing(whole, short)) == {
        "phase_attempts", "alone_time", "together_time", "hfreduce.size", "hfreduce.chunk", "nccl.size", "nccl.slice",
        "storage.checkpoint.size",
    }  # fmt: skip
    config = cast(IsolationConfig, resolve(str(EXPERIMENT.folder / "two_minutes.yaml"), [])[1])
    assert config.phase_attempts * config.alone_time >= 20, "attempts outlast 20 s of other work"
