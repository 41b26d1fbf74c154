"""Ranks as processes of their node, as its agent starts them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cluster.platform.agent_program import RankEnd, RankOrder
from cluster.platform.user import FOLDER, SUSPENDED_CODE

MASTER_PORT = 2222
"""HAI's; a life's is higher by its number, modulo a thousand, so that one that is being killed is not in the way."""
_LOOK_S = 0.05
_NOT_STARTED = 127
_PR_SET_PDEATHSIG = 1


@dataclass
class _Running:
    order: RankOrder
    process: subprocess.Popen[bytes]
    folder: Path
    answered: Callable[[], None]
    has_answered: bool = False


class ProcessRanks:
    """Starts each rank as a process of its own group, in a folder below ``folder``; output goes to ``log`` there.
    What is in :mod:`cluster.platform.user` can be imported by them.

    ``address_of`` gives the address of a node by its name. Ranks get SIGKILL if their agent ends, whichever way.
    """

    def __init__(self, folder: Path, address_of: Callable[[str], str], environment: Mapping[str, str] | None) -> None:
        self.folder, self._address_of = folder, address_of
        self._environment = dict(os.environ if environment is None else environment)
        _add_modules(self._environment, folder / "modules")
        self._running: dict[int, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, order: RankOrder, ended: Callable[[RankEnd], None], answered: Callable[[], None]) -> None:
        """Start a rank, and look after it in the event loop that runs."""
        folder = self.folder / f"{order.life}-{order.rank}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with (folder / "log").open("ab") as log:
                process = subprocess.Popen(
                    order.command,
                    cwd=folder,
                    env=self._environment_of(order, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
        except OSError as error:
            (folder / "log").write_text(f"{order.command[0]}: {error}\n")
            asyncio.get_running_loop().call_soon(ended, RankEnd(order.life, _NOT_STARTED))
            return
        running = _Running(order, process, folder, answered)
        self._running[order.life] = running
        task = asyncio.get_running_loop().create_task(self._look_after(running, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _environment_of(self, order: RankOrder, folder: Path) -> dict[str, str]:
        return {
            **self._environment,
            "RANK": str(order.rank),
            "WORLD_SIZE": str(order.world),
            "MASTER_IP": self._address_of(order.master),
            "MASTER_PORT": str(MASTER_PORT + order.life % 1000),
            "PLATFORM_JOB": str(order.job),
            "PLATFORM_STEP": "" if order.step is None else str(order.step),
            FOLDER: str(folder),
        }

    async def _look_after(self, running: _Running, ended: Callable[[RankEnd], None]) -> None:
        process = running.process
        # It is not waited for before its group is killed: until then nobody else has the group's number.
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            _look_for_answer(running)
            await asyncio.sleep(_LOOK_S)
        _look_for_answer(running)
        del self._running[running.order.life]
        _kill_group(process)
        code = process.wait()
        suspended = code == SUSPENDED_CODE and (running.folder / "suspended").exists()
        step = _number_in(running.folder, "step")
        ended(RankEnd(running.order.life, code if code >= 0 else 128 - code, step, suspended))

    def steps(self) -> dict[int, tuple[int, int]]:
        """Return by life which rank runs here, and the last step that it told; those that told none are left out."""
        found = {life: (one.order.rank, _number_in(one.folder, "progress")) for life, one in self._running.items()}
        return {life: (rank, step) for life, (rank, step) in found.items() if step is not None}

    def suspend(self, life: int) -> None:
        """Let a rank see the suspend command."""
        if (running := self._running.get(life)) is not None:
            (running.folder / "suspend").touch()

    def stop(self, life: int) -> None:
        """Kill a rank, and whatever it has started."""
        if (running := self._running.get(life)) is not None:
            _kill_group(running.process)

    def stop_all(self) -> None:
        """Kill all ranks."""
        for life in list(self._running):
            self.stop(life)


def _add_modules(environment: dict[str, str], folder: Path) -> None:
    """Let programs import ``cluster.platform.user``, whichever Python they run by, and nothing else of ours."""
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / "cluster").symlink_to(Path(__file__).resolve().parents[1], target_is_directory=True)
    others = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([*([others] if others else []), str(folder)])


def _look_for_answer(running: _Running) -> None:
    if not running.has_answered and (running.folder / "answered").exists():
        running.has_answered = True
        running.answered()


def _number_in(folder: Path, name: str) -> int | None:
    try:
        return int((folder / name).read_text())
    except (OSError, ValueError):
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
