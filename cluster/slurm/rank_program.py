"""What Slurm starts on each node of a job: ``python3 -m cluster.slurm.rank_program SETTINGS PROGRAM ARGUMENT...``

It runs the user's program with what ranks of the project's own platform have, too: the same variables, a folder, and
the suspend command, which is Slurm's SIGTERM here. A program that saves and calls ``go_suspend()``, and one that does
not in time, end this with :data:`cluster.platform.user.SUSPENDED_CODE`, and with that the job is queued again.

It imports nothing of the project's but what users' programs may: any Python runs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.platform.rank_words import master_port, saved_word
from cluster.platform.user import FOLDER, RESTART_CODE, SAVED_FILE, SUSPENDED_CODE

JOB = "PLATFORM_JOB"
"""The environment variable with the job's number, which its submission sets."""
MASTER = "PLATFORM_MASTER"
"""The one with the node of rank 0, which is that of the batch script."""
_LOOK_S = 0.05
_NOT_STARTED = 127
_TOLD = re.compile(r"\sPreemptTime=(?!None|N/A|Unknown)\S")
_OURS_ALONE = ("LD_PRELOAD", "FABRIC_TOS")
"""What puts Slurm's packets into a lane, and not those of users' programs."""


@dataclass(frozen=True)
class RankSettings:
    """What all ranks of a run know: ``logs``, below which each has its folder; how long one may take to answer the
    suspend command, and then to save; the addresses of nodes; what else is in the environment of programs."""

    logs: str
    answer_s: float
    save_s: float
    addresses: dict[str, str]
    environment: dict[str, str]

    def write(self, path: Path) -> None:
        """Write them for :meth:`read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> RankSettings:
        """Return what :meth:`write` wrote."""
        return cls(**json.loads(path.read_text()))


def folder_of(logs: Path, node: str, job: int, restart: int, rank: int) -> Path:
    """Return the folder of a rank, while its job's lives have no numbers yet."""
    return logs / node / f"job{job}.{restart}-{rank}"


def saved_step_of(logs: Path, job: int, restart: int) -> int | None:
    """Return the step of the last checkpoint that a life told; hosts share the folder, as those of a cluster share
    users' homes."""
    for told in logs.glob(f"*/job{job}.{restart}-0/{SAVED_FILE}"):
        if (word := saved_word(told.parent)) is not None:
            return word.step
    return None


def last_step(logs: Path, job: int, before: int) -> int | None:
    """Return the step of the last checkpoint that a life before restart ``before`` told."""
    steps = (saved_step_of(logs, job, restart) for restart in reversed(range(before)))
    return next((step for step in steps if step is not None), None)


def is_suspended(logs: Path, job: int, restart: int) -> bool:
    """Return whether rank 0 of a life has left as it was told, or was killed since it did not."""
    return any(logs.glob(f"*/job{job}.{restart}-0/left"))


def is_told(logs: Path, job: int, restart: int) -> bool:
    """Return whether rank 0 of a life was told to suspend."""
    return any(logs.glob(f"*/job{job}.{restart}-0/suspend"))


def is_lacking(logs: Path, job: int, restart: int) -> bool:
    """Return whether a rank of a life lacked what it cannot do without."""
    return any(logs.glob(f"*/job{job}.{restart}-*/lacks"))


class Notice:
    """Whether Slurm has given a job of its number the notice already: it sends that to who is there, and a job has
    nobody until its ranks are launched. Slurm is asked once, and nobody waits for its answer; of no number it is not
    asked."""

    def __init__(self, job: str) -> None:
        self._asked: subprocess.Popen[str] | None = None
        if not job:
            return
        with contextlib.suppress(OSError):
            self._asked = subprocess.Popen(
                ["scontrol", "--oneliner", "show", "job", job],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def was_given(self) -> bool:
        """Return whether it was, once, as soon as that is known."""
        if self._asked is None or self._asked.poll() is None:
            return False
        said, _ = self._asked.communicate()
        self._asked = None
        return _TOLD.search(said) is not None

    def close(self) -> None:
        """End who asks."""
        if self._asked is not None:
            self._asked.kill()
            self._asked.communicate()


class _Rank:
    """One rank, from its start to its end."""

    def __init__(self, settings: RankSettings, command: list[str]) -> None:
        self._settings, self._command = settings, command
        self._logs = Path(settings.logs)
        self._number = int(os.environ["SLURM_PROCID"])
        self._job, self._restart = int(os.environ[JOB]), int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self._folder = folder_of(self._logs, os.environ["SLURMD_NODENAME"], self._job, self._restart, self._number)
        self._told_at_s: float | None = None
        self._answered_at_s: float | None = None

    def run(self) -> int:
        """Run the program; return the code to exit with."""
        self._folder.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, self._tell)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # The script has blocked it: it may have come.
        try:
            with (self._folder / "log").open("ab") as log:
                process = subprocess.Popen(
                    self._command,
                    cwd=self._folder,
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=_ignore_notice,
                )
        except OSError as error:
            (self._folder / "log").write_text(f"{self._command[0]}: {error}\n")
            return _NOT_STARTED
        with contextlib.closing(Notice(os.environ.get("SLURM_JOB_ID", "") if self._number == 0 else "")) as notice:
            self._await(process, notice)
        return self._code_for(process.returncode)

    def _await(self, process: subprocess.Popen[bytes], notice: Notice) -> None:
        """Return once the program has ended, whoever ends it."""
        while process.poll() is None:
            if notice.was_given():
                self._suspend()
            if self._is_late():
                process.kill()
                (self._folder / "left").touch()
            time.sleep(_LOOK_S)

    def _environment(self) -> dict[str, str]:
        step = last_step(self._logs, self._job, self._restart)
        own = {name: value for name, value in os.environ.items() if name not in _OURS_ALONE}
        return {
            **own,
            **self._settings.environment,
            "FABRIC_HOST": os.environ["SLURMD_NODENAME"],
            "RANK": str(self._number),
            "WORLD_SIZE": os.environ["SLURM_NTASKS"],
            "MASTER_IP": self._settings.addresses[os.environ[MASTER]],
            "MASTER_PORT": str(master_port(self._job + 97 * self._restart)),
            "PLATFORM_STEP": "" if step is None else str(step),
            FOLDER: str(self._folder),
        }

    def _tell(self, number: int, _: object) -> None:
        """Let rank 0 see the suspend command; the others go on until it has left."""
        if self._number == 0:
            self._suspend()

    def _suspend(self) -> None:
        if self._told_at_s is None:
            self._told_at_s = time.monotonic()
            (self._folder / "suspend").touch()

    def _is_late(self) -> bool:
        """Return whether a program that was told has not answered in time, or not saved."""
        if self._told_at_s is None:
            return False
        now_s = time.monotonic()
        if self._answered_at_s is None and (self._folder / "answered").exists():
            self._answered_at_s = now_s
        if self._answered_at_s is None:
            return now_s - self._told_at_s > self._settings.answer_s
        return now_s - self._answered_at_s > self._settings.save_s

    def _code_for(self, code: int) -> int:
        """Return the code of a life by that of its program, and leave word if it has suspended."""
        if code == SUSPENDED_CODE and (self._folder / "suspended").exists():
            (self._folder / "left").touch()
        if (self._folder / "left").exists():
            return SUSPENDED_CODE
        code = code if code >= 0 else 128 - code
        if code == RESTART_CODE:
            (self._folder / "lacks").touch()
        return 1 if code == SUSPENDED_CODE else code  # Nobody asked it to: it is not to be queued again.


def _ignore_notice() -> None:
    """Slurm's notice reaches the program, too, and would end one that knows nothing of it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def main(words: list[str]) -> int:
    """Be a rank by the words of its command line; return the code to exit with."""
    return _Rank(RankSettings.read(Path(words[0])), words[1:]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
