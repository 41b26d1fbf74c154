"""Ranks as processes: what they are told, how they suspend, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cluster.platform.agent_program import RankEnd, RankOrder
from cluster.platform.ranks import ProcessRanks

ROOT = Path(__file__).parents[3]
TRAINS = """
import os, sys, time
sys.path.insert(0, {root!r})
from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step

print(os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["MASTER_IP"], os.environ["MASTER_PORT"], flush=True)
step = saved_step() or 0
while step < {steps}:
    time.sleep(0.02)
    step += 1
    if receive_suspend_command():
        saved(step)
        go_suspend()
saved(step)
"""
SLEEPS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(100)'])"


def order(program: str, life: int = 7, step: int | None = None) -> RankOrder:
    return RankOrder(life, 3, rank=1, world=4, master="z0h002", command=(sys.executable, "-c", program), step=step)


def play(folder: Path, program: RankOrder, meanwhile: Callable[[ProcessRanks], None]) -> tuple[RankEnd, int, str]:
    """Return how a rank ended, how often it has answered, and its log."""
    answers: list[None] = []

    async def be() -> RankEnd:
        ranks = ProcessRanks(folder, lambda node: f"10.0.0.{int(node[-1])}", None)
        ended: asyncio.Future[RankEnd] = asyncio.get_running_loop().create_future()
        ranks.start(program, ended.set_result, lambda: answers.append(None))
        await asyncio.sleep(0.5)
        meanwhile(ranks)
        return await asyncio.wait_for(ended, 20)

    end = asyncio.run(be())
    return end, len(answers), (folder / f"{program.life}-{program.rank}" / "log").read_text()


def test_a_rank_is_told_its_place_suspends_itself_and_goes_on(tmp_path: Path) -> None:
    program = TRAINS.format(root=str(ROOT), steps=10_000)
    end, answers, log = play(tmp_path, order(program), lambda ranks: ranks.suspend(7))
    assert (end.life, end.code, end.suspended, answers) == (7, 75, True, 1)
    assert end.step is not None and 0 < end.step < 10_000
    assert log.split() == ["1", "4", "10.0.0.2", "2229"]
    again = TRAINS.format(root=str(ROOT), steps=end.step + 3)
    after, _, _ = play(tmp_path, order(again, life=8, step=end.step), lambda ranks: None)
    assert after == RankEnd(8, 0, end.step + 3)


def test_steps_that_a_rank_tells_are_seen_while_it_runs(tmp_path: Path) -> None:
    seen: list[dict[int, tuple[int, int]]] = []
    program = TRAINS.format(root=str(ROOT), steps=40).replace("    step += 1\n", "    step += 1\n    user.step(step)\n")
    program = program.replace(
        "from cluster.platform.user", "from cluster.platform import user\nfrom cluster.platform.user"
    )
    play(tmp_path, order(program), lambda ranks: seen.append(ranks.steps()))
    ((life, (rank, step)),) = seen[0].items()
    assert (life, rank) == (7, 1) and 0 < step < 40


def processes_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                at = (process / "cwd").readlink()
            except OSError:
                continue
            if at.is_relative_to(folder):
                found.append(int(process.name))
    return found


def test_a_rank_that_is_stopped_takes_along_what_it_started(tmp_path: Path) -> None:
    def stop(ranks: ProcessRanks) -> None:
        ends_s = time.monotonic() + 10
        while len(processes_in(tmp_path)) < 2 and time.monotonic() < ends_s:
            time.sleep(0.05)
        assert len(processes_in(tmp_path)) == 2
        ranks.stop(7)

    end, _, _ = play(tmp_path, order(SLEEPS), stop)
    assert end == RankEnd(7, 137)
    ends_s = time.monotonic() + 5
    while processes_in(tmp_path) and time.monotonic() < ends_s:
        time.sleep(0.05)
    assert not processes_in(tmp_path)


def test_any_python_can_import_the_users_module_and_count(tmp_path: Path) -> None:
    """The system's, too, which has none of our packages; and it goes on behind the step that was saved."""
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    start = "from cluster.platform.counted_steps import main; main(4, 2, 0.01)"
    alone = RankOrder(7, 3, 0, 1, "z0h002", (python, "-c", start), 1)
    end, _, log = play(tmp_path, alone, lambda ranks: None)
    assert (end, log.split()) == (RankEnd(7, 0, 4), ["2", "3", "4"])


def test_a_command_that_is_none_ends_at_once_with_its_error(tmp_path: Path) -> None:
    wrong = RankOrder(7, 3, 1, 4, "z0h002", ("/no/such/program",))
    end, _, log = play(tmp_path, wrong, lambda ranks: None)
    assert end == RankEnd(7, 127)
    assert "/no/such/program" in log
