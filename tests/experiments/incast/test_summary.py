"""What a run of the incast says: numbers from rows of the counted time, which limit keeps throughput, the figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.incast.config import IncastConfig
from experiments.incast.experiment import EXPERIMENT
from experiments.incast.limits import LIMITS, kept
from experiments.incast.study import STUDY, Senders
from fabric.errors import TrafficError
from fabric.metrics import by_path, metrics_of
from fabric.model.lanes import Queueing
from fabric.results import Phase
from fabric.tables import TABLES
from runs.counted_operations import counted_s
from runs.job_metrics import queue_numbers
from runs.registry import resolve
from runs.session import Session
from runs.stall_metrics import blocked_ports
from runs.study import Found, Outcome, Played
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn
from tests.rows import table_of
from topologies.load import load_fabric

PHASE = Phase("p", "A phase", "lanes", 10.0, 13.0)


def operations(*rows: tuple[float, float, int], phase: str = "p") -> pd.DataFrame:
    """Rows of started_s, ended_s, size_bytes."""
    full = [[phase, "storage", "read", "z0h000", "st001", size, began, ended, 0] for began, ended, size in rows]
    return table_of("operations", full).astype(TABLES["operations"].dtypes)


def reads_of(rows: pd.DataFrame) -> dict[str, float]:
    session, outcome = SimpleNamespace(table={"operations": rows}.__getitem__), SimpleNamespace(phase=PHASE)
    played: Any = Played(cast(Any, session), SimpleNamespace(warm_up=1.0), cast(Any, PHASE), cast(Any, outcome), {})
    return dict(played.reads())


def test_bandwidth_counts_the_parts_of_reads_in_time_and_latency_those_that_begin_in_it() -> None:
    rows = operations((10.1, 10.6, 7), (10.5, 11.5, 100), (12.0, 12.5, 300), (12.5, 99.0, 865))
    found = reads_of(rows)
    assert found["read.bandwidth_Bps"] == pytest.approx((50 + 300 + 5) / 2.0)
    assert (found["read.p50_s"], found["read.p99_s"], found["read.operations"]) == (0.5, 86.5, 2.0)


def test_a_phase_in_which_nothing_ended_has_a_bandwidth_of_nothing_and_no_latency() -> None:
    assert reads_of(operations()) == {"read.bandwidth_Bps": 0.0, "read.operations": 0.0}


def test_a_queue_is_that_of_one_port_and_lane_after_the_warm_up() -> None:
    rows = [(10.5, "a:1", "storage", 99), (11.5, "a:1", "storage", 10), (12.0, "a:1", "storage", 30)]
    rows += [(12.0, "a:1", "other", 77), (12.0, "b:1", "storage", 77)]
    full = [(at, port, lane, 0, 0, 0, backlog, 0) for at, port, lane, backlog in rows]
    ports = table_of("ports", full).astype(TABLES["ports"].dtypes)
    assert queue_numbers(ports, "a:1", "storage", counted_s(PHASE, 1.0)) == {
        "queue_mean_bytes": 20.0,
        "queue_most_bytes": 30.0,
    }
    assert queue_numbers(ports, "c:1", "storage", counted_s(PHASE, 1.0)) == {}


def test_a_queue_is_of_the_time_in_which_the_load_plays() -> None:
    full = [(at, "a:1", "storage", 0, 0, 0, backlog, 0) for at, backlog in ((11.5, 10), (12.0, 30), (12.7, 999))]
    ports = table_of("ports", full).astype(TABLES["ports"].dtypes)
    loaded = replace(PHASE, loaded_from_s=10.0, loaded_until_s=12.5)
    assert queue_numbers(ports, "a:1", "storage", counted_s(loaded, 1.0)) == {
        "queue_mean_bytes": 20.0,
        "queue_most_bytes": 30.0,
    }


def test_a_load_that_leaves_nothing_after_its_warm_up_is_an_error() -> None:
    short = replace(PHASE, loaded_from_s=10.0, loaded_until_s=10.5)
    with pytest.raises(
        TrafficError, match=r"^phase p: its load played for 500 ms, which leaves nothing to measure after"
    ):
        counted_s(short, 1.0)


def test_a_blocked_port_has_a_lane_that_stood_still_for_more_than_a_tenth_of_the_phase() -> None:
    ends = {("a:1", "x"): 0.31, ("a:1", "y"): 0.9, ("b:1", "x"): 0.29, ("c:1", "x"): 3.0}
    full = [
        (at, port, lane, 0, int(1e9 * stalled * (at > 11)), 0, 0)
        for (port, lane), stalled in ends.items()
        for at in (10.0, 13.0)
    ]
    stalls = table_of("stalls", full).astype(TABLES["stalls"].dtypes)
    assert blocked_ports(stalls, PHASE) == 2


def seen(control: str, limit: int | None, bandwidth: float, p50_s: float, servers: int = 16) -> Outcome[Senders]:
    case = Senders(Queueing.LOSSLESS_LANES, control, servers, limit)
    values = {"read.bandwidth_Bps": bandwidth, "read.p50_s": p50_s, "read.p99_s": 2 * p50_s, "queue_mean_bytes": 10.0}
    return Outcome(case, metrics_of(case.name, "", values))


def beside_each_other(*outcomes: Outcome[Senders]) -> list[Outcome[Senders]]:
    """Return outcomes that know each other."""
    others = {one.case.name: one for one in outcomes}
    return [replace(one, others=others) for one in outcomes]


FOUND = beside_each_other(
    seen("line", None, 20e9, 1e-3),
    seen("line", 8, 19.9e9, 1.5e-3),
    seen("line", 2, 19.1e9, 3e-3),
    seen("line", 1, 10e9, 6e-3),
    seen("dcqcn", None, 20e9, 1e-3),
    seen("dcqcn", 2, 5e9, 1e-3),
)


def test_the_smallest_limit_that_keeps_throughput_is_found() -> None:
    line, dcqcn = kept(FOUND, 24e9)
    assert (line.is_measured, line.case.limit, line["alone.read.p50_s"]) == (True, 2, 1e-3)
    assert line.times("read.p50_s").value == pytest.approx(3.0)
    assert not dcqcn.is_measured
    (slow,) = kept(FOUND[:1] + FOUND[3:4], 10e9)
    assert slow.is_measured
    assert not dcqcn.times("read.p50_s").is_measured


def test_a_limit_that_ends_a_collapse_is_measured_by_what_it_gives() -> None:
    found = beside_each_other(seen("line", None, 0.1e9, 1e-3), seen("line", 2, 20e9, 1e-3), seen("line", 1, 15e9, 1e-3))
    (line,) = kept(found, 24e9)
    assert (line.is_measured, line.case.limit) == (True, 2)


def found_of(*outcomes: Outcome[Senders]) -> Found[Senders, IncastConfig]:
    """Return what these cases came to, on a fabric whose NICs deliver 24 GB/s."""
    fabric = load_fabric("storage_zone_200g")
    session = SimpleNamespace(live=SimpleNamespace(fabric=fabric))
    return Found(cast(Session, session), cast(IncastConfig, None), outcomes)


def test_the_answer_names_limit_and_price_of_the_most_servers() -> None:
    told = LIMITS.answer(found_of(*FOUND, seen("line", None, 1.0, 1.0, servers=4)))
    assert told.startswith("With 16 servers, the fewest senders at once that keep 95% of the best throughput")
    assert "line in lossless lanes: 2, 19.1 for 20.0 GB/s (median 3.00 x, p99 3.00 x)" in told
    assert "dcqcn in lossless lanes: no limit keeps it." in told
    assert "add off to request_to_send" in LIMITS.answer(found_of(seen("line", 2, 1.0, 1.0)))
    rows = LIMITS.tables_of(found_of(*FOUND))[0].rows
    assert [row[3] for row in rows] == ["2", "none does"]


def session_of(config: IncastConfig) -> Any:
    playing = Senders.grid(config)
    counted = SimpleNamespace(dropped_by_queues=3, retransmissions=4, timeouts=2)
    tables = {name: TABLES[name].empty() for name in ("ports", "stalls")}
    rows = [operations((11.5, 12.0, 10**9), phase=one.name) for one in playing[1:]]
    tables["operations"] = pd.concat(rows)
    outcomes = [
        SimpleNamespace(phase=Phase(one.name, one.title, one.queueing.value, 10.0, 13.0), conservation=counted)
        for one in playing
    ]
    return SimpleNamespace(live=SimpleNamespace(fabric=config.fabric()), phases=outcomes, table=tables.__getitem__)


def test_a_run_has_a_row_and_a_figure_for_every_variant(tmp_path: Path) -> None:
    config = cast(IncastConfig, resolve("incast", ["servers=[4]", "controls=[line]", "warm_up=1", "phase_time=3"])[1])
    playing = Senders.grid(config)
    session = cast(Session, session_of(config))
    summary = STUDY.summarize(session, config, playing, {one.name: {"cuts": 0} for one in playing})
    table = summary["tables"][1]
    assert len(table.rows) == len(playing) == 8
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert by_path(summary["metrics"])["lanes_line_n4_rts_off.read.bandwidth_Bps"] == 0.0
    assert {one.name for one in summary["metrics"] if one.job == "storage"} >= {"read.bandwidth_Bps"}
    assert by_path(summary["metrics"])["lanes_line_n4_rts_8.timeouts"] == 2
    assert undeclared("incast", summary["metrics"]) == []
    assert figures_drawn(tmp_path / "result", EXPERIMENT, summary) == {"senders"}


def test_repeats_draw_it() -> None:
    assert [spec.name for spec in EXPERIMENT.load_repeated_figures()] == ["senders"]
