"""The directory of a sweep. What is in it is all that one needs to go on with it.

::

    sweep.json          what the sweep is: its runs with their points and seeds
    runs/KEY/           a finished run, which has this name from when it is whole
    runs/KEY.error      why a run failed; it is run again at the next start
    runs.parquet, runs.csv, medians.csv, figures/    what all finished runs say
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.sweeps.identity import differing
from app.sweeps.planning import PLAN, PlannedRun, SweepPlan
from fabric.errors import ResultError, UsageError
from runs.handover import hand_over, make_for_user


def _described(run: PlannedRun) -> dict[str, Any]:
    facts = {"key": run.key, "plain_key": run.plain_key, "seed": run.seed, "point": dict(run.point)}
    return facts | {"parts": dict(run.parts)}


def _runs_in(known: Path) -> list[dict[str, Any]]:
    """Return the runs of a sweep as its file has them; none if there is none, or it is cut off."""
    try:
        found: list[dict[str, Any]] = json.loads(known.read_text())["runs"]
        return found
    except (OSError, ValueError, KeyError):
        return []


def _why(before: Mapping[str, str] | None, now: Mapping[str, str]) -> str:
    if before is None:
        return "they are of a version whose keys did not have the program and the files that decide figures"
    return "; ".join(differing(before, now))


class Store:
    """The runs in a directory, by their keys."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.runs = self.directory / "runs"

    def run_directory(self, key: str) -> Path:
        """Return where a run is, once it is finished."""
        return self.runs / key

    def is_finished(self, key: str) -> bool:
        """Whether a run is whole, whatever its verdict."""
        return (self.runs / key / "manifest.json").is_file()

    def missing(self, runs: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Return the runs that are not finished."""
        return [run for run in runs if not self.is_finished(run.key)]

    def error(self, key: str) -> str | None:
        """Return why a run failed the last time; None if it did not."""
        with suppress(FileNotFoundError):
            return (self.runs / f"{key}.error").read_text()
        return None

    def keep_error(self, key: str, text: str) -> None:
        """Keep why a run failed."""
        (self.runs / f"{key}.error").write_text(text)

    def verdict(self, key: str) -> dict[str, Any]:
        """Return the verdict of a finished run."""
        manifest = json.loads((self.runs / key / "manifest.json").read_text())
        verdict: dict[str, Any] = manifest["verdict"]
        return verdict

    def open(self, plan: SweepPlan) -> list[str]:
        """Make the directory, or go on in it. Return in words which runs had ended and are played again, and why: what
        decides their figures is not what it was. Raises UsageError if it is something else."""
        known = self.directory / PLAN
        if self.directory.exists() and any(self.directory.iterdir()) and not known.is_file():
            raise UsageError(f"--out {self.directory}: exists and is not a sweep's; give a new name")
        make_for_user(self.runs)
        described = [_described(run) for run in plan.runs]
        told = list(self._again(known, plan))
        what = {"name": plan.name, "experiment": plan.experiment, "engine": plan.engine, "runs": described}
        partial = known.with_suffix(".partial")
        partial.write_text(json.dumps(what, indent=1) + "\n")
        partial.replace(known)
        return told

    def _again(self, known: Path, plan: SweepPlan) -> Iterator[str]:
        """Yield what changed of runs that had ended under other keys, each with how many runs it is of."""
        yield from self._told(known, plan, "played again", f"What they were stays in {self.runs}")

    def as_played(self, plan: SweepPlan) -> tuple[SweepPlan, list[str]]:
        """Return a plan with the runs that have ended as they are here, though another program or other files made
        them, and in words which these are."""
        known = self.directory / PLAN
        told = list(self._told(known, plan, "read as they were played", "Start the sweep to play them again"))
        earlier = self._earlier(known, plan)
        runs = (replace(run, key=earlier[run.key]["key"]) if run.key in earlier else run for run in plan.runs)
        return replace(plan, runs=tuple(runs)), told

    def _told(self, known: Path, plan: SweepPlan, what: str, then: str) -> Iterator[str]:
        earlier, parts = self._earlier(known, plan), {run.key: run.parts for run in plan.runs}
        counts = Counter(_why(one.get("parts"), parts[key]) for key, one in earlier.items())
        for why, count in counts.items():
            runs = "a run that had ended is" if count == 1 else f"{count} runs that had ended are"
            yield f"{runs} {what}: {why}. {then}"

    def _earlier(self, known: Path, plan: SweepPlan) -> dict[str, dict[str, Any]]:
        """Return, by their keys, the runs that have not ended, as they ended here under another key: of the same
        config, by another program or with other files."""
        ended = {one.get("plain_key", one["key"]): one for one in _runs_in(known) if self.is_finished(one["key"])}
        return {run.key: ended[run.plain_key] for run in self.missing(plan.runs) if run.plain_key in ended}

    def forget_attempt(self, key: str) -> None:
        """Remove what an attempt left that did not come to its end: call it while the directory is :meth:`locked`."""
        for path in self.runs.glob(f"{key}.*"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for the time of a block. Raises ResultError if another sweep is at work in it."""
        with (self.directory / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultError(f"{self.directory}: another sweep is at work in it; wait for its end") from None
            yield

    def hand_over(self) -> None:
        """Give all files to the user who called sudo, if one did."""
        hand_over(self.directory)
