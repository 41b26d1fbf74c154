"""A cluster of real schedulers and agents in one process, in time that jumps; what ranks do is counting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster.nodes import Nodes
from cluster.platform.agent_program import NodeAgent, RankWords, SavedStep
from cluster.platform.channel import Channel, Message
from cluster.platform.journal import Journal
from cluster.platform.messages import RankEnd, RankOrder
from cluster.platform.scheduler_program import Scheduler
from cluster.platform.scheduler_server import SchedulerServer
from cluster.platform.timers import Timers
from cluster.platform.user import RESTART_CODE
from cluster.policies import HAI
from cluster.tasks import Priority, Users
from fabric.model.lanes import ServiceLevel
from tests.traffic.storage.true_timers import HostTransport, Network
from traffic.storage.wire.event_loop import dialled
from traffic.transport.connection import SocketOptions

MANAGER, PORT = "manager", 7000
STEP_S = 1.0


@dataclass
class Disk:
    """What checkpoints of jobs have, and every step that was made: (life, step), by rank 0 of each job."""

    every: int = 10
    steps: dict[int, int] = field(default_factory=dict)
    made: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    started: dict[int, list[int]] = field(default_factory=dict)
    """Of each life the ranks that started."""
    faults: list[str] = field(default_factory=list)
    """What must never be: two tasks on a node."""

    def sums(self, job: int) -> list[int]:
        """Return the steps that a job made, each as often as it was made."""
        return [step for _, step in self.made.get(job, [])]


class CountingRanks:
    """Ranks that count steps up to what their command says; rank 0 writes a checkpoint now and then."""

    def __init__(self, disk: Disk, save_s: float = 2.0) -> None:
        self.disk, self.save_s = disk, save_s
        self.running: dict[int, tuple[asyncio.Task[None], RankWords]] = {}
        self.saved: dict[int, SavedStep] = {}
        self.notices: set[int] = set()
        self.stand_still = False

    def start(self, order: RankOrder, words: RankWords) -> None:
        if self.running:
            self.disk.faults.append(f"{order}: the node has another task, {sorted(self.running)}")
        self.disk.started.setdefault(order.life, []).append(order.rank)

        async def be() -> None:
            end = await self._count(order, words)
            del self.running[order.life]
            words.ended(end)

        self.running[order.life] = (asyncio.get_running_loop().create_task(be()), words)

    def _save(self, order: RankOrder, step: int, words: RankWords) -> None:
        self.disk.steps[order.job] = step
        self.saved[order.life] = SavedStep(step, time.monotonic())
        words.saved(self.saved[order.life])

    async def _count(self, order: RankOrder, words: RankWords) -> RankEnd:
        name, count = order.command
        job, disk = order.job, self.disk
        # As a program does that knows of no other: what the scheduler tells must be what is on disk.
        step = order.step or 0
        while step < int(count):
            await asyncio.sleep(STEP_S)
            while self.stand_still:
                await asyncio.sleep(STEP_S)
            step += 1
            if order.rank == 0:
                disk.made.setdefault(job, []).append((order.life, step))
                if step % disk.every == 0:
                    self._save(order, step, words)
            if name == "breaks" and step == 5 and order.rank == 1:
                return RankEnd(order.life, 3)
            if name == "lacks" and step == 5 and order.rank == 1 and order.life == order.job:
                return RankEnd(order.life, RESTART_CODE)
            if order.life in self.notices and name != "deaf":
                words.answered()
                await asyncio.sleep(self.save_s)
                self._save(order, step, words)
                return RankEnd(order.life, 75, step, suspended=True)
        return RankEnd(order.life, 0, step if order.rank == 0 else None)

    def suspend(self, life: int) -> None:
        self.notices.add(life)

    def stop(self, life: int) -> None:
        if life in self.running:
            task, words = self.running.pop(life)
            task.cancel()
            words.ended(RankEnd(life, 137))

    def die(self) -> None:
        """End all at once, without a word."""
        for task, _ in self.running.values():
            task.cancel()
        self.running.clear()


def _end(task: asyncio.Task[None]) -> None:
    """Cancel a task until it has ended: before Python 3.12, ``wait_for`` may lose one, and a killed agent lived on."""
    if not task.done():
        task.cancel()
        asyncio.get_running_loop().call_soon(_end, task)


class FakeCluster:
    """A scheduler on a management host, agents on all nodes, users at the management host."""

    def __init__(self, folder: Path, nodes: Nodes, timers: Timers | None = None) -> None:
        self.folder, self.nodes = folder, nodes
        self.users, self.timers = Users(), timers or Timers()
        self.network, self.disk = Network(), Disk()
        self.ranks: dict[str, CountingRanks] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.agents: dict[str, NodeAgent] = {}
        self.journal: Callable[[Path], Journal] = Journal
        self.scheduler: Scheduler
        self.doors: SchedulerServer
        self.turns: asyncio.Task[None]

    def transport(self, host: str) -> HostTransport:
        return HostTransport(self.network, host, SocketOptions(ServiceLevel.CONTROL, user_timeout_s=30.0))

    async def start(self) -> None:
        self.start_scheduler()
        for name in self.nodes.names:
            self.start_agent(name)
        await asyncio.sleep(0.5)

    def start_scheduler(self) -> None:
        policy = replace(HAI, ends_at_limit=True)
        self.scheduler = Scheduler(self.nodes, self.users, policy, self.timers, self.journal(self.folder / "journal"))
        self.doors = SchedulerServer(self.scheduler, self.transport(MANAGER).listen(MANAGER, PORT))
        self.turns = asyncio.get_running_loop().create_task(self.scheduler.turn_on())

    def kill_scheduler(self) -> None:
        """End it without a word: what it did not write is lost."""
        self.turns.cancel()
        self.doors.close()
        self.scheduler.journal.close()

    def start_agent(self, name: str) -> None:
        saved = self.ranks[name].saved if name in self.ranks else {}
        self.ranks[name] = CountingRanks(self.disk)
        self.agents[name] = NodeAgent(name, self.ranks[name], self.timers, saved)
        serving = self.agents[name].serve(self.transport(name), (MANAGER, PORT), name)
        self.tasks[name] = asyncio.get_running_loop().create_task(serving)

    def kill_agent(self, name: str) -> None:
        """End an agent, and its ranks with it."""
        _end(self.tasks[name])
        self.ranks[name].die()

    def silence(self, name: str) -> None:
        """Cut a node off, and let its programs stand still: no peer is told."""
        self.cut_off(name)
        self.ranks[name].stand_still = True

    def mend(self) -> None:
        """Let all hear each other again, and go on."""
        self.network.mend()
        for ranks in self.ranks.values():
            ranks.stand_still = False

    def freeze_scheduler(self) -> None:
        """Let the scheduler's program stand still; its kernel answers for it."""
        self.turns.cancel()
        self.network.frozen.add(MANAGER)

    def thaw_scheduler(self) -> None:
        """Let it go on, with what was sent to it meanwhile still to be read."""
        self.turns = asyncio.get_running_loop().create_task(self.scheduler.turn_on())
        self.network.thaw(MANAGER)

    def cut_off(self, name: str) -> None:
        """Cut a node off from the scheduler; its programs go on."""
        self.network.cut(name, [MANAGER])

    def submit(self, name: str, nodes: int, steps: int, user: str = "ada", priority: Priority = Priority.NORMAL) -> int:
        from cluster.platform.events import JobSpec

        return self.scheduler.submit(JobSpec(name, user, nodes, (name, str(steps)), priority))

    async def without_scheduler(self, nodes: int, steps: int, after_s: float) -> int:
        """Let a job that counts play for a time, and kill the scheduler; return the job."""
        job = self.submit("counts", nodes, steps)
        await asyncio.sleep(after_s)
        self.kill_scheduler()
        return job

    async def ask(self, message: Message) -> Message:
        """Ask as a user does, over a connection."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()
        connection = await dialled(self.transport("user"), (MANAGER, PORT), "user", 10.0)
        channel = Channel(connection, answer.set_result, lambda why: None)
        channel.send(message)
        found = await asyncio.wait_for(answer, 10.0)
        channel.close()
        return found

    async def until_over(self, *jobs: int, patience_s: float = 2000) -> None:
        """Wait until jobs have ended."""
        for _ in range(int(patience_s)):
            if self.turns.done() and not self.turns.cancelled():
                self.turns.result()
            if all(self.scheduler.state.jobs[job].state.is_over for job in jobs):
                return
            await asyncio.sleep(1)
        told: list[Any] = [(job, self.scheduler.state.jobs[job], self.scheduler.left) for job in jobs]
        raise AssertionError(f"not over after {patience_s} s: {told}")
