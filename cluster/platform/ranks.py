"""Ranks as processes of their node, as its agent starts them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cluster.platform.agent_program import RankWords, SavedStep
from cluster.platform.messages import RankEnd, RankOrder
from cluster.platform.rank_words import MOST_STEPS, master_port, saved_word, steps_in
from cluster.platform.user import FOLDER, SAVED_FILE, SUSPENDED_CODE
from cluster.platform.watching import FolderWatch, Watch
from fabric.errors import TrafficError
from fabric.world.isolation.processes import all_stats, die_with
from fabric.world.programs import hosts

_NOT_STARTED, _KILLED = 127, 137
_LOOK_S = 0.05
_GROUP_ENDS_S = 10.0
_KILLED_S = 2.0
"""How long what was killed may take to end."""


@dataclass
class _Running:
    order: RankOrder
    process: subprocess.Popen[bytes]
    folder: Path
    words: RankWords
    has_answered: bool = False
    saved: SavedStep | None = None
    seen: object = None
    """What the file of the saved step looked like when it was read last."""
    why: str = ""
    """Why it was killed, if its agent could not go on with it."""


class ProcessRanks:
    """Starts each rank as a process of its own group, in a folder below ``folder``; output goes to ``log`` there.
    What is in :mod:`cluster.platform.user` can be imported by them.

    ``address_of`` gives the address of a node by its name; ``host``: the host of a fabric on which they run, with all
    that this has to itself (None: beside their agent). Ranks get SIGKILL if their agent ends, whichever way.

    Whatever cannot be done with a rank, for its folder is gone, a disk full or its command none, is that rank's end,
    with why: the agent goes on.
    """

    def __init__(
        self,
        folder: Path,
        address_of: Callable[[str], str],
        environment: Mapping[str, str] | None,
        host: str | None = None,
    ) -> None:
        self.folder, self._address_of, self._host = folder, address_of, host
        self._environment = dict(os.environ if environment is None else environment)
        add_modules(self._environment, folder / "modules")
        self._running: dict[int, _Running] = {}
        self._folders: FolderWatch | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, order: RankOrder, words: RankWords) -> None:
        """Start a rank, and look after it in the event loop that runs."""
        folder = self.folder / f"{order.life}-{order.rank}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            process = self._process_of(order, folder)
        except Exception as error:  # Not only OSError: a NUL, half a character, what is done before exec.
            why = f"cannot be started: {error}"
            _write_into_log(folder, f"{order.command[0]}: {error}")
            asyncio.get_running_loop().call_soon(words.ended, RankEnd(order.life, _NOT_STARTED, why=why))
            return
        running = _Running(order, process, folder, words)
        self._running[order.life] = running
        task = asyncio.get_running_loop().create_task(self._look_after(running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _process_of(self, order: RankOrder, folder: Path) -> subprocess.Popen[bytes]:
        directory = Path(order.directory or folder)
        environment = self._environment_of(order, folder)
        command: Sequence[str] = order.command
        if self._host is not None:
            command = hosts.on_host(self._host, command, environment, directory)
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )

    def _environment_of(self, order: RankOrder, folder: Path) -> dict[str, str]:
        return {
            **self._environment,
            "RANK": str(order.rank),
            "WORLD_SIZE": str(order.world),
            "MASTER_IP": self._address_of(order.master),
            "MASTER_PORT": str(master_port(order.life)),
            "PLATFORM_JOB": str(order.job),
            "PLATFORM_STEP": "" if order.step is None else str(order.step),
            FOLDER: str(folder),
        }

    async def _look_after(self, running: _Running) -> None:
        process = running.process
        # It is not waited for before its group is killed: until then nobody else has the group's number.
        try:
            await self._until_ended(running)
        except Exception as error:
            self._give_up(running, f"cannot be looked after: {error}")
        _kill_group(process)
        code = process.wait()
        await _end_of_group(process.pid)
        suspended = False
        try:
            _look_for_words(running)
            suspended = code == SUSPENDED_CODE and (running.folder / "suspended").exists()
        except Exception as error:
            self._give_up(running, f"what it left cannot be read: {error}")
        del self._running[running.order.life]
        step = None if running.saved is None else running.saved.step
        code = _KILLED if running.why else code if code >= 0 else 128 - code
        running.words.ended(RankEnd(running.order.life, code, step, suspended, why=running.why))

    async def _until_ended(self, running: _Running) -> None:
        """Pass on what a rank leaves in its folder until its process has ended."""
        if self._folders is None:
            self._folders = FolderWatch()
        pid = running.process.pid
        watch = Watch(pid, running.folder, self._folders)
        try:
            while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                _look_for_words(running)
                await watch.change()
        finally:
            watch.close()

    def _give_up(self, running: _Running, why: str) -> None:
        """Kill a rank with which its agent cannot go on."""
        running.why = running.why or why
        _write_into_log(running.folder, why)
        _kill_group(running.process)

    def steps(self) -> dict[int, tuple[int, int]]:
        """Return by life which rank runs here, and the last step that it told; those that told none are left out."""
        found = {life: (one.order.rank, _number_in(one.folder, "progress")) for life, one in self._running.items()}
        return {life: (rank, step) for life, (rank, step) in found.items() if step is not None}

    def suspend(self, life: int) -> None:
        """Let a rank see the suspend command."""
        if (running := self._running.get(life)) is not None:
            try:
                (running.folder / "suspend").touch()
            except OSError as error:
                self._give_up(running, f"cannot be shown the suspend command: {error}")

    def stop(self, life: int) -> None:
        """Kill a rank, and whatever it has started."""
        if (running := self._running.get(life)) is not None:
            _kill_group(running.process)

    def stop_all(self) -> None:
        """Kill all ranks."""
        for life in list(self._running):
            self.stop(life)

    async def end_all(self, timeout_s: float) -> None:
        """Kill all ranks, and return once they have ended. Raises TrafficError if they do not in time."""
        deadline = time.monotonic() + timeout_s
        self.stop_all()
        while self._running:
            if time.monotonic() > deadline:
                raise TrafficError(f"{self.folder.name}: lives {sorted(self._running)} did not end in {timeout_s:g} s")
            await asyncio.sleep(_LOOK_S)


def add_modules(environment: dict[str, str], folder: Path) -> None:
    """Let programs import ``cluster.platform.user``, whichever Python they run by, and nothing else of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / "cluster").symlink_to(Path(__file__).resolve().parents[1], target_is_directory=True)
    others = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([*([others] if others else []), str(folder)])


def _look_for_words(running: _Running) -> None:
    """Pass on what a rank has left in its folder since the last look."""
    if not running.has_answered and (running.folder / "answered").exists():
        running.has_answered = True
        running.words.answered()
    try:
        there = (running.folder / SAVED_FILE).stat()
    except OSError:
        return
    seen = (there.st_ino, there.st_mtime_ns, there.st_size)
    if seen != running.seen and (saved := saved_in(running.folder)) is not None:
        running.seen = seen
        if saved != running.saved:
            running.saved = saved
            running.words.saved(saved)


def saved_in(folder: Path) -> SavedStep | None:
    """Return what a rank has said that it has saved; None if it has not, or said something else."""
    if (word := saved_word(folder)) is None:
        return None
    return SavedStep(word.step, time.monotonic() if word.at_s is None else word.at_s)


def _write_into_log(folder: Path, line: str) -> None:
    """Write a line of the agent's behind what a rank printed, if there is a log, and room in it."""
    with suppress(OSError), (folder / "log").open("a", errors="backslashreplace") as log:
        log.write(f"{line}\n")


def _number_in(folder: Path, name: str) -> int | None:
    try:
        number = int(steps_in(folder / name))
    except (OSError, ValueError):
        return None
    return number if 0 <= number < MOST_STEPS else None


def saved_before(folder: Path) -> dict[int, SavedStep]:
    """Return what ranks on a node have saved, by their lives, for an agent that is begun again."""
    found: dict[int, SavedStep] = {}
    for path in sorted(folder.glob(f"*-*/{SAVED_FILE}")):
        life = path.parent.name.partition("-")[0]
        if life.isdigit() and (saved := saved_in(path.parent)) is not None:
            found[int(life)] = saved
    return found


def processes_of(folder: Path) -> list[int]:
    """Return the processes of this machine that are ranks in a folder, or were started by such, and have not ended."""
    mine = f"{FOLDER}={folder}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # It has ended, or is another user's.
                variables = (entry / "environ").read_bytes().split(b"\0")
                if any(one.startswith(mine) for one in variables):
                    found.append(int(entry.name))
    return found


def left_in(folder: Path, patience_s: float = _KILLED_S) -> list[int]:
    """Return those of :func:`processes_of` that do not end in a while: those that were killed just now do."""
    deadline = time.monotonic() + patience_s
    while (found := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return found


def signal_all(folder: Path, number: signal.Signals) -> None:
    """Send a signal to all processes of ranks in a folder."""
    for process in processes_of(folder):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def end_what_is_left(folder: Path, timeout_s: float = 5.0) -> None:
    """Kill what an agent that was killed has left of its ranks: they die with it, but not what they have started.
    Raises TrafficError if some do not end in time."""
    deadline = time.monotonic() + timeout_s
    while left := processes_of(folder):
        signal_all(folder, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TrafficError(f"{folder.name}: processes {left} of its ranks have not ended within {timeout_s:g} s")
        time.sleep(_LOOK_S)


async def _end_of_group(group: int) -> None:
    """Return once nothing lives of a group that was killed: who says that a node is free gives it to others, whom what
    a rank had started may be in the way of. What the kernel cannot end is found by whoever looks at the end."""
    deadline = time.monotonic() + _GROUP_ENDS_S
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)  # Nobody waits for those that have ended, in some worlds: they are looked at.
            if not _is_alive(group):
                return
            await asyncio.sleep(_LOOK_S)


def _is_alive(group: int) -> bool:
    """Return whether a process of a group has not ended."""
    return any(int(own) == group and state not in "ZX" for _, (state, _, own, *_) in all_stats())


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
