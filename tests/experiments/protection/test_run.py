"""What the protection experiment plays, and what it says of the rows of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.protection.cases import Beside
from experiments.protection.config import LoadPoint, ProtectionConfig
from experiments.protection.study import STUDY
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.lanes import Queueing
from fabric.records.conservation import Conservation
from fabric.results import Phase
from fabric.tables import TABLES
from runs.registry import EXPERIMENTS, resolve
from runs.session import PhaseOutcome, Session
from tests.experiments.declared import undeclared
from tests.rows import table_of
from traffic.job import Records

FEW = ["other_loads=[0, 2]", "storage_depths=[0, 8]", "warm_up=2 s", "phase_time=10 s"]
CONFIG = cast(ProtectionConfig, resolve("protection", FEW)[1])
PHASE_S = 20.0
SENT = 4.0
"""What all ranks send in a step, over its size."""
ALONE = ("hfreduce_alone", "storage_alone")
CASES = STUDY.cases_of(CONFIG)
PLAYED = [case.name for case in CASES if isinstance(case, Beside)]
HFREDUCE_BPS = {"hfreduce_alone": 800_000, "shared_other_2_depth_2": 80_000, "lanes_other_2_depth_2": 480_000}
READ_BPS = {"storage_alone": 10e6, "shared_other_2_depth_2": 1e6, "lanes_other_2_depth_2": 6e6}
"""What each has where it is not said otherwise: 400,000 and 5,000,000."""


def table(name: str, rows: list[list[object]]) -> pd.DataFrame:
    columns = TABLES[name].dtypes
    return table_of(name, rows).astype(columns)


def outcome(place: int, name: str) -> PhaseOutcome:
    started = place * PHASE_S
    counted = Conservation(1000, 10**6, 10**6, place, 0, 0, {}, 0, 7)
    phase = Phase(
        name, f"title of {name}", name.partition("_")[0], started, started + PHASE_S, "", started, started + 10.0
    )
    return PhaseOutcome(phase, Records(), counted, TABLES["machine"].empty())


def flow_rows(place: int, name: str) -> list[list[object]]:
    """Two connections of one pair: nothing in the warm-up, then the rate, and far more when the phase is over."""
    begun = place * PHASE_S
    bytes_each = HFREDUCE_BPS.get(name, 400_000) * SENT * 8 / 2
    samples = ((0.0, 0.0), (2.0, 0.0), (10.0, bytes_each), (15.0, 100 * bytes_each))
    return [
        [begun + at, name, "hfreduce", "z0h000", "z0h001", 0.01, 0, 5000 + acked]
        for at, acked in samples
        for _ in range(2)
    ]


def operation_rows(place: int, name: str) -> list[list[object]]:
    """A read in the warm-up, four when all is measured, and one when it is over."""
    begun = place * PHASE_S
    size = READ_BPS.get(name, 5e6) * 8 / 4
    ends = (1.0, 3.0, 5.0, 7.0, 9.0, 12.0)
    rows: list[list[object]] = [
        [name, "storage", "read", "z0h000", "st000", size, begun + end - 0.5, begun + end, 0] for end in ends
    ]
    if "other_2" in name:
        refused = begun + (1 if name.startswith("shared") else 3)
        rows.append([name, "other", "flow_refused", "z0h000", "z0h001", 1000, refused, refused, 0])
        rows.append([name, "other", "flow", "z0h000", "z0h001", 8000, begun + 3, begun + 4, 0])
    return rows


def summary() -> dict[str, Any]:
    names = [*ALONE, *PLAYED]
    with_hfreduce = [(place, name) for place, name in enumerate(names) if name != "storage_alone"]
    with_reads = [
        (place, name) for place, name in enumerate(names) if name != "hfreduce_alone" and "depth_0" not in name
    ]
    tables = {
        "flows": table("flows", [row for place, name in with_hfreduce for row in flow_rows(place, name)]),
        "operations": table("operations", [row for place, name in with_reads for row in operation_rows(place, name)]),
    }
    phases = [outcome(place, name) for place, name in enumerate(names)]
    session = SimpleNamespace(phases=phases, table=lambda name: tables[name])
    counted = {case.name: {"hfreduce.sent_over_size": SENT} for case in CASES}
    return STUDY.summarize(cast(Session, session), CONFIG, CASES, counted)


SUMMARY = summary()


def test_every_load_is_played_once() -> None:
    assert CONFIG.points == [LoadPoint(0, 2), LoadPoint(2, 2), LoadPoint(0, 0), LoadPoint(0, 8)]
    assert CONFIG.beside_storage == [LoadPoint(0, 0), LoadPoint(0, 2), LoadPoint(0, 8)]
    assert len(set(PLAYED)) == len(PLAYED) == 8


def test_bandwidth_counts_what_was_delivered_while_it_was_measured_and_steps_that_did_not_end() -> None:
    metrics = by_path(SUMMARY["metrics"])
    assert undeclared("protection", SUMMARY["metrics"]) == []
    assert {one.name for one in SUMMARY["metrics"] if one.job == "storage"} >= {"read.bandwidth_Bps", "read.p99_s"}
    assert {one.name for one in SUMMARY["metrics"] if one.job == "other"} >= {"bandwidth_Bps", "p99_s"}
    assert metrics["hfreduce_alone.hfreduce.algbw_Bps"] == pytest.approx(800_000)
    assert metrics["lanes_other_2_depth_2.hfreduce.algbw_Bps"] == pytest.approx(480_000)
    assert metrics["storage_alone.read.bandwidth_Bps"] == pytest.approx(10e6)
    assert metrics["shared_other_2_depth_2.read.bandwidth_Bps"] == pytest.approx(1e6)
    assert metrics["shared_other_2_depth_2.other.bandwidth_Bps"] == pytest.approx(1000)
    assert metrics["shared_other_2_depth_2.other.refused"] == 0, "it came while HFReduce warmed up"
    assert metrics["lanes_other_2_depth_2.other.refused"] == 1
    assert metrics["shared_other_2_depth_2.other.p99_s"] == pytest.approx(1.0)
    assert metrics["lanes_other_2_depth_2.other.p99_at_least_s"] == pytest.approx(1.0)
    assert "lanes_other_2_depth_2.other.p99_s" not in metrics
    assert "hfreduce_alone.read.bandwidth_Bps" not in metrics


def test_a_lane_promises_its_share_of_what_a_program_has_alone() -> None:
    assert CONFIG.queues.promised["hfreduce"] == pytest.approx(0.5)
    part_unpromised = cast(ProtectionConfig, resolve("protection", ["queues.lanes.nccl.share=0.05"])[1])
    assert part_unpromised.queues.promised["hfreduce"] == pytest.approx(0.5 / 0.95)


def test_panels_hold_each_queueing_over_the_load_beside_the_promise() -> None:
    def shown(panel: str, queueing: str) -> dict[str, float]:
        parts = [one for one in SUMMARY["cases"] if one["settings"].get("panel") == panel]
        return {
            one["settings"]["load"]: one["aside"]["left"] for one in parts if one["settings"]["queueing"] == queueing
        }

    others, storage = "HFReduce, algbw, with storage and others", "HFReduce, algbw, with storage only"
    assert shown(others, "one shared queue") == pytest.approx({"0": 0.5, "200": 0.1})
    assert shown(others, "lanes") == pytest.approx({"0": 0.5, "200": 0.6})
    assert shown("Storage reads with HFReduce and others", "lanes") == pytest.approx({"0": 0.5, "200": 0.6})
    assert shown(storage, "lanes") == pytest.approx({"0": 0.5, "2": 0.5, "8": 0.5})
    promised = {
        one["settings"]["panel"]: one["aside"]["promised"] for one in SUMMARY["cases"] if "panel" in one["settings"]
    }
    assert list(promised.values()) == pytest.approx([0.5, 0.3, 0.5])


def test_phases_have_the_names_that_results_of_before_have() -> None:
    assert Beside(Queueing.SHARED, LoadPoint(0.25, 2)).name == "shared_other_0.25_depth_2"
    assert Beside(Queueing.LANES, LoadPoint(2.0, 0)).title == "no storage, others at 200%, in lanes"


def test_the_answer_is_of_the_greatest_load() -> None:
    assert SUMMARY["answer"] == (
        "Of their bandwidth alone, HFReduce and storage reads keep, next to flows that offer 200% of every NIC's rate: "
        "10% and 10% in one shared queue, 60% and 60% in lanes; lanes promise 50% (hfreduce) and 30% (storage)."
    )


def test_every_row_of_every_table_has_a_cell_for_each_column() -> None:
    assert len(SUMMARY["tables"]) == 4
    for one in SUMMARY["tables"]:
        assert one.words
        assert {len(row) for row in one.words} == {len(one.columns)}


def test_the_table_says_what_is_left_at_each_load() -> None:
    rows = SUMMARY["tables"][0].words
    assert [row[:2] for row in rows] == [
        ["0%", "one shared queue"],
        ["", "lanes"],
        ["200%", "one shared queue"],
        ["", "lanes"],
    ]
    assert rows[3][2:6] == ["0.480 MB/s", "60%", "6.000 MB/s", "60%"]


def test_a_table_says_what_did_not_complete_and_that_its_time_is_not_known() -> None:
    (table,) = (one for one in SUMMARY["tables"] if one.title.startswith("Completion"))
    rows = {(row[0], row[1], row[2]): row[3:] for row in table.words}
    assert rows["200%", "2", "one shared queue"] == ["500 ms", "0", "1 s", "1", "0", "0", "0"]
    assert rows["200%", "2", "lanes"] == ["500 ms", "0", "> 1 s", "1", "0", "0", "1"]
    assert rows["0%", "0", "lanes"] == ["-"] * 7


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("other_loads=[0, 2, 1]", "does not rise"),
        ("other_loads=[-1, 2]", "other_loads"),
        ("storage_depths=[1, 1]", "does not rise"),
        ("warm_up=8 s", "warm_up: 8 s leaves nothing of phase_time, 8 s; lower it"),
        (
            "phase_time=2.0001 s",
            "phase_time: of 2 s warm_up leaves 100 us, in which nothing can be measured: 32 frames take",
        ),
        ("topology.storage=0", "0 storage nodes, but the experiment protects storage"),
        ("storage.dataloader.share=0", "nobody reads"),
    ],
)
def test_what_cannot_be_played_is_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve("protection", [override])


def test_without_depths_there_is_no_panel_of_storage() -> None:
    config = cast(ProtectionConfig, resolve("protection", ["storage_depths=[]"])[1])
    assert config.beside_storage == []
    assert config.points == config.beside_others


def test_isolation_leads_to_it() -> None:
    assert EXPERIMENTS["isolation"].see_also.startswith("fabric run protection: ")


def test_queueings_played_are_those_of_the_config() -> None:
    assert CONFIG.queueings_played == (Queueing.SHARED, Queueing.LANES)
