"""What Prometheus is answered while a run plays: read by the strict parser, from beside the page."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from app.export.live_metrics import MEASURES, live_metrics, totals_now
from fabric.measure.live_file import LivePhase, LiveSeries
from fabric.report.view.live import LivePages
from fabric.report.view.serving import METRICS, serving
from fabric.tables import TABLES
from tests.live_run import RATE_BPS, Playing


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    made = Playing(tmp_path / "live")
    yield made
    made.live.reader.close()


def event(at_s: float, name: str, number: int = 0, **more: object) -> dict[str, object]:
    return {"phase": "one", "job": "platform", "at_s": at_s, "event": name, "number": number, "life": number,
            "nodes": "", "why": "", "step": -1, **more}  # fmt: skip


def failure(at_s: float, target: str, state: str, kind: str = "link") -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(TABLES["failures"].columns, "")
    times = dict.fromkeys(("due_s", "due_end_s", "asked_s", "done_s", "ended_s"), at_s)
    numbers = {"up": state == "whole", "rate_fraction": 1.0, "loss_fraction": 0.0, "waiting_packets": 0}
    return {**row, **times, **numbers, "phase": "one", "kind": kind, "target": target, "state": state}


def scraped(playing: Playing) -> dict[str, Metric]:
    """Return the families that are served, by the parser of OpenMetrics, which refuses what it does not allow."""
    live = playing.live
    with serving(LivePages(live).answer, metrics=lambda: live_metrics(live)) as address:
        with urllib.request.urlopen(urljoin(address, METRICS), timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urljoin(address, "/live"), timeout=60)
    return {one.name: one for one in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]


def values(family: Metric, *labels: str) -> dict[tuple[str, ...], float]:
    return {tuple(one.labels[label] for label in labels): one.value for one in family.samples}


def test_before_a_phase_plays_it_says_what_runs(playing: Playing) -> None:
    playing.live.name = "r1"
    found = scraped(playing)
    (info,) = found["fabric_run"].samples
    assert info.labels == {"run": "r1", "experiment": "head_of_line", "engine": "virtual"}
    assert "fabric_port_sent_bytes" not in found and "fabric_users_jobs" not in found


def test_what_plays_is_counted_with_help_and_units_of_what_is_declared(playing: Playing) -> None:
    playing.begin("One")
    playing.sample(5)
    live, port = playing.live, playing.ports[0]
    live.progress.phase, live.progress.fraction, live.progress.verdict = "One", 0.25, "faithful"
    live.rows.take("one", "failures", [failure(1.0, "a--b", "down"), failure(1.1, "c--d", "down")])
    live.rows.take("one", "failures", [failure(1.3, "c--d", "whole"), failure(1.2, "st000/1", "fails", "disk")])
    events = [
        event(1.0, "submitted", 1),
        event(1.1, "started", 1, nodes="z0h001"),
        event(1.1, "submitted", 2),
        event(1.1, "submitted", 3),
        event(1.2, "started", 3, nodes="z0h002"),
        event(1.3, "finished", 3),
        event(1.3, "node_out", nodes="z0h003"),
    ]
    live.rows.take("one", "platform_events", events)
    found = scraped(playing)
    sent = found["fabric_port_sent_bytes"]
    assert (sent.type, sent.unit) == ("counter", "bytes")
    assert sent.documentation == "Bytes sent; per lane of a port."
    assert values(sent, "port", "lane") == {(port, "shared"): 4 * 0.05 * RATE_BPS / 8}
    assert values(found["fabric_port_backlog_bytes"], "port") == {(port,): 4.0}
    assert found["fabric_port_backlog_bytes"].type == "gauge"
    assert values(found["fabric_port_idle_lanes"]) == {(): len(playing.ports) - 1}
    assert values(found["fabric_run_progress_ratio"]) == {(): 0.25}
    assert values(found["fabric_run_verdict"], "fabric_run_verdict")["faithful",] == 1
    assert values(found["fabric_failing_targets"], "kind") == {("link",): 1.0, ("disk",): 1.0}
    states = {("waiting",): 1.0, ("running",): 1.0, ("ended",): 1.0}
    assert values(found["fabric_users_jobs"], "state") == states
    assert values(found["fabric_users_nodes_out"]) == {(): 1.0}
    assert found["fabric_users_events"].type == "counter"
    assert values(found["fabric_users_events"], "event")["submitted",] == 3
    meanings = {one.meaning[1:] for one in MEASURES}
    helps = {family.documentation[1:-1] for name, family in found.items() if "users" in name or "failing" in name}
    assert helps < meanings


def series(name: str, queues: tuple[tuple[str, str], ...], *sent: list[int]) -> LiveSeries:
    phase = LivePhase(name, name, "lanes", "static", (), 0.0, queues, ("sent_bytes", "drops_packets", "backlog_bytes"))
    rows = [np.array([of, [0] * len(of), [value + 1 for value in of]], np.int64) for of in sent]
    return LiveSeries(phase, [float(at) for at in range(len(rows))], rows)


def test_counters_go_on_over_phases_and_what_queues_that_were_replaced_had_counted_is_kept() -> None:
    a, b, c = ("p:0", "x"), ("p:0", "y"), ("p:1", "x")
    found = totals_now(
        [
            series("one", (a, b), [0, 0], [100, 7]),
            series("two", (a, b), [100, 7], [150, 9]),
            series("three", (a, c), [0, 0], [30, 4]),
        ]
    )
    rows = {(row["port"], row["lane"]): row for row in found.to_dict("records")}
    assert {key: row["sent_bytes"] for key, row in rows.items()} == {a: 180, b: 9, c: 4}
    assert rows[a]["backlog_bytes"] == 31, "a gauge is as it is now"
