"""A cluster of real schedulers and agents in one process, in time that jumps; what ranks do is counting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.nodes import Nodes
from cluster.platform.agent_program import NodeAgent, RankEnd, RankOrder
from cluster.platform.channel import Channel, Message
from cluster.platform.doors import Doors
from cluster.platform.journal import Journal
from cluster.platform.scheduler_program import Scheduler
from cluster.platform.timers import Timers
from cluster.platform.user import RESTART_CODE
from cluster.policies import HAI
from cluster.tasks import Priority, Users
from fabric.model.lanes import ServiceLevel
from tests.traffic.storage.true_timers import HostTransport, Network
from traffic.storage.event_loop import dialled
from traffic.transport.connection import SocketOptions

MANAGER, PORT = "manager", 7000
STEP_S = 1.0


@dataclass
class Disk:
    """What checkpoints of jobs have, and every step that was made: (life, step), by rank 0 of each job."""

    every: int = 10
    steps: dict[int, int] = field(default_factory=dict)
    made: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def sums(self, job: int) -> list[int]:
        """Return the steps that a job made, each as often as it was made."""
        return [step for _, step in self.made.get(job, [])]


class CountingRanks:
    """Ranks that count steps up to what their command says; rank 0 writes a checkpoint now and then."""

    def __init__(self, disk: Disk, save_s: float = 2.0) -> None:
        self.disk, self.save_s = disk, save_s
        self.running: dict[int, tuple[asyncio.Task[None], Callable[[RankEnd], None]]] = {}
        self.notices: set[int] = set()

    def start(self, order: RankOrder, ended: Callable[[RankEnd], None], answered: Callable[[], None]) -> None:
        async def be() -> None:
            end = await self._count(order, answered)
            del self.running[order.life]
            ended(end)

        self.running[order.life] = (asyncio.get_running_loop().create_task(be()), ended)

    async def _count(self, order: RankOrder, answered: Callable[[], None]) -> RankEnd:
        name, count = order.command
        job, disk = order.job, self.disk
        step = disk.steps.get(job, 0)
        while step < int(count):
            await asyncio.sleep(STEP_S)
            step += 1
            if order.rank == 0:
                disk.made.setdefault(job, []).append((order.life, step))
                if step % disk.every == 0:
                    disk.steps[job] = step
            if name == "breaks" and step == 5 and order.rank == 1:
                return RankEnd(order.life, 3)
            if name == "lacks" and step == 5 and order.rank == 1 and order.life == order.job:
                return RankEnd(order.life, RESTART_CODE)
            if order.life in self.notices and name != "deaf":
                answered()
                await asyncio.sleep(self.save_s)
                disk.steps[job] = step
                return RankEnd(order.life, 75, step, suspended=True)
        return RankEnd(order.life, 0, step)

    def suspend(self, life: int) -> None:
        self.notices.add(life)

    def stop(self, life: int) -> None:
        if life in self.running:
            task, ended = self.running.pop(life)
            task.cancel()
            ended(RankEnd(life, 137))

    def die(self) -> None:
        """End all at once, without a word."""
        for task, _ in self.running.values():
            task.cancel()
        self.running.clear()


class FakeCluster:
    """A scheduler on a management host, agents on all nodes, users at the management host."""

    def __init__(self, folder: Path, nodes: Nodes, timers: Timers | None = None) -> None:
        self.folder, self.nodes = folder, nodes
        self.users, self.timers = Users(), timers or Timers()
        self.network, self.disk = Network(), Disk()
        self.ranks: dict[str, CountingRanks] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.agents: dict[str, NodeAgent] = {}
        self.scheduler: Scheduler
        self.doors: Doors
        self.turns: asyncio.Task[None]

    def transport(self, host: str) -> HostTransport:
        return HostTransport(self.network, host, SocketOptions(ServiceLevel.CONTROL, user_timeout_s=30.0))

    async def start(self) -> None:
        self.start_scheduler()
        for name in self.nodes.names:
            self.start_agent(name)
        await asyncio.sleep(0.5)

    def start_scheduler(self) -> None:
        journal = Journal(self.folder / "journal")
        self.scheduler = Scheduler(self.nodes, self.users, HAI, self.timers, journal)
        self.doors = Doors(self.scheduler, self.transport(MANAGER).listen(MANAGER, PORT))
        self.turns = asyncio.get_running_loop().create_task(self.scheduler.turn_on())

    def kill_scheduler(self) -> None:
        """End it without a word: what it did not write is lost."""
        self.turns.cancel()
        self.doors.close()
        self.scheduler.journal.close()

    def start_agent(self, name: str) -> None:
        self.ranks[name] = CountingRanks(self.disk)
        self.agents[name] = NodeAgent(name, self.ranks[name], self.timers)
        serving = self.agents[name].serve(self.transport(name), (MANAGER, PORT), name)
        self.tasks[name] = asyncio.get_running_loop().create_task(serving)

    def kill_agent(self, name: str) -> None:
        """End an agent, and its ranks with it."""
        self.tasks[name].cancel()
        self.ranks[name].die()

    def silence(self, name: str) -> None:
        """Cut a node off, and let its programs stand still: no peer is told."""
        self.cut_off(name)
        self.ranks[name].die()

    def cut_off(self, name: str) -> None:
        """Cut a node off from the scheduler; its programs go on."""
        self.network.cut(name, [MANAGER])

    def submit(self, name: str, nodes: int, steps: int, user: str = "ada", priority: Priority = Priority.NORMAL) -> int:
        from cluster.platform.events import JobSpec

        return self.scheduler.submit(JobSpec(name, user, nodes, (name, str(steps)), priority))

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
            if self.turns.done():
                self.turns.result()
            if all(self.scheduler.state.jobs[job].state.value == "finished" for job in jobs):
                return
            await asyncio.sleep(1)
        told: list[Any] = [(job, self.scheduler.state.jobs[job], self.scheduler.left) for job in jobs]
        raise AssertionError(f"not over after {patience_s} s: {told}")
