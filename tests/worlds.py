"""The ``fabric`` command as a user calls it, and what a world leaves on the machine once it is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SCENARIOS = ROOT / "tests" / "root" / "scenarios.py"
SMALL = "fire_flyer_2_small"
TINY = "fire_flyer_2_tiny"
"""For what does not hang on the fabric's size."""
TIMEOUT_S = 240
_MARK = "FABRIC_TEST_MARK"
_NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


@dataclass(frozen=True)
class Command:
    """The command, run in a directory of its own and with its own for temporary files.

    All processes that come of it carry a mark in their environment, by which they are found wherever they end up.
    """

    directory: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.here.mkdir()
        self.temporary.mkdir()

    @property
    def here(self) -> Path:
        """Where the command is called."""
        return self.directory / "here"

    @property
    def temporary(self) -> Path:
        """Where it is told to put temporary files."""
        return self.directory / "temporary"

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[Any]:
        """Start ``fabric ARGUMENTS`` in a session of its own; what it says comes by pipes."""
        command = [sys.executable, "-m", "app.cli", *arguments]
        return self._start(command, self.here, **options)

    def run(
        self, *arguments: str, typed: str | None = None, timeout_s: float = TIMEOUT_S, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run ``fabric ARGUMENTS`` to its end; ``typed`` is what its user types."""
        process = self.start(*arguments, stdin=subprocess.DEVNULL if typed is None else subprocess.PIPE, **options)
        return _ended(process, timeout_s, typed)

    def play(self, scenario: str, timeout_s: float = TIMEOUT_S, script: Path = SCENARIOS) -> dict[str, Any]:
        """Run a scenario of ``script``, by default ``root/scenarios.py``, as the first process of a world; return what
        it saw."""
        report = self.directory / "report.json"
        command = [*_NAMESPACES, sys.executable, str(script), scenario, str(report)]
        ended_with((0,), _ended(self._start(command, ROOT, world=True), timeout_s))
        seen: dict[str, Any] = json.loads(report.read_text())
        return seen

    def _start(
        self, command: Sequence[str], directory: Path, world: bool = False, **options: Any
    ) -> subprocess.Popen[Any]:
        environment = os.environ | {_MARK: self.mark, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}
        environment |= {"FABRIC_WORLD": "1"} if world else {}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        process: subprocess.Popen[Any] = subprocess.Popen(
            command, cwd=directory, env=environment, start_new_session=True, **({"text": True} | pipes | options)
        )
        return process

    def processes(self) -> list[str]:
        """Return the command lines of all processes on the machine that came of this command."""
        wanted = f"{_MARK}={self.mark}".encode()
        return [_command_line(process) for process in Path("/proc").glob("[0-9]*") if wanted in _environment(process)]

    def files(self) -> list[Path]:
        """Return the files it has made, as far as they are in its directories."""
        return [*self.here.rglob("*"), *self.temporary.rglob("*")]


class NotPlayedError(Exception):
    """A command ended as it never may: no judgement of what it measured, which could be another one in another play."""


def ended_with(codes: Sequence[int], done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Return what ended with one of some codes. Raises NotPlayedError."""
    if done.returncode not in codes:
        raise NotPlayedError(f"ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def _ended(
    process: subprocess.Popen[str], timeout_s: float, typed: str | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        out, err = process.communicate(typed, timeout_s)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""  # It has ended since it was listed.


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def traces() -> dict[str, list[str]]:
    """Return what a world that is not private enough would change: the machine's interfaces, mounts and bridges."""
    mounts = [line.split(" - ")[0].split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return {
        "interfaces": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "mounts": sorted(mounts),
        "run": sorted(str(path) for name in ("netns", "fabric", "openvswitch") for path in _below(Path("/run") / name)),
    }


def _below(directory: Path) -> list[Path]:
    return [directory, *directory.rglob("*")] if directory.exists() else []


@contextmanager
def nothing_left(command: Command) -> Iterator[None]:
    """Assert, once a block is over, that of the command's worlds nothing is left on the machine."""
    before = traces()
    files = command.files()
    yield
    assert command.processes() == []
    assert traces() == before
    assert command.files() == files
