"""A sweep that is interrupted, has failures and invalid runs, and goes on. Runs take no time here, or wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from app.sweeps.local import LocalExecutor, cores_for
from app.sweeps.store import Store
from app.sweeps.tables import medians_table, runs_table
from app.sweeps.tally import Tally
from fabric.errors import EmulationError, ResultError, UsageError
from runs.launching.events import Event
from runs.launching.spec import RunSpec
from tests.app.sweeps.plain_runs import METRIC, SHARE, InTurn, planned, play, swept


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    first, second = InTurn(), InTurn()
    swept(planned(grid={SHARE: [0.1]}), tmp_path, first)
    swept(planned(grid={SHARE: [0.1, 0.3]}), tmp_path, second)
    assert len(first.keys) == len(second.keys) == 3
    assert not set(first.keys) & set(second.keys)


def test_the_tables_have_a_row_per_run_and_the_median_with_its_interval_per_setting(tmp_path: Path) -> None:
    found = swept(planned(grid={SHARE: [0.1, 0.3]}), tmp_path, InTurn())
    assert found.exit_code == 0
    runs = pd.read_parquet(tmp_path / "runs.parquet")
    assert runs[["seed", SHARE, METRIC]].values.tolist()[2:4] == [[3, 0.1, 103.0], [1, 0.3, 301.0]]
    assert list(pd.read_csv(tmp_path / "runs.csv")["run"]) == list(runs["run"])
    medians = pd.read_csv(tmp_path / "medians.csv")
    assert medians[["median", "low", "high", "runs", "left_out"]].values.tolist() == [
        [102, 101, 103, 3, 0], [302, 301, 303, 3, 0],
    ]  # fmt: skip
    assert list(medians["unit"]) == ["B/s", "B/s"]


def test_the_table_is_the_same_in_whatever_order_runs_ended(tmp_path: Path) -> None:
    swept(planned(), tmp_path / "a", InTurn())
    swept(planned(), tmp_path / "b", InTurn(ordered=lambda runs: list(runs)[::-1]))
    assert (tmp_path / "a" / "runs.csv").read_bytes() == (tmp_path / "b" / "runs.csv").read_bytes()


def busy_with_seed_2(spec: RunSpec, report: Callable[[Event], None]) -> None:
    play(spec, report, "invalid" if spec.seed == 2 else "faithful")


def test_invalid_runs_are_kept_marked_left_out_counted_and_not_run_again(tmp_path: Path) -> None:
    plan, tallies, again = planned(grid={SHARE: [0.1]}), list[Tally](), InTurn()
    found = swept(plan, tmp_path, InTurn(busy_with_seed_2), tallies)
    assert list(found.runs["verdict"]) == ["faithful", "invalid", "faithful"]
    assert found.runs["reasons"][1] == "the machine was busy"
    assert found.medians[["median", "runs", "left_out"]].values.tolist() == [[102.0, 2, 1]]
    assert (tallies[-1].done, tallies[-1].invalid, found.exit_code) == (3, 1, 0)
    swept(plan, tmp_path, again)
    assert again.keys == []


def test_a_setting_without_a_run_to_believe_is_told_by_the_exit_code(tmp_path: Path) -> None:
    assert swept(planned(), tmp_path, InTurn(partial(play, status="invalid"))).exit_code == 3


def fails_with_seed_2(spec: RunSpec, report: Callable[[Event], None]) -> None:
    if spec.seed == 2:
        assert spec.directory is not None
        spec.directory.with_name(spec.directory.name + ".failed-logs").mkdir()
        raise EmulationError("a rank died")
    play(spec, report)


def test_failed_runs_are_told_and_run_again(tmp_path: Path) -> None:
    plan, again = planned(grid={SHARE: [0.1]}), InTurn()
    found = swept(plan, tmp_path, InTurn(fails_with_seed_2))
    assert (found.exit_code, list(found.runs["verdict"])) == (1, ["faithful", "failed", "faithful"])
    assert found.failures == [(plan.runs[1].key, "a rank died")]
    assert found.medians["left_out"].tolist() == [1]
    found = swept(plan, tmp_path, again)
    assert again.keys == [plan.runs[1].key]
    assert (found.exit_code, sorted(path.name for path in (tmp_path / "runs").iterdir())) == (
        0,
        sorted(run.key for run in plan.runs),
    )


def test_a_directory_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="exists and is not a sweep's"):
        swept(planned(), tmp_path, InTurn())


def test_two_sweeps_in_one_directory_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open(planned())
    with store.locked(), pytest.raises(ResultError, match="another sweep is at work in it"):
        swept(planned(), tmp_path, InTurn())


SCRIPT = """
import sys, time
from pathlib import Path
from fabric.world.virtual_time import VirtualEngine
VirtualEngine.kernel = lambda self: "linux-6.1-a-b"
from app.sweeps import local
from app.sweeps.local import LocalExecutor
from tests.app.sweeps.plain_runs import play, planned, swept

local.available_bytes = lambda: 1 << 40  # What else runs here is not to leave room for one only.

def slow(spec, report):
    if spec.seed > 1:
        Path(str(spec.directory) + ".partial").mkdir()
        time.sleep(60)
    play(spec, report)

swept(planned(), Path(sys.argv[1]), LocalExecutor(2, slow))
"""


def test_a_sweep_that_is_killed_loses_no_finished_run(tmp_path: Path) -> None:
    plan, store, again = planned(), Store(tmp_path), InTurn()
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)])
    try:
        deadline = time.monotonic() + 60
        while not (store.is_finished(plan.runs[0].key) and len(list((tmp_path / "runs").glob("*.partial"))) == 2):
            assert time.monotonic() < deadline, "waited 60 s for a finished run and two half-way"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    written = (tmp_path / "runs" / plan.runs[0].key / "manifest.json").stat().st_mtime_ns
    found = swept(plan, tmp_path, again)
    assert again.keys == [run.key for run in plan.runs if run.seed > 1 or run.key != plan.runs[0].key]
    assert (tmp_path / "runs" / plan.runs[0].key / "manifest.json").stat().st_mtime_ns == written
    assert list(found.runs["verdict"]) == ["faithful"] * 12
    assert not list((tmp_path / "runs").glob("*.partial"))


def test_runs_at_a_time_are_each_on_a_core_of_its_own(tmp_path: Path) -> None:
    seen: list[set[int]] = []

    def look(spec: RunSpec, report: Callable[[Event], None]) -> None:
        seen.append(os.sched_getaffinity(0))
        time.sleep(0.05)
        play(spec, report)

    before = os.sched_getaffinity(0)
    tallies: list[Tally] = []
    swept(planned(memory="1 GiB", grid={SHARE: [0.1, 0.2]}), tmp_path, LocalExecutor(None, look), tallies)
    assert all(len(cores) == 1 for cores in seen)
    assert max(tally.running for tally in tallies) == min(len(before), 6)
    if len(before) > 1:
        assert len({min(cores) for cores in seen}) > 1
    assert os.sched_getaffinity(0) == before


def test_memory_limits_how_many_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr("app.sweeps.local.available_bytes", lambda: 10 * 2**30)
    assert len(cores_for(planned(memory="2 GiB"), None)) == 4
    assert len(cores_for(planned(memory="2 GiB"), 3)) == 3
    with pytest.raises(UsageError, match=r"may take 16.5 GiB of memory, and 10.0 GiB are free"):
        cores_for(planned(memory="16 GiB"), None)
    with pytest.raises(UsageError, match="--jobs 9: must be from 1 to 8"):
        cores_for(planned(), 9)


def test_in_real_time_one_run_goes_on_at_a_time() -> None:
    plan = planned(engine="namespace")
    assert cores_for(plan, None) == [set()]
    with pytest.raises(UsageError, match="--jobs 2: in real time, runs at a time disturb each other"):
        cores_for(plan, 2)


def test_an_interrupted_sweep_ends_what_runs(tmp_path: Path) -> None:
    ended: list[int] = []

    def until_told(spec: RunSpec, report: Callable[[Event], None]) -> None:
        try:
            while True:
                report(None)  # type: ignore[arg-type]
                time.sleep(0.01)
        finally:
            ended.append(spec.seed or 0)

    def leave(tally: Tally) -> None:
        if tally.running:
            raise KeyboardInterrupt

    from app.sweeps.study import run_missing

    with pytest.raises(KeyboardInterrupt):
        run_missing(planned(memory="1 GiB"), Store(tmp_path), LocalExecutor(1, until_told), leave, lambda text: None)
    assert len(ended) <= 1


@pytest.mark.parametrize("engine", ["namespace", "virtual"])
def test_in_real_time_the_order_of_runs_has_nothing_to_do_with_the_grid(tmp_path: Path, engine: str) -> None:
    """Or a machine that grows busier would look like an effect of an axis; the same order every time."""
    played: list[tuple[object, int | None]] = []

    def note(spec: RunSpec, report: Callable[[Event], None]) -> None:
        played.append((spec.settings[SHARE], spec.seed))
        play(spec, report)

    plan = planned(engine=engine, grid={SHARE: [0.1, 0.3]}, seeds=6)
    swept(plan, tmp_path, LocalExecutor(1 if engine == "virtual" else None, note))
    in_grid = [(run.spec.settings[SHARE], run.seed) for run in plan.runs]
    assert sorted(played) == sorted(in_grid)
    assert (played == in_grid) is (engine == "virtual")
    halves = [share for share, _ in played[:6]]
    assert engine == "virtual" or 0 < halves.count(0.1) < 6


def test_the_time_left_is_at_the_pace_so_far() -> None:
    tally = Tally(total=10, kept=2, began_s=100.0)
    assert tally.cells(110.0) == ["2 of 10", "0", "0", "0", "unknown yet"]
    tally.ended, tally.failed, tally.running, tally.invalid = 3, 1, 2, 1
    assert tally.cells(500.0) == ["5 of 10", "2", "1", "1", "7 min"]
    tally.ended = 7
    assert tally.cells(500.0)[-1] == "0 s"


def test_a_run_that_is_not_there_is_missing(tmp_path: Path) -> None:
    plan, store = planned(grid={SHARE: [0.1]}), Store(tmp_path)
    store.open(plan)
    runs = runs_table(plan, store)
    assert list(runs["verdict"]) == ["missing"] * 3
    assert medians_table(plan, runs).empty
