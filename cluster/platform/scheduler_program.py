"""The scheduler as a program on a management host: it decides in turns, orders agents, and hears them.

It keeps nothing but its journal. What agents say when they dial tells it, after it was killed, what still runs: a rank
that is to run and does not is lost, and its task begins again.

A start has two steps. The nodes that a life gets are asked whether they are there and can take it; once all have said
so its ranks start. If one does not in time it is taken out, and the life waits where it was, so that no gang stands
half started.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from cluster.decisions import Action, Decision
from cluster.health.messages import HealthWord
from cluster.health.unwell import Unwell
from cluster.nodes import Nodes
from cluster.platform.channel import Channel
from cluster.platform.events import (
    Asked,
    EndKind,
    EndOrdered,
    Event,
    Held,
    JobSpec,
    Left,
    NodeBack,
    NodeOut,
    Released,
    Requeued,
    Saved,
    Started,
    Submitted,
    words_fault,
)
from cluster.platform.health import Before, HealthKeeper, HealthSetup
from cluster.platform.journal import Journal
from cluster.platform.liveness import Deadline, Liveness
from cluster.platform.messages import (
    Acknowledged,
    Answered,
    AskReady,
    Beat,
    Hello,
    Noted,
    Order,
    RankEnd,
    RankOrder,
    Ready,
    StartRank,
    StepSaved,
    StopRank,
    SuspendRank,
    Word,
    to_values,
)
from cluster.platform.reasons import NoAnswer, OfNodes, Silent, Why
from cluster.platform.state import JobStatus, PlatformState
from cluster.platform.timers import Timers
from cluster.platform.turns import Turns
from cluster.platform.user import RESTART_CODE
from cluster.policies import Policy
from cluster.scheduler import tick
from cluster.tasks import Task, TaskState, Users, verify_submission
from fabric.errors import ConfigError


@dataclass
class AwaitedReplies:
    """The nodes of a life that have not said yet whether they take it, and until when they may. ``turn`` is the
    question's number, which answers bear: when it was asked, in nanoseconds. Once none is missing it stays until the
    nodes are validated, if they are to be."""

    missing: set[str]
    deadline: Deadline
    turn: int


@dataclass
class Ending:
    """The end of a life that was told to: when its ranks are killed (``time.monotonic()``), and, once that is ordered,
    until when their nodes may say so."""

    kill_s: float
    killed: Deadline | None = None


class Scheduler:
    """The state, what agents said, and what is being waited for."""

    def __init__(self, nodes: Nodes, users: Users, policy: Policy, timers: Timers, journal: Journal) -> None:
        self.policy, self.timers, self.journal = policy, timers, journal
        self.state = PlatformState(nodes, users, journal.events())
        self.turns = Turns()
        self.agents: dict[str, Channel] = {}
        now_s = time.monotonic()
        self.heard_s = Liveness(nodes.names, timers.beat, now_s)
        for node in self.state.out:
            self.heard_s.take_out(node, now_s)
        self.left: dict[int, dict[str, RankEnd | None]] = {
            task.number: dict.fromkeys(self.state.nodes_of(task.number))
            for task in self.state.tasks.values()
            if task.state is not TaskState.QUEUED and task.number not in self.state.asked
        }
        """Per life with ranks how that of each node has ended; None: not yet."""
        self.ending: dict[int, Ending] = {
            task.number: Ending(now_s + timers.answer + timers.save)
            for task in self.state.tasks.values()
            if task.state is TaskState.LEAVING
        }
        self.asking: dict[int, AwaitedReplies] = {}
        for life in self.state.asked:
            # Agents are yet to dial; then they are asked again.
            self._ask(life, self.timers.ready + 2 * self.timers.redial)
        self.on_event: Callable[[Event], None] = lambda event: None
        self.health: HealthKeeper | None = None
        self._end_what_was_ending()

    def _end_what_was_ending(self) -> None:
        """End the jobs that wait though they were told to end, for the scheduler was killed before it wrote that they
        have: they would get nodes, and never begin. Stop those of wrong submissions in old journals."""
        now_s = time.monotonic()
        for life in list(self.state.told):
            if self.state.tasks[life].state is TaskState.QUEUED:
                self.note(Left(now_s, life, code=1))
        for job in self.state.jobs.values():
            if job.faults and job.code is None:
                self._end_job(job.number, EndKind.CANCEL, f"was submitted with values of other types: {job.faults[0]}")

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

    def submit(self, spec: JobSpec, token: str = "") -> int:
        """Take a job; return its number. ``token``: the submission's own name, by which one that comes again, since its
        answer was lost with this program, is known. Raises ConfigError for a job that could never start."""
        if token in self.state.tokens:
            return self.state.tokens[token]
        number = self.state.lives + 1
        task = Task(number, spec.user, spec.nodes, spec.priority, spec.group, limit_s=spec.limit_s)
        verify_submission(task, self.state.users, self.state.nodes)
        if fault := words_fault(spec.command):
            raise ConfigError(f"task {number}", [f"command: {fault}"])
        self.note(Submitted(time.monotonic(), number, spec, token))
        return number

    def cancel(self, number: int) -> None:
        """Stop a job for good. Raises ConfigError if there is none that has not ended."""
        self._end_job(number, EndKind.CANCEL, "its user stopped it")

    def suspend(self, number: int) -> None:
        """Suspend a running job; it waits again as before. Raises ConfigError if there is none that runs."""
        self._end_job(number, EndKind.SUSPEND, "its user suspended it")

    def hold(self, number: int) -> None:
        """Let a job wait until it is released; one that runs saves, and leaves its nodes. Raises ConfigError if there
        is none that has not ended, or if it is held already."""
        job = self._not_over(number)
        if job.is_held:
            raise ConfigError("job", [f"{number}: is held already; let it go on: fabric cluster release {number}"])
        why = "its user holds it"
        self.note(Held(time.monotonic(), number, why))
        life = job.lives[-1]
        if life in self.state.asked:
            self._requeue(life, why)
        elif self.state.tasks[life].state is TaskState.RUNNING:
            self.tell(life, EndKind.SUSPEND, why)

    def release(self, number: int) -> None:
        """Let a job be started again that is held. Raises ConfigError if it is not."""
        if not self._not_over(number).is_held:
            raise ConfigError("job", [f"{number}: is not held; hold it: fabric cluster hold {number}"])
        self.note(Released(time.monotonic(), number, "its user released it"))

    def _not_over(self, number: int) -> JobStatus:
        job = self.state.jobs.get(number)
        if job is None or job.state.is_over:
            raise _no_job(number, "has not ended")
        return job

    def suspend_all(self, why: str) -> None:
        """Suspend all that runs, and let wait what is being asked for."""
        for life, task in list(self.state.tasks.items()):
            if life in self.state.asked:
                self._requeue(life, why)
            elif task.state is TaskState.RUNNING:
                self.tell(life, EndKind.SUSPEND, why)

    def _end_job(self, number: int, how: EndKind, why: str) -> None:
        job = self.state.jobs.get(number)
        life = job.lives[-1] if job else 0
        task = self.state.tasks.get(life)
        is_asked = life in self.state.asked
        if task is None or (how is EndKind.SUSPEND and (is_asked or task.state is not TaskState.RUNNING)):
            raise _no_job(number, "runs" if how is EndKind.SUSPEND else "has not ended")
        if is_asked:
            self._requeue(life, why)
        if is_asked or task.state is TaskState.QUEUED:
            now_s = time.monotonic()
            self.note(EndOrdered(now_s, life, how, why))
            self.note(Left(now_s, life, code=1))
        else:
            self.tell(life, how, why)

    # Turns ----------------------------------------------------------------------------------------------------------

    async def turn_on(self) -> None:
        """Decide in turns, forever; for the first time once agents have had time to say what runs. Turns are due a
        tick apart: a late one delays no other."""
        began_s, tick_s = time.monotonic(), self.timers.tick
        while True:
            now_s = time.monotonic()
            due_s = began_s + tick_s * (math.floor((now_s - began_s) / tick_s) + 1)
            if due_s <= now_s:  # By rounding; it would never wait.
                due_s += tick_s
            await asyncio.sleep(due_s - time.monotonic())
            if time.monotonic() - due_s > tick_s:
                # This program stood still. What came meanwhile is heard before anybody counts as late.
                await asyncio.sleep(tick_s)
            now_s = max(time.monotonic(), due_s)
            self.turn(now_s, due_s + tick_s * math.floor((now_s - due_s) / tick_s))

    def turn(self, now_s: float, due_s: float | None = None) -> None:
        """Take out who is not heard, decide, and kill who is late. ``due_s``: when the turn was due; None: now."""
        with self.turns.under_way(now_s if due_s is None else due_s):
            self._turn(now_s)

    def _deadline(self, now_s: float, wait_s: float) -> Deadline:
        """Return the end of a wait for nodes that begins now."""
        return self.heard_s.deadline(now_s, wait_s - (now_s - self.turns.counts_from(now_s)))

    def _turn(self, now_s: float) -> None:
        for node in self.heard_s:
            silent_s = self.heard_s.silent_s(node, now_s)
            if silent_s >= self.timers.failed_after and node not in self.state.out:
                self._take_out_silent(node, now_s)
        if self.health is not None:
            self.health.turn(now_s)
        for life, asking in list(self.asking.items()):
            if asking.missing:
                self._give_up_asking(life, now_s)
            else:
                self._begin(life, now_s)
        for life in list(self.left):
            self._take_out_deaf(life, now_s)
            self._count_out(life, now_s)
            self._end_at_limit(life, now_s)
        self.turns.number += 1
        for decision in tick(self.state.at(now_s), self.policy, self.turns.number):
            self._do(decision, now_s)
        self.kill_late(now_s)

    def kill_late(self, now_s: float) -> None:
        """Have ranks killed of lives that have not left in time."""
        for life, ending in list(self.ending.items()):
            if ending.killed is None and now_s >= ending.kill_s:
                self._kill(life, now_s)

    def _kill(self, life: int, now_s: float) -> None:
        """Have the ranks of a life killed that are left."""
        self.ending[life] = Ending(now_s, self._deadline(now_s, self.timers.ready))
        self._order_all(life, StopRank(life))

    def _take_out(self, out: NodeOut) -> None:
        self.heard_s.take_out(out.node, out.at_s)
        self.note(out)

    def _take_out_silent(self, node: str, now_s: float, asked: str = "") -> None:
        """Take out a node that is not heard. ``asked``: what it left unanswered, if that is why."""
        self._take_out(NodeOut(now_s, node, Silent(self.heard_s.silent_s(node, now_s), asked)))

    def _end_at_limit(self, life: int, now_s: float) -> None:
        """End a job that has run, in this life, for as long as it said that it would at most: others count on it."""
        task = self.state.tasks[life] if self.policy.ends_at_limit and life in self.left else None
        if task is None or task.limit_s is None or life in self.state.told:
            return
        if now_s - task.began_s >= task.limit_s:
            self.tell(life, EndKind.TIMEOUT, f"it has run for its limit of {task.limit_s:g} s")

    def _take_out_deaf(self, life: int, now_s: float) -> None:
        """Take out the nodes that were to kill a rank of a life and have not been heard since: all others wait for
        them, their own nodes, too. With a fence they are waited for until that has killed the rank; so they are, as all
        who are silent, if they were not heard since the scheduler itself hears again."""
        ending, timers = self.ending.get(life), self.timers
        if ending is None or ending.killed is None:
            return
        if not self.heard_s.is_over(ending.killed, now_s, timers.ready + 2 * timers.redial):
            return
        least_s = 0.0 if timers.fence is None else timers.fence + 2 * timers.beat
        for node, end in self.left[life].items():
            is_deaf = self.heard_s[node] < ending.killed.since_s and self.heard_s.silent_s(node, now_s) >= least_s
            if end is None and is_deaf and node in self.heard_s.in_touch and node not in self.state.out:
                self._take_out_silent(node, now_s, f"asked to end task {life}, no word within {timers.ready:g} s")

    def _count_out(self, life: int, now_s: float) -> None:
        """Count ranks on nodes that are out and not heard as ended, of a life that is to end. Those on a node that is
        out for another reason are waited for."""
        if life in self.state.told:
            for node, end in list(self.left[life].items()):
                if end is None and self._is_gone(node, now_s):
                    self.left[life][node] = RankEnd(life, 1)
            self._close_if_over(life, now_s)

    def give_up_unconnected(self) -> None:
        """Take out the nodes without a connection on which ranks of lives are waited for that were told to end: the
        run ends, and nobody waits until their silence has lasted long enough."""
        now_s = time.monotonic()
        for life in [life for life in self.left if life in self.state.told]:
            for node, end in self.left[life].items():
                if end is None and node not in self.agents:
                    self._take_out_silent(node, now_s, "it has no connection at the end of the phase")
            self._count_out(life, now_s)

    def _is_gone(self, node: str, now_s: float) -> bool:
        is_silent = self.heard_s.silent_s(node, now_s) >= self.timers.failed_after
        return node in self.state.out and (is_silent or isinstance(self.state.outs[node].why, Silent))

    def _do(self, decision: Decision, now_s: float) -> None:
        why, life = decision.because(self.state.nodes), decision.task
        if decision.action is Action.START:
            names = tuple(self.state.nodes.names[place] for place in decision.nodes)
            self.note(Asked(now_s, life, names, why))
            self._ask(life, self.timers.ready)
        elif decision.action in (Action.SUSPEND, Action.STOP) and life in self.state.asked:
            self._requeue(life, why)
        elif decision.action is Action.SUSPEND:
            self.tell(life, EndKind.SUSPEND, why)
        elif decision.action is Action.STOP:
            self.tell(life, EndKind.RESTART, why)

    # Asking, and starting ------------------------------------------------------------------------------------------

    def _ask(self, life: int, ready_s: float) -> None:
        """Ask the nodes that a life gets whether they can take it."""
        nodes, now_s = self.state.nodes_of(life), time.monotonic()
        self.asking[life] = AwaitedReplies(set(nodes), self._deadline(now_s, ready_s), round(now_s * 1e9))
        for node in nodes:
            self.order(node, AskReady(life, self.asking[life].turn))

    def _is_ready(self, node: str, word: Ready, now_s: float) -> None:
        """Take a node's word; start the ranks once all have given theirs."""
        life = word.life
        asking = self.asking.get(life)
        if asking is None or node not in asking.missing or word.turn != asking.turn:
            return  # Of a question that has been given up.
        if word.unwell:
            self._health(node, word.unwell, now_s)
            self._requeue(life, OfNodes((node,), f"cannot take it: {word.unwell.words}"))
            return
        asking.missing.remove(node)
        if asking.missing:
            return
        self.note(Started(now_s, life, self.state.nodes_of(life), self.state.asked[life]))
        self.left[life] = dict.fromkeys(self.state.nodes_of(life))
        self._begin(life, now_s)

    def _give_up_asking(self, life: int, now_s: float) -> None:
        """Take out the nodes that have not answered in time, and let the life wait where it was."""
        asking = self.asking[life]
        if not self.heard_s.is_over(asking.deadline, now_s, self.timers.ready + 2 * self.timers.redial):
            return
        silent = sorted(asking.missing)
        for node in silent:
            if node not in self.state.out:
                asked = f"asked to take task {life}, no answer within {self.timers.ready:g} s"
                self._take_out_silent(node, now_s, asked)
        self._requeue(life, NoAnswer(tuple(silent), self.timers.ready))

    def _requeue(self, life: int, why: Why) -> None:
        self.asking.pop(life, None)
        self.note(Requeued(time.monotonic(), life, why))

    def _begin(self, life: int, now_s: float) -> None:
        """Start a life's ranks, if its nodes are sound; of one whose nodes are not, the next tick takes care."""
        before = Before.OK
        if life in self.state.told or life not in self.left:
            before = Before.FAILED
        elif self.health is not None:
            before = self.health.before_start(life, self.state.nodes_of(life), now_s)
        if before is not Before.PENDING:
            self.asking.pop(life, None)
        if before is Before.OK:
            self._start(life)

    def _start(self, life: int) -> None:
        job, nodes = self.state.job_of(life), self.state.nodes_of(life)
        for rank, node in enumerate(nodes):
            spec = job.spec
            order = RankOrder(life, job.number, rank, len(nodes), nodes[0], spec.command, job.step, spec.directory)
            self.order(node, StartRank(order))

    # Ending ---------------------------------------------------------------------------------------------------------

    def tell(self, life: int, how: EndKind, why: Why) -> None:
        """Have a life end: with notice to rank 0 if it may save, after a while if a rank has failed, else at once."""
        now_s = time.monotonic()
        self.note(EndOrdered(now_s, life, how, why))
        if how is EndKind.SUSPEND:
            self.ending[life] = Ending(self.turns.counts_from(now_s) + self.timers.answer)
            self.order(self.state.nodes_of(life)[0], SuspendRank(life))
        elif how is EndKind.FAIL:
            self.ending[life] = Ending(self.turns.counts_from(now_s) + self.timers.gang)
        else:
            self._kill(life, now_s)
        self._count_out(life, now_s)

    def reaches(self, node: str, since_s: float) -> bool:
        """Return whether a node's agent is there, and has heard the scheduler since a time."""
        return node in self.agents and self.heard_s.hears_since(node, since_s)

    def order(self, node: str, order: Order) -> None:
        """Send an order to a node's agent, if it is there."""
        if (channel := self.agents.get(node)) is not None:
            channel.send(to_values(order))

    def _order_all(self, life: int, order: Order) -> None:
        for node, end in self.left.get(life, {}).items():
            if end is None:
                self.order(node, order)

    # What agents say ------------------------------------------------------------------------------------------------

    def hear(self, node: str, word: Word) -> None:
        """Take what an agent says."""
        now_s = time.monotonic()
        self.heard_s.hear(node, now_s)
        if isinstance(word, RankEnd):
            self._rank_ended(node, word)
        elif isinstance(word, Answered):
            ending = self.ending.get(word.life)
            if ending is not None and ending.killed is None:
                ending.kill_s = now_s + self.timers.save
        elif isinstance(word, Ready):
            self._is_ready(node, word, now_s)
        elif isinstance(word, StepSaved):
            self._has_saved(word)
        elif isinstance(word, Beat | Hello):
            self.order(node, Acknowledged(word.at))
            self.heard_s.told(node, now_s, word.unheard_s if isinstance(word, Beat) else 0.0)
            self._health(node, word.unwell, now_s)
        elif self.health is not None and isinstance(word, HealthWord):
            self.health.hear(node, word, now_s)
        if isinstance(word, Hello):
            self._reconcile(node, word)

    def _health(self, node: str, unwell: Unwell, now_s: float) -> None:
        out = self.state.outs.get(node)
        if unwell and out is None:
            self._take_out(NodeOut(now_s, node, unwell))
        elif unwell or out is None or self.health is not None:
            return  # Where health is kept, nodes come back once they are validated.
        elif isinstance(out.why, Silent | Unwell) and self.heard_s.hears_again(node):
            self.note(NodeBack(now_s, node, "it is heard, and well"))

    def _has_saved(self, word: StepSaved) -> None:
        if word.life in self.left and word.step > self.state.saved.get(word.life, -1):
            self.note(Saved(time.monotonic(), word.life, word.step, word.age_s))

    def _reconcile(self, node: str, hello: Hello) -> None:
        """Compare what runs on a node with what is to run there."""
        running = set(hello.running)
        for saved in hello.saved:
            self._has_saved(saved)
            if saved.life not in self.left:
                self.order(node, Noted(saved.life))
        for end in hello.ended:
            self._rank_ended(node, end)
        for life, asking in self.asking.items():
            if node in asking.missing:
                self.order(node, AskReady(life, asking.turn))
        for life in list(self.left):
            if self.left[life].get(node, node) is not None or life in self.asking:
                continue
            if life not in running:
                self._rank_lost(node, life)
            elif life in self.state.told:
                rank0 = self.state.nodes_of(life)[0] == node
                ending = self.ending.get(life)
                notice = self.state.told[life] is EndKind.SUSPEND and ending is not None and ending.killed is None
                if not notice:
                    self.order(node, StopRank(life))
                elif rank0:
                    self.order(node, SuspendRank(life))
        for life in running - set(self.left):
            self.order(node, StopRank(life))
        for life in running & set(self.left):
            if node not in self.left[life] or self.left[life][node] is not None:
                self.order(node, StopRank(life))

    def _rank_lost(self, node: str, life: int) -> None:
        """A rank is to run on a node and does not: its agent was killed, or never got the order."""
        if life not in self.state.told:
            self.tell(life, EndKind.RESTART, OfNodes((node,), "its rank is gone"))
        if life in self.left:
            self.left[life][node] = RankEnd(life, 1)
            self._close_if_over(life, time.monotonic())

    def _rank_ended(self, node: str, end: RankEnd) -> None:
        ranks = self.left.get(end.life)
        if ranks is None or node not in ranks:
            self.order(node, Noted(end.life))
            return
        if ranks[node] is not None:
            return
        del ranks[node]  # So that they are in the order in which they ended: the code of a life is that of the first.
        ranks[node] = end
        if end.life not in self.state.told and (what := self._follows(node, end)) is not None:
            how, words = what
            self.tell(end.life, how, OfNodes((node,), words))
        if end.suspended:
            # It has saved; what the others do is of no use any more.
            self._kill(end.life, time.monotonic())
        self._close_if_over(end.life, time.monotonic())

    def _follows(self, node: str, end: RankEnd) -> tuple[EndKind, str] | None:
        """Return how a life ends after one of its ranks did, with the reason; None if the life goes on."""
        if end.suspended:
            return EndKind.SUSPEND, "its program suspended itself"
        if end.fenced:
            return EndKind.RESTART, "it did not hear the scheduler, and killed its rank"
        if end.code != 0 and node in self.state.out:
            return EndKind.RESTART, f"its rank ended, and it is out ({self.state.out[node]})"
        if end.code == RESTART_CODE:
            return EndKind.RESTART, "its rank lacks others, or storage"
        if end.code != 0:
            return EndKind.FAIL, f"its rank ended with code {end.code}" + (f": {end.why}" if end.why else "")
        return None

    def _close_if_over(self, life: int, now_s: float) -> None:
        ranks = self.left.get(life, {None: None})
        if any(end is None for end in ranks.values()):
            return
        nodes = tuple(self.left[life])
        why = next((f"{node}: {end.why}" for node, end in self.left[life].items() if end and end.why), "")
        ends = [end for end in self.left.pop(life).values() if end is not None]
        self.ending.pop(life, None)
        steps = [end.step for end in ends if end.step is not None]
        if life in self.state.saved:
            steps.append(self.state.saved[life])
        code = next((end.code for end in ends if end.code), 0)
        finished = not code and not any(end.suspended for end in ends)
        self.note(Left(now_s, life, max(steps, default=None), code, finished, why))
        for node in nodes:
            # Only now: had this program been killed before, it would have had to be told again.
            self.order(node, Noted(life))


def _no_job(number: int, wanted: str) -> ConfigError:
    return ConfigError("job", [f"{number}: is not the number of a job that {wanted}"])
