"""Ranks as processes: what they are told, how they suspend, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.platform import ranks as ranks_of_a_node
from cluster.platform import watching
from cluster.platform.agent_program import RankWords
from cluster.platform.gang import GangLostError
from cluster.platform.lockstep import GO_ON, _agree, _dialled, _step_on
from cluster.platform.messages import RankEnd, RankOrder
from cluster.platform.ranks import ProcessRanks
from cluster.platform.user import RESTART_CODE
from tests.cluster.addresses import own_address
from tests.ports import held_port
from tests.waiting import LIMIT_S, is_alive, until

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
LARGE = """
import mmap, os, time
held = mmap.mmap(-1, 1 << 28)
held.madvise(mmap.MADV_NOHUGEPAGE)
for page in range(0, len(held), mmap.PAGESIZE):
    held[page] = 1
print(os.getpid(), flush=True)
time.sleep(600)
"""
SLEEPS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(100)'])"


def order(program: str, life: int = 7, step: int | None = None) -> RankOrder:
    return RankOrder(life, 3, rank=1, world=4, master="z0h002", command=(sys.executable, "-c", program), step=step)


def words_of(ended: Callable[[RankEnd], None]) -> RankWords:
    return RankWords(ended, lambda: None, lambda saved: None)


def play(
    folder: Path,
    program: RankOrder,
    meanwhile: Callable[[ProcessRanks], None],
    has_come_so_far: Callable[[ProcessRanks], object] = lambda ranks: True,
) -> tuple[RankEnd, int, str]:
    """Return how a rank ended, how often it has answered, and its log. ``meanwhile`` is called once it has come so far,
    and not before its life has lasted half a second."""
    answers: list[None] = []

    async def be() -> RankEnd:
        ranks = ProcessRanks(folder, lambda node: f"10.0.0.{int(node[-1])}", None)
        ended: asyncio.Future[RankEnd] = asyncio.get_running_loop().create_future()
        words = RankWords(ended.set_result, lambda: answers.append(None), lambda saved: None)
        ranks.start(program, words)
        await asyncio.sleep(0.5)
        ends_s = time.monotonic() + LIMIT_S
        while not has_come_so_far(ranks):
            assert time.monotonic() < ends_s, f"waited {LIMIT_S:g} s for what a rank does"
            await asyncio.sleep(0.02)
        meanwhile(ranks)
        return await asyncio.wait_for(ended, LIMIT_S)

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
    program = TRAINS.format(root=str(ROOT), steps=10_000).replace(
        "    step += 1\n", "    step += 1\n    user.step(step)\n"
    )
    program = program.replace(
        "from cluster.platform.user", "from cluster.platform import user\nfrom cluster.platform.user"
    )

    def see(ranks: ProcessRanks) -> None:
        seen.append(ranks.steps())
        ranks.suspend(7)

    play(tmp_path, order(program), see, lambda ranks: ranks.steps())
    ((life, (rank, step)),) = seen[0].items()
    assert (life, rank) == (7, 1) and 0 < step < 10_000


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
        until(lambda: len(processes_in(tmp_path)) == 2, "a rank and what it started")
        ranks.stop(7)

    end, _, _ = play(tmp_path, order(SLEEPS), stop)
    assert end == RankEnd(7, 137)
    until(lambda: not processes_in(tmp_path), "the end of all that it started")


def test_when_a_rank_is_said_to_have_ended_nothing_lives_of_what_it_started(tmp_path: Path) -> None:
    """Its memory takes the kernel some time to free, and its files are closed behind that: whoever gets the node next
    would find a lock held."""
    found: list[tuple[int, bool]] = []

    async def be() -> None:
        ranks = ProcessRanks(tmp_path, lambda node: "127.0.0.1", None)
        ended: asyncio.Future[RankEnd] = asyncio.get_running_loop().create_future()
        log = tmp_path / "7-1" / "log"

        def end(rank_end: RankEnd) -> None:
            child = int(log.read_text())
            found.append((child, is_alive(child)))
            ended.set_result(rank_end)

        command = ("sh", "-c", f"{sys.executable} -c '{LARGE}'; exit $?")
        ranks.start(RankOrder(7, 3, 1, 4, "z0h002", command), words_of(end))
        until(log.read_text, "what a rank starts")
        ranks.stop(7)
        await asyncio.wait_for(ended, LIMIT_S)

    asyncio.run(be())
    ((child, lives),) = found
    assert child and not lives


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
    assert (end.code, end.why) == (127, "cannot be started: [Errno 2] No such file or directory: '/no/such/program'")
    assert "/no/such/program" in log


@pytest.mark.parametrize("command", [("echo", "a\0b"), ("no-such-\udcff",), ("echo", "\ud800"), ("no-such\0",)])
def test_a_command_that_the_kernel_cannot_be_given_ends_its_rank_and_no_other(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    end, _, log = play(tmp_path, RankOrder(7, 3, 1, 4, "z0h002", command), lambda ranks: None)
    assert end.code == 127
    assert end.why.startswith("cannot be started: ")
    assert log.endswith("\n")


def test_a_rank_whose_folder_cannot_be_made_has_not_started(tmp_path: Path) -> None:
    (tmp_path / "7-1").write_text("in its place, as a full disk would be")
    assert [(end.code, "cannot be started" in end.why) for end in ended_in(tmp_path, [order("pass")])] == [(127, True)]


def ended_in(
    folder: Path, orders: list[RankOrder], meanwhile: Callable[[ProcessRanks], object] = lambda ranks: None
) -> list[RankEnd]:
    """Return how ranks of one agent ended. ``meanwhile`` is called once all have started."""
    ended: list[RankEnd] = []

    async def be() -> None:
        failed: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))
        ranks = ProcessRanks(folder, lambda node: "127.0.0.1", None)
        for one in orders:
            ranks.start(one, words_of(ended.append))
        await asyncio.sleep(0.1)
        meanwhile(ranks)
        ends_s = time.monotonic() + LIMIT_S
        while len(ended) < len(orders):
            assert time.monotonic() < ends_s, f"waited {LIMIT_S:g} s for {len(orders)} ranks; {ended} have ended"
            await asyncio.sleep(0.02)
        assert not failed, "the agent would end"

    asyncio.run(be())
    return ended


def test_a_program_that_removed_its_folder_is_killed_when_it_is_to_suspend(tmp_path: Path) -> None:
    gone = order("import os, shutil, time; shutil.rmtree(os.environ['PLATFORM_LIFE_DIR']); time.sleep(100)")

    def suspend(ranks: ProcessRanks) -> None:
        until(lambda: not (tmp_path / "7-1").exists(), "the program to remove its folder")
        ranks.suspend(7)

    other = order("import time; time.sleep(0.5)", life=8)
    ends = {end.life: end for end in ended_in(tmp_path, [gone, other], suspend)}
    assert (ends[7].code, ends[7].suspended, ends[8].code) == (137, False, 0)
    assert ends[7].why.startswith("cannot be shown the suspend command: [Errno 2]")


def watches() -> int:
    """Return how many inotify instances this process has."""
    count = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # That of the listing itself has been closed.
            count += str(one.readlink()) == "anon_inode:inotify"
    return count


def test_all_ranks_of_an_agent_share_one_watch_of_files(tmp_path: Path) -> None:
    counts = []
    before = watches()
    orders = [order("import time; time.sleep(1)", life=life) for life in range(5)]
    ended_in(tmp_path, orders, lambda ranks: counts.append(watches() - before))
    assert (counts, watches() - before) == ([1], 0)


@pytest.mark.parametrize("lacking", ["inotify_init1", "inotify_add_watch"])
def test_where_the_kernel_has_no_watch_left_words_and_ends_come_all_the_same(
    tmp_path: Path, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lacking:
        def __getattr__(self, name: str) -> Any:
            return (lambda *given: -1) if name == lacking else getattr(libc, name)

    libc = watching._libc
    monkeypatch.setattr(watching, "_libc", Lacking())
    end, answers, _ = play(tmp_path, order(TRAINS.format(root=str(ROOT), steps=10_000)), lambda ranks: ranks.suspend(7))
    assert (end.code, end.suspended, answers) == (75, True, 1)


def test_where_no_descriptor_of_a_process_is_left_its_end_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(pid: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    assert [end.code for end in ended_in(tmp_path, [order("import time; time.sleep(0.3)")])] == [0]


def test_what_goes_wrong_with_looking_after_a_rank_is_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(running: Any) -> None:
        if running.order.life == 7:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(ranks_of_a_node, "_look_for_words", breaks)
    other = order("import time; time.sleep(0.3)", life=8)
    ends = {end.life: end for end in ended_in(tmp_path, [order("import time; time.sleep(100)"), other])}
    assert (ends[7].code, ends[8].code) == (137, 0)
    assert ends[7].why == "cannot be looked after: [Errno 5] Input/output error"
    assert "cannot be looked after" in (tmp_path / "7-1" / "log").read_text()


# Ranks that step together ---------------------------------------------------------------------------------------------


def together(
    folder: Path,
    life: int,
    step: int | None,
    meanwhile: Callable[[list[ProcessRanks]], None],
    steps: int,
    stay: int = 0,
) -> list[RankEnd]:
    """Return how the ranks of a job in lockstep ended, each with an agent of its own; of one that goes on, code -1.

    All but ``stay`` ranks are waited for, and then a while whether the others end, too.
    """
    command = (
        sys.executable,
        "-m",
        "cluster.platform.lockstep",
        str(steps),
        "--step",
        "0.05",
        "--every",
        "4",
        "--save",
        "0.01",
    )

    async def be() -> list[RankEnd]:
        agents = [ProcessRanks(folder / str(rank), lambda node: own_address(0), None) for rank in range(3)]
        ends: list[asyncio.Future[RankEnd]] = [asyncio.get_running_loop().create_future() for _ in agents]
        for rank, agent in enumerate(agents):
            agent.start(RankOrder(life, 3, rank, 3, "a", command, step), words_of(ends[rank].set_result))
        log = folder / "0" / f"{life}-0" / "log"
        ends_s = time.monotonic() + LIMIT_S
        while True:
            await asyncio.sleep(0.05)
            assert time.monotonic() < ends_s, f"waited {LIMIT_S:g} s for six steps"
            if log.read_text().count("\n") > 6 or all(end.done() for end in ends):  # Five steps and their begin.
                break
        meanwhile(agents)
        while sum(end.done() for end in ends) < len(ends) - stay:
            assert time.monotonic() < ends_s, f"waited {LIMIT_S:g} s for all ranks but {stay} to end"
            await asyncio.sleep(0.05)
        if stay:
            await asyncio.sleep(1.5)
        found = [end.result() if end.done() else RankEnd(life, -1) for end in ends]
        for agent in agents:
            agent.stop_all()
        await asyncio.wait(ends, timeout=LIMIT_S)
        return found

    return asyncio.run(be())


def steps_in(folder: Path, life: int) -> list[int]:
    words = [line.split()[0] for line in (folder / "0" / f"{life}-0" / "log").read_text().splitlines()]
    assert words[0] == "begin"
    return [int(word) for word in words[1:]]


def test_ranks_in_lockstep_suspend_together_and_go_on_from_there(tmp_path: Path) -> None:
    first = together(tmp_path, 971, None, lambda agents: agents[0].suspend(971), steps=1000)
    assert {end.suspended for end in first} == {True}
    (step,) = {end.step for end in first}
    assert step == steps_in(tmp_path, 971)[-1]
    last = step + 8 - step % 4  # Of which a checkpoint is made.
    again = together(tmp_path, 972, step, lambda agents: None, steps=last)
    assert {(end.code, end.step) for end in again} == {(0, last)}
    assert steps_in(tmp_path, 971) + steps_in(tmp_path, 972) == list(range(1, last + 1))


@pytest.mark.parametrize("lost", [0, 1])
def test_who_loses_a_rank_in_lockstep_stands_still_and_has_said_what_was_saved(tmp_path: Path, lost: int) -> None:
    """Also rank 0, to which the others send: with an exit code of their own the job would end."""
    ends = together(tmp_path, 973, None, lambda agents: agents[lost].stop(973), steps=1000, stay=2)
    assert [end.code for end in ends] == [137 if rank == lost else -1 for rank in range(3)]
    made, saved = steps_in(tmp_path, 973), ends[lost].step
    assert made == list(range(1, len(made) + 1)) and len(made) < 1000
    assert saved and saved % 4 == 0 and 0 <= len(made) - saved <= 5, f"saved step {saved} of {len(made)}"


def lockstep(rank: int, port: int, *options: str) -> subprocess.Popen[str]:
    """Start one rank of three, whose rank 0 is to be on this machine, without an agent."""
    told = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_IP": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-m", "cluster.platform.lockstep", "1000", "--step", "0.02", *options]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (0, "gone: rank 0 of 3: waited 1.5 s at 127.0.0.1:{port} for ranks 1: timed out"),
        (1, "gone: rank 1 of 3: waited 1.5 s for rank 0 at 127.0.0.1:{port}: [Errno 111] Connection refused"),
    ],
)
def test_a_rank_in_lockstep_without_the_others_says_whom_it_waited_for(rank: int, words: str) -> None:
    """Rank 2 is this process: one of its own may begin when rank 0 has waited long enough."""
    port = held_port()
    started = lockstep(rank, port, "--gather", "1.5", "--silent", "1.5")
    try:
        with _dialled(("127.0.0.1", port), 2, LIMIT_S)[0] if rank == 0 else nullcontext():
            told = started.communicate(timeout=LIMIT_S)[0].strip()
    finally:
        started.kill()
        started.wait()
    assert told == words.format(port=port)
    assert started.returncode == RESTART_CODE


def test_who_has_come_waits_for_others_as_long_as_they_may_take_to_come() -> None:
    """Others begin later than it would miss them in a step."""
    options = Namespace(steps=1, step=0.0, every=10, save=0.0, silent=0.1, gather=LIMIT_S)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        threading.Timer(0.3, theirs.sendall, [2 * GO_ON]).start()  # It begins, and ends its step.
        _step_on(options, 1, {0: ours})
        assert theirs.recv(9) == 2 * GO_ON


@pytest.mark.parametrize(("how", "why"), [(signal.SIGSTOP, "timed out"), (signal.SIGKILL, "it has gone")])
def test_a_rank_in_lockstep_that_nobody_kills_ends_and_says_whom_it_waited_for(how: signal.Signals, why: str) -> None:
    port = held_port()
    started = [lockstep(rank, port, "--silent", "3") for rank in range(3)]
    try:
        assert started[0].stdout is not None and started[0].stdout.readline().startswith("begin")
        started[2].send_signal(how)
        told = [one.communicate(timeout=LIMIT_S)[0].splitlines()[-1] for one in started[:2]]
        codes = [one.returncode for one in started[:2]]
    finally:
        for one in started:
            one.kill()
            one.wait()
    lost = re.compile(rf"gone: rank 0 of 3: waited 3 s for rank 2 and the end of step \d+: .*{why}")
    assert lost.fullmatch(told[0]) and told[1].startswith("gone: rank 1 of 3: waited 3 s for rank 0"), told
    assert codes == [RESTART_CODE] * 2


def test_a_peer_that_ended_with_words_unread_has_gone_as_any_other() -> None:
    """Its kernel then resets the connection, and whoever waits for a word gets an error instead of an end."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        with server.accept()[0] as peer:
            ours.sendall(b"unread")
            assert select.select([peer], [], [], LIMIT_S)[0]
        why = r"waited 1 s for rank 1 and the end of step 3: it has gone"
        with pytest.raises(GangLostError, match=rf"^{why}$"):
            _agree(0, {1: ours}, 1.0, "the end of step 3")


def test_who_looks_after_a_rank_sleeps_until_something_happens(tmp_path: Path) -> None:
    """It would be asked twenty times a second otherwise, and time could not jump."""
    looks: list[float] = []

    async def be() -> int:
        ranks = ProcessRanks(tmp_path, lambda node: "127.0.0.1", None)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[RankEnd] = loop.create_future()
        ranks.start(order("import time; time.sleep(0.6)"), words_of(ended.set_result))
        selector = loop._selector  # type: ignore[attr-defined]
        select = selector.select

        def counted(timeout: float | None = None) -> Any:
            looks.append(time.monotonic())
            return select(timeout)

        selector.select = counted
        await ended
        return len(looks)

    assert asyncio.run(be()) < 8
