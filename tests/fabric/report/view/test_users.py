"""Users' jobs on the page and in the trace: in a real browser, what it shows is what the tables say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from fabric.report.trace import write_trace
from fabric.report.view.document import write_page
from fabric.report.view.model import View, Ways, view_of
from fabric.results import Phase
from tests.browser import Browser, needs_browser, tab
from tests.platform_result import BEGAN_S, platform_result


def one_way(phase: Phase, flows: Any) -> list[tuple[tuple[str, ...], ...]]:
    """Return the NIC of each flow's host as its only way; every flow goes somewhere."""
    assert all(flow.peer for flow in flows), phase
    return [((f"{flow.host}:0",),) for flow in flows]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    result = platform_result(tmp_path_factory.mktemp("result") / "one")
    return view_of(result, Ways(one_way))


@pytest.fixture(scope="module")
def window(view: View, tmp_path_factory: pytest.TempPathFactory, chromium: webdriver.Chrome) -> Iterator[Browser]:
    path = tmp_path_factory.mktemp("page") / "view.html"
    assert write_page([view], path) == []
    with tab(chromium) as found:
        found.open(path.as_uri())
        yield found


def rows(window: Browser, title: str) -> list[list[str]]:
    """Return the cells of the table below a title of the panel."""
    found: list[list[str]] = window.run(
        "const head = [...document.querySelectorAll('#panel h2, #panel h3')]"
        "    .find(one => one.textContent.includes(arguments[0]));"
        "let next = head; do next = next.nextElementSibling; while (!next.matches('table, .wraps'));"
        "return [...next.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent.trim()))",
        title,
    )
    return found


def choose(window: Browser, name: str, value: str) -> None:
    window.run(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change', {bubbles: true}))",
        name,
        value,
    )


@needs_browser
def test_the_overview_has_users_jobs_as_they_are_at_the_time_of_the_slider(window: Browser) -> None:
    window.run("fabricView.choose(null); return fabricView.moveTo(arguments[0])", BEGAN_S + 2.5)
    assert rows(window, "Users' jobs") == [
        ["low", "ada", "NORMAL", "2", "2", "told: suspended"],
        ["high", "bo", "HIGH", "1", "1", "waits"],
    ]
    window.run("return fabricView.moveTo(arguments[0])", BEGAN_S + 4)
    assert [row[-1] for row in rows(window, "Users' jobs")] == ["waits", "runs on z0h001"]
    assert window.errors() == []


@needs_browser
def test_rows_of_the_axis_have_names_and_can_be_filtered(window: Browser) -> None:
    names = "return [...document.querySelectorAll('#rownames b')].map(one => one.textContent)"
    window.run("fabricView.choose(null)")
    nodes = ["z0h001", "z0h002", "z1h000"]
    shown = [name for name in window.run(names) if name]
    assert shown[-6:] == ["high", "low", *nodes, "events"], "by priority, then nodes"
    choose(window, "rows", "held")
    assert [name for name in window.run(names) if name] == nodes
    choose(window, "rows", "")
    choose(window, "who", "bo")
    assert [row[0] for row in rows(window, "Users' jobs")] == ["high"]
    assert {row[2] for row in rows(window, "What happened")} == {"high"}
    choose(window, "who", "")
    assert len(rows(window, "What happened")) == 10
    assert window.errors() == []


@needs_browser
def test_a_click_on_a_job_of_the_axis_shows_its_lives_and_reasons(window: Browser) -> None:
    window.run("fabricView.choose(null)")
    x, y = window.run(
        "const axis = fabricView.axis;"
        "const box = axis.boxes.find(box => box.one.kind === 'life' && box.one.label === 'low');"
        "const at = axis.canvas.getBoundingClientRect();"
        "return [at.left + (box.left + box.right) / 2, at.top + (box.top + box.bottom) / 2]"
    )
    window.run(
        "const where = {bubbles: true, clientX: arguments[0], clientY: arguments[1]};"
        "document.getElementById('axis').dispatchEvent(new MouseEvent('click', where))",
        x,
        y,
    )
    window.wait("fabricView.chosen && fabricView.chosen.kind === 'userjob'", "the job to be chosen")
    assert rows(window, "its lives") == [
        ["1", "z0h001 z1h000", "0.2 s to 3.0 s", "suspended, step 3 saved"],
        ["2", "z0h001 z0h002", "6.5 s to 10.0 s", "goes on"],
    ]
    assert "life 1 ended: job 2 comes first, and needs its nodes" in window.run(
        "return document.getElementById('panel').textContent"
    )
    window.run("fabricView.choose({ kind: 'node', node: 'z1h000' })")
    assert [row[0] for row in rows(window, "who had it")] == ["low", "out"]
    assert window.errors() == []


def test_the_trace_has_tracks_of_jobs_and_of_nodes(view: View, tmp_path: Path) -> None:
    assert write_trace(view, tmp_path / "timeline.json") == []
    events: list[dict[str, Any]] = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    processes = {event["args"]["name"]: event["pid"] for event in events if event["name"] == "process_name"}

    def slices(process: str, thread: str) -> list[tuple[str, float, float]]:
        pid = processes[process]
        (tid,) = (
            event["tid"]
            for event in events
            if (event["name"], event["pid"], event.get("args", {}).get("name")) == ("thread_name", pid, thread)
        )
        found = (event for event in events if (event["ph"], event["pid"], event["tid"]) == ("X", pid, tid))
        return [(one["name"], round(one["ts"] / 1e6 - BEGAN_S, 3), round(one["dur"] / 1e6, 3)) for one in found]

    assert slices("users' jobs of platform", "low (ada, NORMAL)") == [
        ("waits", 0.0, 0.2),
        ("life 1", 0.2, 2.8),
        ("told: suspend", 2.1, 0.9),
        ("waits", 3.0, 3.5),
        ("life 2", 6.5, 3.5),
    ]
    assert slices("nodes of platform", "z0h001") == [("low", 0.2, 2.8), ("high", 3.1, 2.9), ("low", 6.5, 3.5)]
    assert slices("nodes of platform", "z1h000 out") == [("out", 5.0, 3.0)]
    instants = [
        event["name"] for event in events if event["ph"] == "i" and event["pid"] == processes["users' jobs of platform"]
    ]
    assert instants[:3] == ["submitted low", "started low", "submitted high"]


def test_a_write_to_a_file_is_no_flow_and_yet_in_the_trace(view: View, tmp_path: Path) -> None:
    """Else no result with a load of files could be looked into: nobody knows the way to no peer."""
    assert "fs" not in {row.job for flows in view.flows for row in flows.rows}
    assert write_trace(view, tmp_path / "timeline.json") == []
    events: list[dict[str, Any]] = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "fs" and event["ph"] == "b"] == ["z0h005 write"]
