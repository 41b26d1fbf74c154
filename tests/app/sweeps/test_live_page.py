"""The page of a sweep that plays: the state of each run, the map of one that plays, pages of those that have ended."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from app.sweeps import live_page
from app.sweeps.live_page import StudyPages
from app.sweeps.planning import PlannedRun
from app.sweeps.store import Store
from app.sweeps.tally import Tally
from fabric.errors import EmulationError
from fabric.report.view.live import Live
from fabric.report.view.serving import serving
from runs.launching import launcher
from runs.launching.events import Event, PhaseProgress
from runs.launching.spec import Prepared
from tests.app.sweeps.plain_runs import planned
from tests.app.sweeps.plain_runs import play as leave_result
from tests.browser import needs_browser, tab
from tests.live_run import Playing
from tests.synthetic_result import Recipe, write_result


class Study:
    """Twelve runs, of which those that a test plays write samples of :class:`Playing` and end as it says."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan, self.store = planned(), Store(directory / "sweep")
        self.store.open(self.plan)
        self.pages = StudyPages(self.plan, self.store)
        self.samples: Playing | None = None
        self._meanwhile: Callable[[], None] = lambda: None
        self._ends: Callable[[Prepared], None] = lambda prepared: None

        @contextmanager
        def watched(prepared: Prepared) -> Iterator[tuple[Prepared, Live]]:
            self.samples = Playing(directory / f"{Path(prepared.order.directory).name}.live")
            yield prepared, replace(self.samples.live, name=Path(prepared.order.directory).name)
            self.samples.live.reader.close()

        def play(prepared: Prepared, report: Callable[[Event], None]) -> None:
            report(PhaseProgress("Steps", 0.25))
            self._meanwhile()
            self._ends(prepared)

        monkeypatch.setattr(live_page, "watched", watched)
        monkeypatch.setattr(launcher, "play", play)

    def play(self, run: PlannedRun, meanwhile: Callable[[], None], status: str | None = "faithful") -> None:
        """Play a run, at which ``meanwhile`` looks; ``status`` None: it fails."""
        spec = replace(run.spec, directory=self.store.run_directory(run.key))

        def end(prepared: Prepared) -> None:
            if status is None:
                raise EmulationError("no switch came up")
            leave_result(spec, lambda event: None, status)

        self._meanwhile, self._ends = meanwhile, end
        try:
            self.pages.play(spec, lambda event: None)
        except EmulationError as error:
            self.store.keep_error(run.key, str(error))

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each run, as the page has it."""
        points = self.asked("study")["points"]
        return [run for point in points for run in point["runs"]]

    def asked(self, path: str) -> Any:
        """Return what a path holds, read."""
        found = self.pages.answer(path, {})
        assert found is not None
        return json.loads(gzip.decompress(found.body))


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    return Study(tmp_path, monkeypatch)


def test_each_run_has_its_state_at_its_point(study: Study) -> None:
    study.pages.show(Tally(12, 0, 0.0, running=1))
    first, second, third, *rest = study.plan.runs
    seen: list[dict[str, Any]] = []
    study.play(first, lambda: seen.extend(study.states()))
    study.play(second, lambda: None, "invalid")
    study.play(third, lambda: None, None)
    assert (seen[0]["state"], seen[0]["fraction"], seen[0]["words"]) == ("playing", 0.25, "Steps")
    found = study.states()
    assert [run["state"] for run in found[:3]] == ["faithful", "invalid", "failed"]
    assert "the machine was busy" in found[1]["words"]
    assert found[2]["words"] == "no switch came up"
    assert {run["state"] for run in found[3:]} == {"waiting"}
    assert [run["seed"] for run in found[:4]] == [1, 2, 3, 1]
    assert len(rest) == len(found) - 3
    answer = study.asked("study")
    assert answer["points"][1]["values"] == ["0.1", "lanes"]
    assert answer["counts"]["done"] == "0 of 12"


def test_samples_are_those_of_the_run_that_is_asked_for_and_only_while_it_plays(study: Study) -> None:
    first, second, *_ = study.plan.runs

    def look() -> None:
        assert study.samples is not None
        study.samples.begin("One")
        study.samples.sample(3)
        assert study.asked(f"run/{first.key}/live")["phases"][0]["samples"] == 3
        assert "phases" not in study.asked(f"run/{second.key}/live")

    study.play(first, look)
    assert study.asked(f"run/{first.key}/live") == {"has_ended": True}
    found = study.pages.answer(f"run/{first.key}/", {})
    assert found is not None
    assert b"has no samples of ports" in found.body
    for path in ("run/other/", f"run/{first.key}", f"run/{second.key}/", "data/x"):
        assert study.pages.answer(path, {}) is None


@needs_browser
def test_the_page_shows_the_grid_and_goes_on_to_the_run_that_plays(
    study: Study, chromium: webdriver.Chrome, tmp_path: Path
) -> None:
    first, second, *_ = study.plan.runs
    chips = "[...document.querySelectorAll('#grid .chip')].map(one => [one.className, one.textContent])"
    with serving(study.pages.answer) as address, tab(chromium) as window:
        window.driver.get(address)
        window.wait("document.body.dataset.study === 'live'", "the grid")
        assert window.run(f"return {chips}")[0] == ["chip waiting", "1"]

        def look_at(run: PlannedRun) -> None:
            assert study.samples is not None
            study.samples.begin("One")
            study.samples.sample(5)
            window.wait(f"window.fabricView && DATA.study.shown === '{run.key}'", "the run's map")
            window.wait("document.body.dataset.samples === '5'", "its samples")
            assert ["chip playing shown", f"{run.seed}: 25 %"] in window.run(f"return {chips}")

        study.play(first, lambda: look_at(first))
        study.play(second, lambda: look_at(second), "degraded")
        window.wait("document.querySelectorAll('#grid .degraded').length === 1", "the second verdict")
        assert [name for name, _ in window.run(f"return {chips}")][:3] == [
            "chip faithful",
            "chip degraded shown",
            "chip waiting",
        ]
        window.wait("document.getElementById('notes').textContent === 'this run has ended'", "that it has ended")
    window_of_result(study, chromium, study.plan.runs[2], tmp_path)


def window_of_result(study: Study, chromium: webdriver.Chrome, run: PlannedRun, tmp_path: Path) -> None:
    """Look at the page of a run that has ended, which has samples."""
    write_result(tmp_path / "whole", Recipe(experiment="isolation")).rename(study.store.run_directory(run.key))
    with serving(study.pages.answer) as address, tab(chromium) as window:
        window.open(f"{address}run/{run.key}/")
        assert window.run("return document.body.dataset.state") == "complete"
        assert window.errors() == []
