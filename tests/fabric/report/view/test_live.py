"""The page of a run that plays, in a real browser: it follows what the sampler writes."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver

from fabric.report.view.live import LivePages
from fabric.report.view.serving import Resource, serving
from fabric.tables import TABLES
from tests.browser import Browser, needs_browser, tab
from tests.live_run import RATE_BPS, Playing


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Playing]:
    made = Playing(tmp_path / "live")
    yield made
    made.live.reader.close()


@contextmanager
def five_samples(playing: Playing, chromium: webdriver.Chrome) -> Iterator[Browser]:
    """The page in a tab, opened before the first phase, once it shows five samples of that."""
    with serving(LivePages(playing.live).answer) as address, tab(chromium) as window:
        window.open(address, until=("waiting",))
        playing.begin("One")
        playing.sample(5)
        window.wait("document.body.dataset.samples === '5'", "five samples")
        yield window


def test_a_query_that_is_no_number_finds_nothing(playing: Playing) -> None:
    answer = LivePages(playing.live).answer
    assert answer("live", {"phase": "0", "from": "x"}) is None
    assert answer("live", {"phase": "7", "from": "0"}) is not None
    assert answer("data/x", {}) is None
    assert answer("live", {"phase": "0", "from": "9" * 5000}) is None


class SlowToLookUp(list[str]):
    """Lanes, of which each look-up takes a moment, in which another thread may come."""

    def __contains__(self, lane: object) -> bool:
        found = super().__contains__(lane)
        time.sleep(0.02)
        return found


def test_pages_that_ask_at_the_same_time_get_each_lane_once(playing: Playing) -> None:
    playing.begin("One")
    playing.sample(1)
    pages, answers = LivePages(playing.live), list[Resource | None]()
    pages._lanes = SlowToLookUp()
    asking = [
        threading.Thread(target=lambda: answers.append(pages.answer("live", {"phase": "0", "from": "0"})))
        for _ in range(4)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(30)
    assert len(answers) == 4
    for found in answers:
        assert found is not None
        assert json.loads(gzip.decompress(found.body))["lanes"] == ["shared"]


@needs_browser
def test_the_page_follows_the_run_unless_the_user_looks_back(playing: Playing, chromium: webdriver.Chrome) -> None:
    first = playing.ports[0]
    playing.live.progress.clock = "virtual time 12.50 s"
    with five_samples(playing, chromium) as window:
        assert window.run("return fabricView.first.sample") == 4
        share = f"fabricView.maps[0].values[fabricView.first.run.portOf.get('{first}')] / {RATE_BPS}"
        assert window.run(f"return {share}") == pytest.approx(0.5)
        assert "virtual time 12.50 s" in window.run("return document.getElementById('notes').textContent")
        playing.sample(3)
        window.wait("document.body.dataset.samples === '8'", "eight samples")
        assert window.run("return fabricView.first.sample") == 7
        window.run("fabricView.moveTo(1.25)")
        playing.live.progress.verdict = "faithful"
        playing.begin("Two")
        playing.sample(4)
        window.wait("document.body.dataset.samples === '12'", "twelve samples")
        assert window.run("return [fabricView.first.phase.meta.name, fabricView.first.sample]") == ["one", 2]
        assert window.run("return document.getElementById('verdict').textContent") == "faithful so far"
        assert window.errors() == []


@needs_browser
def test_the_page_goes_on_to_a_phase_that_has_no_samples_when_the_one_before_ends(
    playing: Playing, chromium: webdriver.Chrome
) -> None:
    with five_samples(playing, chromium) as window:
        playing.sample(2)
        playing.begin("Two")
        window.wait("fabricView.main.run.phases.length === 2", "the second phase")
        playing.sample(3)
        window.wait("document.body.dataset.samples === '10'", "three more samples")
        assert window.run("return [fabricView.first.phase.meta.name, fabricView.first.sample]") == ["two", 2]


@needs_browser
def test_a_port_can_be_clicked_and_every_metric_chosen_while_the_run_plays(
    playing: Playing, chromium: webdriver.Chrome
) -> None:
    with five_samples(playing, chromium) as window:
        window.run(
            "const map = fabricView.maps[0], {ports} = map.run.fabric, {xs, ys, xe, ye} = map.placed;"
            "const i = map.scene.halves.findIndex(half => ports[half.ports[0]] === arguments[0]);"
            "fabricView.clicked(map, map.hit((xs[i] + 3 * xe[i]) / 4, (ys[i] + 3 * ye[i]) / 4));",
            playing.ports[0],
        )
        assert window.run("return fabricView.chosen.kind") == "port"
        values = {}
        for metric in window.run("return [...document.getElementById('metric').options].map(one => one.value)"):
            window.run(
                "const select = document.getElementById('metric'); select.value = arguments[0];"
                "select.dispatchEvent(new Event('change'))",
                metric,
            )
            values[metric] = window.run("return fabricView.maps[0].values[fabricView.chosen.port]")
        expected = {"rate": RATE_BPS / 2, "backlog": 4, "drops": 0, "marks": 30}
        assert {name: values[name] for name in expected} == pytest.approx(expected)
        playing.sample(3)
        window.wait("document.body.dataset.samples === '8'", "three more samples, with a port chosen")
        assert window.errors() == []


def test_what_grows_is_what_the_tables_say(playing: Playing) -> None:
    playing.begin("One")
    found = LivePages(playing.live).answer("live", {"phase": "0", "from": "0"})
    assert found is not None
    (phase,) = json.loads(gzip.decompress(found.body))["phases"]
    assert phase["columns"] == {name: column.grows for name, column in TABLES["ports"].labelled.items()}
    assert (phase["columns"]["sent_bytes"], phase["columns"]["backlog_bytes"]) == (True, False)


@needs_browser
def test_cuts_users_jobs_and_events_are_shown_as_they_come(playing: Playing, chromium: webdriver.Chrome) -> None:
    link = playing.live.fabric["links"][0]
    row: dict[str, object] = dict.fromkeys(TABLES["failures"].columns, "")
    row |= {"phase": "one", "kind": "link", "target": f"{link['a']}--{link['b']}", "state": "down", "up": False}
    row |= {"rate_fraction": 1.0, "loss_fraction": 0.0, "waiting_packets": 0, "asked_by": "by hand"}
    row |= dict.fromkeys(("due_s", "due_end_s", "asked_s", "done_s", "ended_s"), 1.2)
    common = {"phase": "one", "job": "platform", "number": 1, "life": 1, "why": "", "step": -1, "nodes": ""}
    submitted = {**common, "at_s": 1.0, "event": "submitted", "why": "pretrain"}
    started = {**common, "at_s": 1.1, "event": "started", "nodes": str(playing.live.fabric["nodes"][-1]["name"])}
    overview = "return document.getElementById('panel').textContent"
    cuts = "return fabricView.cutsIn(fabricView.first).size"
    with five_samples(playing, chromium) as window:
        assert "Users' jobs" not in window.run(overview)
        playing.live.rows.take("one", "platform_events", [submitted, started])
        playing.live.rows.take("one", "failures", [row])
        playing.sample(1)
        window.wait("document.getElementById('panel').textContent.includes('no carrier, by hand')", "the cut")
        window.wait("document.body.dataset.samples === '6'", "a sample")
        assert window.run("return !document.getElementById('users').hidden")
        assert window.run(cuts) > 0
        playing.sample(4)
        window.wait("document.body.dataset.samples === '10'", "more samples, and no more rows")
        assert "runs on" in window.run(overview), "until now"
        finished = {**common, "at_s": 1.85, "event": "finished"}
        playing.live.rows.take("one", "platform_events", [finished])
        playing.live.rows.take("one", "failures", [{**row, "state": "whole", "up": True, "done_s": 1.8}])
        playing.sample(1)
        window.wait("document.getElementById('panel').textContent.includes('whole again')", "the end of the cut")
        window.wait("document.body.dataset.samples === '11'", "a sample")
        assert window.run(cuts) == 0
        assert "ended" in window.run(overview)
        assert window.errors() == []
