"""A column is declared once: a gauge and a counter that are declared while a test runs are wherever ports are looked
into."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from app.export.openmetrics import openmetrics
from app.export.perfetto import encoded
from fabric.measure.frames import ports_frame
from fabric.measure.sampling import MACHINE, STALLS, Series
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.queueing.counters import COUNTERS
from fabric.report.trace import trace_of
from fabric.report.view.document import whole_page
from fabric.report.view.grid import SAMPLED_TABLES
from fabric.report.view.live import LivePages
from fabric.report.view.model import View, view_of
from fabric.results import Result
from fabric.tables import TABLES, Column, Table
from tests.live_run import Playing
from tests.rows import table_of
from tests.synthetic_result import Recipe, write_result
from topologies.load import load_fabric

TINY = load_fabric("fire_flyer_2_tiny")
PORT = TINY.nics[0].port
NEW = {
    "backlog_packets": Column("int64", "packets", "packets in the queue", label="waiting"),
    "sent_packets": Column("int64", "packets", "packets sent", grows=True, label="packets"),
}


@pytest.fixture(autouse=True)
def ports(monkeypatch: pytest.MonkeyPatch) -> Table:
    """The table of ports, with one column more, and one that has a label."""
    before = TABLES["ports"]
    table = Table(before.row, {**before.columns, **NEW})
    monkeypatch.setitem(TABLES, "ports", table)
    return table


@pytest.fixture
def view(tmp_path: Path, ports: Table) -> View:
    names = "at_s port lane sent_bytes sent_packets backlog_packets"
    rows = table_of("ports", [(at, str(PORT), "lanes", 9, 30 * at, 5) for at in (1.0, 2.0, 3.0)], names)
    own = {"ports": rows.astype(ports.dtypes)}
    without = ("ports", "stalls", "waits")
    return view_of(Result(write_result(tmp_path / "run", Recipe("fire_flyer_2_tiny", without=without, own=own))))


def test_what_a_queue_counts_has_the_name_of_its_column(ports: Table) -> None:
    assert set(ports.sampled) <= set(COUNTERS.names or ())
    assert set(TABLES["stalls"].sampled) == set(STALLS.names or ())
    assert all(column.label for name in SAMPLED_TABLES for column in TABLES[name].labelled.values())


def test_it_is_sampled() -> None:
    counters = np.zeros((1, 1), COUNTERS)
    counters["backlog_packets"] = 5
    taken = Series([(0, 4, 1)], counters, np.zeros(1, MACHINE))
    frame = ports_frame(taken, {(0, 4): PORT}, plan_lanes(QueueConfig(), Queueing.LANES), 0.0)
    assert frame["backlog_packets"].tolist() == [5]


def test_it_is_on_the_page_of_a_run_that_plays(tmp_path: Path) -> None:
    playing = Playing(tmp_path / "live")
    playing.begin("One")
    playing.sample(2)
    answer = LivePages(playing.live).answer
    (page, rows) = (answer(path, {"phase": "0", "from": "0"}) for path in ("", "live"))
    playing.live.reader.close()
    assert page is not None
    assert rows is not None
    assert '"column": "backlog_packets", "label": "waiting"' in gzip.decompress(page.body).decode()
    (phase,) = json.loads(gzip.decompress(rows.body))["phases"]
    assert {name: phase["columns"][name] for name in NEW} == {"backlog_packets": False, "sent_packets": True}


def test_it_is_on_the_page_of_a_run_and_in_its_traces(view: View) -> None:
    page = whole_page([view]).decode()
    shown = '"column": "sent_packets", "label": "packets", "meaning": "packets sent", "factor": 1, "unit": "packets/s"'
    assert shown in page
    assert 'id="blob-r0p0-backlog_packets"' in page
    trace = trace_of(view)
    counters = {(event["name"], event["unit"]): event["args"] for event in trace.events if event["ph"] == "C"}
    assert counters[f"{PORT} waiting", "packets"] == {"lanes": 5}
    assert (f"{PORT} packets", "packets/s") in counters
    assert f'"{PORT} waiting, packets"' in "".join(trace.encoded())
    assert f"{PORT} waiting lanes".encode() in encoded(trace)


def test_a_counter_is_in_openmetrics(view: View) -> None:
    text = openmetrics(view.result)
    assert "# HELP fabric_port_sent_packets Packets sent; per lane of a port." in text
    (line,) = (line for line in text.splitlines() if line.startswith("fabric_port_sent_packets_total{"))
    assert line.endswith(" 90.0")
