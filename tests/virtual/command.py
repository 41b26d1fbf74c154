"""The ``fabric`` command with ``--engine virtual``, as any account may call it."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from app.cli import main
from fabric.world.virtual.guest import WAITING

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SMALL = "fire_flyer_2_small"
TINY = "fire_flyer_2_tiny"
"""For what does not hang on the fabric's size: its guest is up in half the time."""
RUN_TIMEOUT_S = 1200.0
OWN_GUEST = {WAITING: ""}
"""The environment of a command whose guest boots: it is below the command's process, as one that is forked is not."""


@dataclass(frozen=True)
class VirtualCommand:
    """The command with ``--engine virtual``, called in ``here``, with ``temporary`` for its temporary files."""

    here: Path
    temporary: Path

    def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start ``fabric ARGUMENTS --engine virtual``; what comes after two dashes stays behind them.

        ``environment`` adds to our own, ``options`` are Popen's.
        """
        words, dashes, program = _split(arguments)
        command = [sys.executable, "-m", "app.cli", *words, "--engine", "virtual", *dashes, *program]
        surroundings = os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT), **(environment or {})}
        pipe = subprocess.PIPE
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "text": True}
        return subprocess.Popen(command, cwd=self.here, env=surroundings, **(pipes | options))

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run it to its end: without an ``environment``, which programs read as they start, in a fork of this process,
        which has imported all that the command would."""
        if environment is None:
            return self._forked(arguments)
        with self.start(*arguments, environment=environment) as process:
            try:
                out, err = process.communicate(timeout=RUN_TIMEOUT_S)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def play(self, experiment: str, settings: Iterable[str] = (), *options: str, out: str = "r") -> Path:
        """Return the result of an experiment, or of a file, with settings of its config, without figures."""
        words = [word for one in settings for word in ("--set", one)]
        done = self.run("run", experiment, *words, *options, "--no-figures", "--out", out)
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout)
        return self.here / out

    def _forked(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        words, dashes, program = _split(arguments)
        command = [*words, "--engine", "virtual", *dashes, *program]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if (child := os.fork()) == 0:
                self._become(command, out.fileno(), err.fileno())
            try:
                code = os.waitstatus_to_exitcode(_waited(child))
            except BaseException:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise
            said = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
        return subprocess.CompletedProcess(command, code, *said)

    def _become(self, command: Sequence[str], out: int, err: int) -> NoReturn:
        """Be the command, in a process that was forked for it, up to its end."""
        code = 1
        atexit._clear()  # What this process would tidy up at its end is its parent's.
        try:
            for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
                os.dup2(source, target)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            sys.argv = ["fabric", *command]
            os.environ |= {"TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}
            tempfile.tempdir = None
            os.chdir(self.here)
            code = main(command)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(code)


def _waited(child: int) -> int:
    """Return the status with which a child has ended. Fails after RUN_TIMEOUT_S."""
    ended = os.pidfd_open(child)
    try:
        assert select.select([ended], [], [], RUN_TIMEOUT_S)[0], f"not done after {RUN_TIMEOUT_S:g} s"
    finally:
        os.close(ended)
    return os.waitpid(child, 0)[1]


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    place = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:place], arguments[place : place + 1], arguments[place + 1 :]
