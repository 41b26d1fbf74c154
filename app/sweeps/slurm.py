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
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from app.sweeps.executor import SweepWatch, require_shareable
from app.sweeps.planning import PlannedRun, SweepPlan, command_lines
from app.sweeps.store import Store
from fabric.errors import EmulationError, UsageError
from fabric.measure.verdict import EXIT_CODE_INVALID

_POLL_S = 2.0
_ASK_TIMEOUT_S = 60.0
_SILENT_S = 600.0
"""How long Slurm may not answer: its controller is restarted at times, and is busy at others."""
_PASSING = re.compile(
    r"timed out|unable to contact|temporarily un|try again|zero bytes|connection (refused|reset|failure)|standby mode|"
    r"(send|receive).{0,20} (failure|message)|back ?off|rate limit|limit exceeded|too many|overload|"
    r"submit limit|MaxSubmit|waited \d+ s for an answer",
    re.IGNORECASE,
)
"""What Slurm says where asking again may help: its controller is silent or busy, or a user has no more jobs left."""
_POLICY = re.compile(r"\b(?:QOS|Assoc)\w+")
"""The limit that a submission was refused by; one that is not of submissions stands forever."""
_LONGEST_PAUSE = 10
"""Between two tries, in times of the first pause."""
T = TypeVar("T")
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
        job, left = self._earlier(folder, watch), list(missing)
        if job is not None and _tasks_patiently(job, self._poll_s, watch):
            watch.tell(f"job {job} of an earlier start is still in the queue: waiting for it")
            its = set(_submitted(folder)["tasks"])
            self._await(job, folder, [run for run in left if run.key in its], store, watch)
            left = [run for run in left if run.key not in its]
        most = _patiently(_most_tasks, self._poll_s, watch, "start the sweep again") if left else 1
        for start in range(0, len(left), most):
            part = left[start : start + most]
            job = self._submit(folder, plan, part, store, watch)
            of = (
                "" if len(part) == len(left) else f" with {len(part)} of {len(left)} runs, as many as an array may have"
            )
            watch.tell(f"submitted as job {job}{of}; its log files: {folder / 'logs'}")
            self._await(job, folder, part, store, watch)

    def _earlier(self, folder: Path, watch: SweepWatch) -> str | None:
        """Return the number of the job that an earlier start submitted, also of one that did not learn it; None if
        there was none."""
        job = submitted(folder)
        if job is None and (folder / "submitted.json").exists():
            what = _submitted(folder)
            job = _patiently(lambda: _job_named(what["name"]), self._poll_s, watch, "start the sweep again")
            if job is not None:
                _keep(folder, {**what, "job": job})
        return job

    def _submit(
        self, folder: Path, plan: SweepPlan, missing: Sequence[PlannedRun], store: Store, watch: SweepWatch
    ) -> str:
        """Submit a job array, once, and return its number."""
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        for log in (folder / "logs").glob("*.log"):
            log.unlink()
        found = zip(missing, self._lines(missing, store.run_directory), strict=True)
        # A task that is requeued may have been finished before.
        lines = [f"[ -e {shlex.quote(str(store.run_directory(run.key)))} ] || {line}\n" for run, line in found]
        (folder / "commands").write_text("".join(lines))
        script = folder / "array.sh"
        script.write_text(array_script(plan, len(missing), folder, self._jobs))
        name = f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', plan.name)}-{secrets.token_hex(4)}"
        what = {"job": None, "name": name, "tasks": [run.key for run in missing]}
        _keep(folder, what)
        command, tries = submission(name, folder, script), 0

        def once() -> str:
            """Submit it, unless the controller has taken it, and its answer was lost."""
            nonlocal tries
            if tries and (taken := _job_named(name)) is not None:
                return taken
            tries += 1
            return _asked(command).strip().partition(";")[0]

        job = _patiently(once, self._poll_s, watch, "start the sweep again: if Slurm has taken it, it is found")
        _keep(folder, {**what, "job": job})
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
    """Return the number of the job that an earlier start submitted; None if there was none, or it did not learn it."""
    try:
        job: str | None = _submitted(folder)["job"]
    except FileNotFoundError:
        return None
    return job


def _submitted(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "submitted.json").read_text())
    return found


def _keep(folder: Path, what: dict[str, Any]) -> None:
    """Write what is submitted, and as which job, as soon as that is known."""
    (folder / "submitted.json").write_text(json.dumps(what) + "\n")


def submission(name: str, folder: Path, script: Path) -> list[str]:
    """Return the command that submits a script. What may have a space in it is not in the script's own lines. ``name``:
    no other submission has it."""
    logs = str(folder / "logs").replace("%", "%%")  # Slurm reads %a there, and the like.
    return ["sbatch", "--parsable", f"--job-name={name}", f"--output={logs}/%a.log", str(script)]


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


def _job_named(name: str) -> str | None:
    """Return the number of the job of a name, also if it has just ended; None if Slurm has none."""
    command = ["squeue", "--noheader", "--states=all", "--format=%F", f"--name={name}"]
    return next(iter(_asked(command).split()), None)


def _tasks_patiently(job: str, poll_s: float, watch: SweepWatch) -> list[str]:
    """Return what ``_tasks`` does, also if Slurm does not answer for a while. Raises EmulationError."""
    what = f"Job {job} goes on without this program: start the sweep again to wait for it"
    return _patiently(
        lambda: _tasks(job), poll_s, watch, what, f"job {job} goes on, and is asked for", lambda said: True
    )


def _patiently(
    ask: Callable[[], T],
    poll_s: float,
    watch: SweepWatch,
    else_do: str,
    goes_on: str = "it is asked",
    passes: Callable[[str], bool] | None = None,
) -> T:
    """Return what Slurm answers, also if it does not for a while. ``else_do``: what to do if it never does;
    ``goes_on``: what is said meanwhile; ``passes``: whether asking again may help after what Slurm said, by default
    :func:`may_pass`. Raises EmulationError, at once if it does not."""
    ends_s, pause_s = 0.0, poll_s
    while True:
        try:
            return ask()
        except EmulationError as error:
            if not (passes or may_pass)(str(error)):
                raise
            if not ends_s:
                ends_s = time.monotonic() + _SILENT_S
                watch.tell(f"{error}; {goes_on} again for {_SILENT_S:g} s")
            elif time.monotonic() > ends_s:
                then = f"{else_do[0].upper()}{else_do[1:]}"
                raise EmulationError(f"{error}; asked for {_SILENT_S:g} s. {then}") from error
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE * poll_s)


def may_pass(said: str) -> bool:
    """Return whether what Slurm said is over by itself, as that its controller is busy."""
    limit = _POLICY.search(said)
    return _PASSING.search(said) is not None and (limit is None or "submit" in limit[0].lower())


def _asked(command: Sequence[str]) -> str:
    """Return what a program of Slurm answers. Raises UsageError if there is none, EmulationError if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False, env=_environment()
        )
    except FileNotFoundError as error:
        raise UsageError(f"--on slurm: {command[0]} is not installed here; run it where jobs are submitted") from error
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
