"""Runs on a cluster that Slurm schedules: a job array, in which each task runs one of the sweep's command lines, or
several in turn where there are more runs than tasks of an array may be.

It needs ``sbatch``, ``squeue`` and ``scontrol`` here, and on the nodes this program and the sweep's directory at the
same paths. A run that is done but ``invalid`` (exit code 3) is a task that has succeeded: Slurm is not to run it again.
Slurm itself requeues what a lost node ran.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.sweeps.executor import SweepWatch, require_shareable
from experiments.sweeps.planning import PlannedRun, SweepPlan, command_lines
from experiments.sweeps.store import Store
from fabric.errors import EmulationError, UsageError
from fabric.measure.verdict import EXIT_CODE_INVALID

_POLL_S = 2.0
_ASK_TIMEOUT_S = 60.0
_SILENT_S = 600.0
"""How long Slurm may not answer while its tasks go on: its controller is restarted at times."""
_GRACE_S = 30.0
"""How long a result may take to show in a shared file system once its task has ended."""
_MIB = 1 << 20
Lines = Callable[[Sequence[PlannedRun], Callable[[str], Path]], list[str]]
_SCRIPT = """#!/bin/sh
#SBATCH --array=0-{last}{at_a_time}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem={memory_mib}M
#SBATCH --requeue
# Each line of the file below is a run. Exit code {invalid} is a run that is done, and not to be believed.
line=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {commands})
eval "$line"
code=$?
[ "$code" -eq {invalid} ] && exit 0
exit "$code"
"""


class SlurmExecutor:
    """``jobs``: how many tasks at a time, at most; None: as many as Slurm gives. ``poll_s``: how often it is asked.
    ``lines``: what gives the command of each run."""

    def __init__(self, jobs: int | None = None, poll_s: float = _POLL_S, lines: Lines = command_lines) -> None:
        self._jobs = jobs
        self._poll_s = poll_s
        self._lines = lines

    def run(self, plan: SweepPlan, missing: Sequence[PlannedRun], store: Store, watch: SweepWatch) -> None:
        """Submit those that are missing, unless they are already, and wait until all tasks have ended.

        An interrupted sweep leaves its array to Slurm; started again, it waits for it. Raises UsageError,
        EmulationError.
        """
        require_shareable(plan, "slurm")
        folder = store.directory / "slurm"
        job, left = submitted(folder), list(missing)
        if job is not None and _tasks(job):
            watch.tell(f"job {job} of an earlier start is still in the queue: waiting for it")
            its = set(_submitted(folder)["tasks"])
            self._await(job, folder, [run for run in left if run.key in its], store, watch)
            left = [run for run in left if run.key not in its]
        most = _most_tasks() if left else 1
        for start in range(0, len(left), most):
            part = left[start : start + most]
            job = self._submit(folder, plan, part, store)
            of = (
                "" if len(part) == len(left) else f" with {len(part)} of {len(left)} runs, as many as an array may have"
            )
            watch.tell(f"submitted as job {job}{of}; its log files: {folder / 'logs'}")
            self._await(job, folder, part, store, watch)

    def _submit(self, folder: Path, plan: SweepPlan, missing: Sequence[PlannedRun], store: Store) -> str:
        """Submit a job array and return its number."""
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        for log in (folder / "logs").glob("*.log"):
            log.unlink()
        found = zip(missing, self._lines(missing, store.run_directory), strict=True)
        # A task that is requeued may have been finished before.
        lines = [f"[ -e {shlex.quote(str(store.run_directory(run.key)))} ] || {line}\n" for run, line in found]
        (folder / "commands").write_text("".join(lines))
        script = folder / "array.sh"
        script.write_text(array_script(plan, len(missing), folder, self._jobs))
        job = _asked(submission(plan, folder, script)).strip().partition(";")[0]
        what = {"job": job, "tasks": [run.key for run in missing]}
        (folder / "submitted.json").write_text(json.dumps(what) + "\n")
        return job

    def _await(self, job: str, folder: Path, missing: Sequence[PlannedRun], store: Store, watch: SweepWatch) -> None:
        """Tell of each run once it is finished, and at the end of the job of those that are not."""
        left = {run.key: run for run in missing}
        grace_until: float | None = None
        while left:
            states = _tasks_patiently(job, self._poll_s, watch)
            watch.running(states.count("RUNNING"))
            for key in [key for key in left if store.is_finished(key)]:
                watch.ended(left.pop(key), None)
            if not states:
                grace_until = grace_until or time.monotonic() + min(_GRACE_S, 3 * self._poll_s)
                if time.monotonic() > grace_until:
                    break
            time.sleep(self._poll_s if left else 0)
        for key, run in left.items():
            watch.ended(run, _why(folder, key))


def submitted(folder: Path) -> str | None:
    """Return the number of the job that an earlier start submitted; None if there was none."""
    try:
        job: str = _submitted(folder)["job"]
    except FileNotFoundError:
        return None
    return job


def _submitted(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "submitted.json").read_text())
    return found


def submission(plan: SweepPlan, folder: Path, script: Path) -> list[str]:
    """Return the command that submits a script. What may have a space in it is not in the script's own lines."""
    logs = str(folder / "logs").replace("%", "%%")  # Slurm reads %a there, and the like.
    return ["sbatch", "--parsable", f"--job-name={plan.name}", f"--output={logs}/%a.log", str(script)]


def _most_tasks() -> int:
    """Return how many tasks an array may have on this cluster. Raises UsageError, EmulationError."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", _asked(["scontrol", "show", "config"]), re.MULTILINE)
    if found is None or int(found[1]) < 1:
        raise UsageError("--on slurm: this cluster runs no job arrays (MaxArraySize in its slurm.conf)")
    return int(found[1])


def array_script(plan: SweepPlan, tasks: int, folder: Path, jobs: int | None) -> str:
    """Return the script of a job array."""
    return _SCRIPT.format(
        last=tasks - 1,
        at_a_time=f"%{jobs}" if jobs else "",
        memory_mib=-(-plan.memory_bytes // _MIB),
        commands=shlex.quote(str(folder / "commands")),
        invalid=EXIT_CODE_INVALID,
    )


def _tasks(job: str) -> list[str]:
    """Return the states of a job's tasks that have not ended; none if Slurm does not know the job any more."""
    command = ["squeue", "--noheader", "--array", "--format=%T", "--jobs", job]
    try:
        return _asked(command).split()
    except EmulationError as error:
        if "Invalid job id" in str(error):
            return []
        raise


def _tasks_patiently(job: str, poll_s: float, watch: SweepWatch) -> list[str]:
    """Return what ``_tasks`` does, also if Slurm does not answer for a while. Raises EmulationError."""
    ends_s: float | None = None
    while True:
        try:
            return _tasks(job)
        except EmulationError as error:
            if ends_s is None:
                ends_s = time.monotonic() + _SILENT_S
                watch.tell(f"{error}; job {job} goes on, and is asked for again for {_SILENT_S:g} s")
            elif time.monotonic() > ends_s:
                raise EmulationError(
                    f"{error}; asked for {_SILENT_S:g} s. Job {job} goes on without this program: start the sweep "
                    "again to wait for it"
                ) from error
        time.sleep(poll_s)


def _asked(command: Sequence[str]) -> str:
    """Return what a program of Slurm answers. Raises UsageError if there is none, EmulationError if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False, env=_environment()
        )
    except FileNotFoundError as error:
        raise UsageError(f"--on slurm: there is no {command[0]} here; run it where jobs are submitted") from error
    except subprocess.TimeoutExpired as error:
        raise EmulationError(f"waited {_ASK_TIMEOUT_S:g} s for an answer of {command[0]}; is slurmctld up?") from error
    if done.returncode:
        raise EmulationError(f"{command[0]} failed with exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Return the environment without what would change the array's own settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SBATCH_", "SQUEUE_"))}


def _why(folder: Path, key: str) -> str:
    """Return the last words of a task that left no result."""
    keys = _submitted(folder)["tasks"]
    log = folder / "logs" / f"{keys.index(key)}.log"
    words = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(words[-5:]) or f"its task left no result and no log ({log})"
