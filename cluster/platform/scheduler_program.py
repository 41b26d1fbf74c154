"""The scheduler as a program on a management host: it decides in turns, orders agents, and hears them.

It keeps nothing but its journal. What agents say when they dial tells it, after it was killed, what still runs: a rank
that is to run and does not is lost, and its task begins again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import asdict

from cluster.decisions import Action, Decision
from cluster.nodes import Nodes
from cluster.platform.agent_program import RankEnd, RankOrder
from cluster.platform.channel import Channel, Message
from cluster.platform.events import (
    Event,
    JobSpec,
    Left,
    NodeBack,
    NodeOut,
    Started,
    Submitted,
    Told,
    ToldToEnd,
)
from cluster.platform.health import SILENT, UNWELL, Before, HealthKeeper, HealthSetup
from cluster.platform.journal import Journal
from cluster.platform.state import PlatformState
from cluster.platform.timers import Timers
from cluster.policies import Policy
from cluster.scheduler import tick
from cluster.tasks import Task, TaskState, Users, verify_submission
from fabric.errors import ConfigError


class Scheduler:
    """The state, what agents said, and what is being waited for."""

    def __init__(self, nodes: Nodes, users: Users, policy: Policy, timers: Timers, journal: Journal) -> None:
        self.policy, self.timers, self.journal = policy, timers, journal
        self.state = PlatformState(nodes, users, journal.events())
        self.agents: dict[str, Channel] = {}
        now_s = time.monotonic()
        self.heard_s = dict.fromkeys(nodes.names, now_s)
        self.left: dict[int, dict[str, RankEnd | None]] = {
            task.number: dict.fromkeys(self.state.nodes_of(task.number))
            for task in self.state.tasks.values()
            if task.state is not TaskState.QUEUED
        }
        """Per life with nodes how the rank of each has ended; None: not yet."""
        self.kill_at_s: dict[int, float] = {
            task.number: now_s + timers.answer + timers.save
            for task in self.state.tasks.values()
            if task.state is TaskState.LEAVING
        }
        self.ticks = 0
        self.on_event: Callable[[Event], None] = lambda event: None
        self.health: HealthKeeper | None = None
        self.held: set[int] = set()
        """The lives that have nodes, and whose ranks start once these have been validated."""

    def keep_health(self, setup: HealthSetup) -> None:
        """Validate nodes, and take them out and back, from now on."""
        self.health = HealthKeeper(self, setup, self.journal.events())

    # Events ---------------------------------------------------------------------------------------------------------

    def note(self, event: Event) -> None:
        """Write what happens, then let it be so."""
        self.journal.write(event)
        self.state.apply(event)
        if self.health is not None:
            self.health.apply(event)
        self.on_event(event)

    def submit(self, spec: JobSpec) -> int:
        """Take a job; return its number. Raises ConfigError for one that could never start."""
        number = self.state.lives + 1
        task = Task(number, spec.user, spec.nodes, spec.priority, spec.group, limit_s=spec.limit_s)
        verify_submission(task, self.state.users, self.state.nodes)
        if not spec.command:
            raise ConfigError(f"task {number}", ["command: is empty; give a program and its arguments"])
        self.note(Submitted(time.monotonic(), number, spec))
        return number

    def cancel(self, number: int) -> None:
        """Stop a job for good. Raises ConfigError if there is none that has not ended."""
        self._end_job(number, Told.CANCEL, "its user stopped it")

    def suspend(self, number: int) -> None:
        """Suspend a running job; it waits again as before. Raises ConfigError if there is none that runs."""
        self._end_job(number, Told.SUSPEND, "its user suspended it")

    def _end_job(self, number: int, how: Told, why: str) -> None:
        job = self.state.jobs.get(number)
        life = job.lives[-1] if job else 0
        task = self.state.tasks.get(life)
        if task is None or (how is Told.SUSPEND and task.state is not TaskState.RUNNING):
            wanted = "runs" if how is Told.SUSPEND else "has not ended"
            raise ConfigError("job", [f"{number}: there is no job of that number that {wanted}"])
        if task.state is TaskState.QUEUED:
            now_s = time.monotonic()
            self.note(ToldToEnd(now_s, life, how, why))
            self.note(Left(now_s, life, code=1))
        else:
            self.tell(life, how, why)

    # Turns ----------------------------------------------------------------------------------------------------------

    async def turn_on(self) -> None:
        """Decide in turns, for ever."""
        while True:
            self.turn(time.monotonic())
            await asyncio.sleep(self.timers.tick)

    def turn(self, now_s: float) -> None:
        """Take out who is not heard, decide, and kill who is late."""
        for node, heard_s in self.heard_s.items():
            silent_s = now_s - heard_s
            if silent_s >= self.timers.failed_after and node not in self.state.out:
                self.note(NodeOut(now_s, node, f"{SILENT} for {silent_s:.0f} s"))
        if self.health is not None:
            self.health.turn(now_s)
        for life in list(self.held):
            self._begin(life, now_s)
        for life in list(self.left):
            self._count_out(life, now_s)
        self.ticks += 1
        for decision in tick(self.state.at(now_s), self.policy, self.ticks):
            self._do(decision, now_s)
        for life, kill_s in list(self.kill_at_s.items()):
            if now_s >= kill_s:
                self.kill_at_s[life] = math.inf
                self._order_all(life, {"kind": "stop", "life": life})

    def _count_out(self, life: int, now_s: float) -> None:
        """Count ranks on nodes that are out as ended, of a life that is to end."""
        if life in self.state.told:
            for node, end in list(self.left[life].items()):
                if end is None and node in self.state.out:
                    self.left[life][node] = RankEnd(life, 1)
            self._close_if_over(life, now_s)

    def _do(self, decision: Decision, now_s: float) -> None:
        why = decision.because(self.state.nodes)
        if decision.action is Action.START:
            names = tuple(self.state.nodes.names[place] for place in decision.nodes)
            self.note(Started(now_s, decision.task, names, why))
            self.left[decision.task] = dict.fromkeys(names)
            self.held.add(decision.task)
            self._begin(decision.task, now_s)
        elif decision.action is Action.SUSPEND:
            self.tell(decision.task, Told.SUSPEND, why)
        elif decision.action is Action.STOP:
            self.tell(decision.task, Told.RESTART, why)

    def _begin(self, life: int, now_s: float) -> None:
        """Start a life's ranks, if its nodes are sound; of one whose nodes are not, the next tick takes care."""
        before = Before.OK
        if life in self.state.told or life not in self.left:
            before = Before.FAILED
        elif self.health is not None:
            before = self.health.before_start(life, self.state.nodes_of(life), now_s)
        if before is not Before.PENDING:
            self.held.discard(life)
        if before is Before.OK:
            self._start(life)

    def _start(self, life: int) -> None:
        job, nodes = self.state.job_of(life), self.state.nodes_of(life)
        for rank, node in enumerate(nodes):
            order = RankOrder(life, job.number, rank, len(nodes), nodes[0], job.spec.command, job.step)
            self.order(node, {"kind": "start", "order": asdict(order)})

    def tell(self, life: int, how: Told, why: str) -> None:
        """Have a life end: with notice to rank 0 if it may save, after a while if a rank has failed, else at once."""
        now_s = time.monotonic()
        self.note(ToldToEnd(now_s, life, how, why))
        if how is Told.SUSPEND:
            self.kill_at_s[life] = now_s + self.timers.answer
            self.order(self.state.nodes_of(life)[0], {"kind": "suspend", "life": life})
        elif how is Told.FAIL:
            self.kill_at_s[life] = now_s + self.timers.gang
        else:
            self.kill_at_s[life] = math.inf
            self._order_all(life, {"kind": "stop", "life": life})
        self._count_out(life, now_s)

    def reaches(self, node: str, since_s: float) -> bool:
        """Return whether a node's agent is there, and was heard since a time."""
        return node in self.agents and self.heard_s[node] >= since_s

    def order(self, node: str, message: Message) -> None:
        """Send a message to a node's agent, if it is there."""
        if (channel := self.agents.get(node)) is not None:
            channel.send(message)

    def _order_all(self, life: int, message: Message) -> None:
        for node, end in self.left.get(life, {}).items():
            if end is None:
                self.order(node, message)

    # What agents say ------------------------------------------------------------------------------------------------

    def hear(self, node: str, message: Message) -> None:
        """Take what an agent says."""
        now_s = time.monotonic()
        self.heard_s[node] = now_s
        kind = message["kind"]
        if kind == "ended":
            self._rank_ended(node, RankEnd(**{key: message[key] for key in ("life", "code", "step", "suspended")}))
        elif kind == "answered":
            if message["life"] in self.kill_at_s:
                self.kill_at_s[message["life"]] = now_s + self.timers.save
        elif kind in ("beat", "hello"):
            self.order(node, {"kind": "heard"})
            self._health(node, str(message["unwell"]), now_s)
        elif self.health is not None:
            self.health.hear(node, message, now_s)
        if kind == "hello":
            self._reconcile(node, message)

    def _health(self, node: str, unwell: str, now_s: float) -> None:
        why = self.state.out.get(node)
        if unwell and why is None:
            self.note(NodeOut(now_s, node, f"{UNWELL}: {unwell}"))
        elif not unwell and why is not None and why.startswith((SILENT, UNWELL)) and self.health is None:
            self.note(NodeBack(now_s, node, "it is heard, and well"))

    def _reconcile(self, node: str, message: Message) -> None:
        """Compare what runs on a node with what is to run there."""
        running = set(message["running"])
        for end in message["ended"]:
            self._rank_ended(node, RankEnd(**end))
        for life in list(self.left):
            if self.left[life].get(node, node) is not None or life in self.held:
                continue
            if life not in running:
                self._rank_lost(node, life)
            elif life in self.state.told:
                rank0 = self.state.nodes_of(life)[0] == node
                notice = self.state.told[life] is Told.SUSPEND and self.kill_at_s.get(life, 0.0) < math.inf
                if not notice:
                    self.order(node, {"kind": "stop", "life": life})
                elif rank0:
                    self.order(node, {"kind": "suspend", "life": life})
        for life in running - set(self.left):
            self.order(node, {"kind": "stop", "life": life})
        for life in running & set(self.left):
            if node not in self.left[life] or self.left[life][node] is not None:
                self.order(node, {"kind": "stop", "life": life})

    def _rank_lost(self, node: str, life: int) -> None:
        """A rank is to run on a node and does not: its agent was killed, or never got the order."""
        if life not in self.state.told:
            self.tell(life, Told.RESTART, f"{node}: its rank is gone")
        if life in self.left:
            self.left[life][node] = RankEnd(life, 1)
            self._close_if_over(life, time.monotonic())

    def _rank_ended(self, node: str, end: RankEnd) -> None:
        self.order(node, {"kind": "noted", "life": end.life})
        ranks = self.left.get(end.life)
        if ranks is None or ranks.get(node, end) is not None:
            return
        del ranks[node]  # So that they are in the order in which they ended: the code of a life is that of the first.
        ranks[node] = end
        if end.life not in self.state.told:
            if end.suspended:
                self.tell(end.life, Told.SUSPEND, f"{node}: its program suspended itself")
            elif end.code != 0 and node in self.state.out:
                self.tell(end.life, Told.RESTART, f"{node}: its rank ended, and it is out ({self.state.out[node]})")
            elif end.code != 0:
                self.tell(end.life, Told.FAIL, f"{node}: its rank ended with code {end.code}")
        if end.suspended:
            # It has saved; what the others do is of no use any more.
            self._order_all(end.life, {"kind": "stop", "life": end.life})
        self._close_if_over(end.life, time.monotonic())

    def _close_if_over(self, life: int, now_s: float) -> None:
        ranks = self.left.get(life, {None: None})
        if any(end is None for end in ranks.values()):
            return
        ends = [end for end in self.left.pop(life).values() if end is not None]
        self.kill_at_s.pop(life, None)
        steps = [end.step for end in ends if end.step is not None]
        code = next((end.code for end in ends if end.code), 0)
        finished = not code and not any(end.suspended for end in ends)
        self.note(Left(now_s, life, max(steps, default=None), code, finished))
