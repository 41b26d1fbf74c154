"""A sweep from its plan to its tables: what is missing is run, and what all runs say is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from app.sweeps.executor import Executor, SweepWatch
from app.sweeps.planning import PlannedRun, SweepPlan
from app.sweeps.store import Store
from app.sweeps.tables import FAILED, LEFT_OUT, believed, medians_table, runs_table, write_tables
from app.sweeps.tally import Tally
from fabric.measure.verdict import EXIT_CODE_INVALID, Status
from runs import known_folders

Show = Callable[[Tally], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Findings:
    """What all runs of a sweep say: a row per run, a row per setting and metric, and the files that were written."""

    plan: SweepPlan
    store: Store
    runs: pd.DataFrame
    medians: pd.DataFrame
    files: tuple[Path, ...]

    @property
    def exit_code(self) -> int:
        """1 if a run failed or is missing; 3 if every run of a setting is left out, so that it has no figure; else
        0."""
        verdicts = dict(zip(self.runs["run"], self.runs["verdict"], strict=True))
        if set(verdicts.values()) & (LEFT_OUT - {Status.INVALID.value}):
            return 1
        is_empty = any(all(verdicts[run.key] in LEFT_OUT for run in point) for point in self.plan.points)
        return EXIT_CODE_INVALID if is_empty else 0

    @property
    def summaries(self) -> list[dict[str, object]]:
        """The summaries of the runs that count."""
        directories = (self.store.run_directory(key) for key in believed(self.runs)["run"])
        return [json.loads((directory / "summary.json").read_text()) for directory in directories]

    @property
    def failures(self) -> list[tuple[str, str]]:
        """The runs that failed, and why."""
        rows = self.runs[self.runs["verdict"] == FAILED]
        return list(zip(rows["run"], rows["reasons"], strict=True))


def run_missing(plan: SweepPlan, store: Store, executor: Executor, show: Show, tell: Tell) -> None:
    """Run what is not finished. May be killed at any time and called again. Raises ResultError if another sweep is at
    work in the same directory."""
    for again in store.open(plan):
        tell(again)
    if plan.foreign_folder is not None and (why := known_folders.keep(plan.foreign_folder)):
        tell(why)
    with store.locked():
        missing = store.missing(plan.runs)
        finished = len(plan.runs) - len(missing)
        tally = Tally(len(plan.runs), finished, time.monotonic(), invalid=_invalid(plan, store))
        for run in missing:
            store.forget_attempt(run.key)
        if missing:
            show(tally)
            executor.run(plan, missing, store, _watch(store, tally, show, tell))


def _invalid(plan: SweepPlan, store: Store) -> int:
    return sum(_is_invalid(store, run) for run in plan.runs if store.is_finished(run.key))


def _is_invalid(store: Store, run: PlannedRun) -> bool:
    return bool(store.verdict(run.key)["status"] == Status.INVALID.value)


def _watch(store: Store, tally: Tally, show: Show, tell: Tell) -> SweepWatch:
    def running(count: int) -> None:
        tally.running = count
        show(tally)

    def ended(run: PlannedRun, error: str | None) -> None:
        if store.is_finished(run.key):
            tally.ended += 1
            tally.invalid += _is_invalid(store, run)
        else:
            text = error or "ended well, and left no result"
            store.keep_error(run.key, text)
            tally.failed += 1
            tell(f"{run.key} failed: {text}")
        show(tally)

    return SweepWatch(running, ended, tell)


def collect(plan: SweepPlan, store: Store) -> Findings:
    """Read all runs that there are and write their tables. Raises ResultError for one that cannot be read."""
    runs = runs_table(plan, store)
    medians = medians_table(plan, runs)
    return Findings(plan, store, runs, medians, tuple(write_tables(store, runs, medians)))
