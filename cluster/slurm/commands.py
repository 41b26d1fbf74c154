"""What users and operators of Slurm call: sbatch, scontrol and scancel."""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.platform.events import JobSpec
from cluster.platform.user import RESTART_CODE, SUSPENDED_CODE
from cluster.slurm.answers import SlurmJobSeen, SlurmNodeSeen, jobs_in, nodes_in
from cluster.slurm.installed import search_path
from cluster.slurm.rank_program import JOB, MASTER
from fabric.errors import TrafficError

_ASK_S = 30.0
_SCRIPT = """#!/bin/sh
# {name} of {user}
export {job}={number} {master}="$SLURMD_NODENAME"
# A notice that comes before the program can take it waits: it would end it else, and with it the job.
srun --kill-on-bad-exit=1 --mpi=none env --block-signal=TERM {python} -m cluster.slurm.rank_program {settings} {command}
code=$?
# Rank 0, which is on this node, has left since it had to: the job is queued again.
[ -e {logs}/"$SLURMD_NODENAME/job{number}.${{SLURM_RESTART_COUNT:-0}}-0/left" ] && exit {suspended}
# So it is where a rank lacks what it cannot do without.
set -- {logs}/*/"job{number}.${{SLURM_RESTART_COUNT:-0}}-"*/lacks
[ -e "$1" ] && exit {restart}
exit "$code"
"""
_CLEARED = ("SLURM_", "SBATCH_", "SQUEUE_", "SCONTROL_", "SCANCEL_", "SRUN_")


class Unanswered(TrafficError):  # noqa: N818 - what the controller's end or a cut brings about, and no fault by itself
    """slurmctld did not answer."""


class Slurm:
    """One cluster's commands. ``environment``: what they get, with SLURM_CONF."""

    def __init__(self, environment: Mapping[str, str], config: Path) -> None:
        kept = {name: value for name, value in environment.items() if not name.startswith(_CLEARED)}
        self.environment = {**kept, "SLURM_CONF": str(config), "PATH": search_path()}

    def submit(self, number: int, spec: JobSpec, partition: str, script: Path, output: Path) -> int:
        """Submit a batch script as job ``number``; return Slurm's number of it. Raises Unanswered if Slurm does not
        take it, or does not say that it has."""
        words = [
            "sbatch", "--parsable", f"--job-name={number}", f"--account={spec.user}", f"--partition={partition}",
            f"--nodes={spec.nodes}", f"--ntasks={spec.nodes}", "--ntasks-per-node=1", "--exclusive", "--requeue",
            f"--output={output}", "--open-mode=append", f"--chdir={output.parent}",
        ]  # fmt: skip
        if spec.limit_s is not None:
            words.append(f"--time={math.ceil(spec.limit_s / 60)}")  # Slurm counts whole minutes.
        return int(self._asked([*words, str(script)]).partition(";")[0])

    def jobs(self) -> list[SlurmJobSeen]:
        """Return all jobs. Raises Unanswered."""
        return jobs_in(self._asked(["scontrol", "--all", "--oneliner", "show", "job"]))

    def nodes(self) -> list[SlurmNodeSeen]:
        """Return all nodes. Raises Unanswered."""
        return nodes_in(self._asked(["scontrol", "--all", "--oneliner", "show", "node"]))

    def release(self, identity: int) -> None:
        """Let a job start that was queued again, and would else wait for as long as a credential may live.

        Not before the next second: a node refuses a credential of the second, by Slurm's clock, in which it revoked
        that of the former life ("already killed, do not launch batch job"), and the job fails.
        """
        self._asked(["scontrol", "update", f"JobId={identity}", "StartTime=now+1"])

    def cancel(self, identities: Sequence[int]) -> None:
        """Cancel jobs."""
        self._asked(["scancel", *map(str, identities)])

    def _asked(self, command: Sequence[str]) -> str:
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_ASK_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unanswered(f"waited {_ASK_S:g} s for an answer of {command[0]}; does slurmctld run?") from None
        except OSError as error:
            raise TrafficError(f"cannot start {command[0]}: {error}") from None
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise Unanswered(f"{shlex.join(command)} failed with exit code {done.returncode}: {said}")
        return done.stdout


def script_of(number: int, spec: JobSpec, settings: Path, logs: Path) -> str:
    """Return the batch script of a job: it runs the job's ranks as one step, and says by its exit code how that ended.

    Comments of names are one line, whatever they have in them.
    """
    return _SCRIPT.format(
        name=_one_line(spec.name),
        user=_one_line(spec.user),
        job=JOB,
        number=number,
        master=MASTER,
        python=shlex.quote(sys.executable),
        settings=shlex.quote(str(settings)),
        command=shlex.join(spec.command),
        logs=shlex.quote(str(logs)),
        suspended=SUSPENDED_CODE,
        restart=RESTART_CODE,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
