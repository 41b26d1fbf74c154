"""Jobs, faults and a policy in order of time.

Something happens (a job arrives, ends, has left, a fault comes, is noticed, is repaired), and at the next multiple of
``tick_s`` the scheduler decides. Times of causes are exact: they do not depend on how often it ticks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cluster.decisions import Action, Decision
from cluster.faults.classes import Effect
from cluster.faults.drawing import Fault
from cluster.jobs.spans import End, LifeSpan
from cluster.nodes import Nodes
from cluster.policies import Policy
from cluster.scheduler import ClusterState, tick
from cluster.simulation.costs import ANSWER_WITHIN_S, KILL_S, SAVE_WITHIN_S, Costs
from cluster.simulation.goodput import Cause, Goodput
from cluster.simulation.lives import RESTS, Job, Life
from cluster.tasks import DEMOTED_AFTER_S, Priority, Task, TaskState, Users, verify_submission
from cluster.usage import Usage

PLAYED = frozenset({Effect.GPU_ERROR, Effect.SILENT, Effect.CORRUPTION, Effect.SLOW_NIC})
"""The faults that hit a node. What cuts of links, switches and storage cost is found with packets, not here."""


@dataclass(frozen=True)
class NodeFault:
    """A fault of a node, by its place in the list of nodes, which is out for ``repair_s`` once it is noticed.
    ``beside``: those that are lost with it, as all below a leaf switch are."""

    at_s: float
    node: int
    effect: Effect
    repair_s: float
    noticed_s: float | None = None
    """When it is noticed; None: as late as the costs say."""
    beside: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.effect not in PLAYED:
            raise ValueError(f"a fault of a node is not {self.effect.value}; use one of {sorted(PLAYED)}")

    @property
    def nodes(self) -> tuple[int, ...]:
        """All of them."""
        return (self.node, *self.beside)


@dataclass(frozen=True)
class SharedFault:
    """A fault of what all tasks share: they stand still for ``rest_s``, and are slow by ``slowdown`` until ``until_s``
    (1: not at all). ``why``: what the time counts as."""

    at_s: float
    why: Cause
    rest_s: float
    until_s: float = 0.0
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        if self.why not in RESTS:
            raise ValueError(
                f"a fault of what tasks share is not {self.why.value}; use "
                f"{', '.join(sorted(one.value for one in RESTS))}"
            )


@dataclass
class JobReport:
    """What became of a job. ``ended_s`` is None if it did not end in time; ``failures`` are those that it was stopped
    by, ``lost_s`` the seconds of its steps that were made in vain."""

    job: Job
    first_start_s: float | None = None
    ended_s: float | None = None
    waited_s: float = 0.0
    lost_s: float = 0.0
    suspends: int = 0
    failures: int = 0
    lost_per_failure_s: list[float] = field(default_factory=list)
    """The seconds of steps that each failure cost; detection, restart and waiting for nodes come to that."""


@dataclass(frozen=True)
class Simulated:
    """A played list of jobs. It is composed of given costs. ``lives`` are in the order in which they ended."""

    jobs: tuple[JobReport, ...]
    goodput: Goodput
    ticks: int
    most_crossing: int
    lives: tuple[LifeSpan, ...] = ()


@dataclass(frozen=True)
class Setup:
    """What is played, beside jobs and faults. ``reorder_s``: how often the scheduler decides though nothing happened,
    while jobs wait and others run, where usage orders tasks: that changes with time alone. None: never, which costs
    less."""

    nodes: Nodes
    users: Users
    policy: Policy
    costs: Costs
    tick_s: float = 1.0
    seed: int = 0
    reorder_s: float | None = None


def simulate(
    setup: Setup,
    jobs: Sequence[Job],
    faults: Iterable[NodeFault] = (),
    until_s: float = math.inf,
    shared: Iterable[SharedFault] = (),
) -> Simulated:
    """Play jobs until all have ended, or until a time. Lives that go on then count as kept. ``shared``: what all tasks
    stand still for, or are slow by.

    Raises ConfigError for a job that could never start, ValueError if there is neither a job nor an end, or if jobs are
    left that no node ever comes back for.
    """
    if not jobs and math.isinf(until_s):
        raise ValueError("no job and no time until which to play; give one")
    for job in jobs:
        verify_submission(_task(job, job.number), setup.users, setup.nodes)
    play = _Play(setup, jobs, until_s)
    for fault in faults:
        play.at(fault.at_s, partial(play.fault, fault))
    for one in shared:
        play.at(one.at_s, partial(play.shared_fault, one))
    return play.result()


def node_faults(faults: Iterable[Fault], nodes: Nodes) -> tuple[list[NodeFault], dict[Effect, int]]:
    """Return those of drawn faults that hit nodes, and how many there are of each other effect, which are not played.

    Raises ValueError for a node that is none of ``nodes``.
    """
    places = {name: place for place, name in enumerate(nodes.names)}
    found, others = [], dict[Effect, int]()
    for fault in faults:
        if fault.effect not in PLAYED:
            others[fault.effect] = others.get(fault.effect, 0) + 1
        elif fault.target not in places:
            raise ValueError(
                f"{fault.target}: is not one of the {len(nodes)} nodes {nodes.names[0]} to {nodes.names[-1]}"
            )
        else:
            found.append(NodeFault(fault.at_s, places[fault.target], fault.effect, fault.kind.repair))
    return found, others


def _end_of(report: JobReport, life: Life, keeps_all: bool) -> End:
    if report.ended_s is not None:
        return End.FINISHED
    if life.broken:
        return End.LOST
    return End.SUSPENDED if keeps_all else End.KILLED


def _task(job: Job, number: int) -> Task:
    return Task(
        number, job.user, job.nodes, job.priority, job.group, job.submitted_s, chain=job.number, limit_s=job.limit_s
    )


class _Spans:
    """When each life had its nodes, in the order in which they ended; and when those that go on were told to leave."""

    def __init__(self) -> None:
        self.kept: list[LifeSpan] = []
        self.told_s: dict[int, float] = {}
        self.answered_s: dict[int, float] = {}

    def keep(self, task: Task, life: Life, left_s: float, causes: Mapping[Cause, float], end: End) -> None:
        """Keep a life that has left."""
        first_s = life.began_s + causes[Cause.START] + causes[Cause.RESTORE]
        told_s, answered_s = (times.pop(task.number, None) for times in (self.told_s, self.answered_s))
        self.kept.append(
            LifeSpan(
                task.chain,
                task.submitted_s,
                life.began_s,
                left_s,
                task.placed,
                end,
                told_s,
                answered_s,
                first_s,
                causes[Cause.LOST],
            )
        )


class _Account:
    """Time of nodes that no task has, and what users used."""

    def __init__(self, nodes: Nodes) -> None:
        self.at_s = 0.0
        self.node_s = dict.fromkeys(Cause, 0.0)
        self.usage = Usage()
        self.spans = _Spans()
        self.reorder_at_s = -math.inf
        self.distrusted: set[int] = set()
        """Chains of tasks whose last checkpoint is wrong: it is read before the one before it."""
        self._nodes = len(nodes)

    def move(self, now_s: float, tasks: Collection[Task], nodes: Nodes) -> None:
        """Let time pass in which nothing changed."""
        passed_s = now_s - self.at_s
        self.at_s = now_s
        self.usage.move(now_s, tasks)
        if passed_s <= 0:
            return
        away = set(np.flatnonzero(~nodes.ready).tolist())
        out, held, waits = len(away), 0, False
        for task in tasks:
            if task.state is TaskState.QUEUED:
                waits = True
                continue
            held += task.nodes
            if away:
                out -= len(away.intersection(task.placed))
        self.node_s[Cause.OUT] += out * passed_s
        self.node_s[Cause.QUEUED if waits else Cause.IDLE] += (self._nodes - held - out) * passed_s

    def add(self, nodes: int, causes: Iterable[tuple[Cause, float]]) -> None:
        """Add where a life's time went."""
        for cause, seconds in causes:
            self.node_s[cause] += nodes * seconds


@dataclass
class _Slow:
    """What slows tasks now: nodes with a slow NIC that nobody has noticed, each by ``by``, and what all tasks share."""

    by: float
    nodes: set[int] = field(default_factory=set)
    shared: list[SharedFault] = field(default_factory=list)

    def slowdown(self, nodes: Collection[int]) -> tuple[float, Cause]:
        """Return how many times as long steps on some nodes take, and what that counts as: a step waits for the
        slowest."""
        found = [(1.0, Cause.STRAGGLING), *((one.slowdown, one.why) for one in self.shared)]
        if not self.nodes.isdisjoint(nodes):
            found.append((self.by, Cause.STRAGGLING))
        return max(found, key=lambda one: one[0])


class _Play:
    """The state of a simulation: tasks, lives, and what is going to happen."""

    def __init__(self, setup: Setup, jobs: Sequence[Job], until_s: float) -> None:
        self.setup, self.until_s = setup, until_s
        self.nodes = setup.nodes
        self.tasks: dict[int, Task] = {}
        self.lives: dict[int, Life] = {}
        self.slow = _Slow(setup.costs.slowdown)
        self.reports = {job.number: JobReport(job) for job in jobs}
        self.saved_s: dict[int, float] = {}
        self.account = _Account(setup.nodes)
        self.counts = {
            "tasks": 1 + max((job.number for job in jobs), default=0),
            "events": 0,
            "ticks": 0,
            "crossing": 0,
        }
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._tick_at_s = -math.inf
        for job in jobs:
            self.at(job.submitted_s, partial(self.queue, job, job.number))

    # Events ---------------------------------------------------------------------------------------------------------

    def at(self, time_s: float, happens: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self.counts["events"] += 1
        heapq.heappush(self._events, (time_s, self.counts["events"], happens))

    def result(self) -> Simulated:
        """Play to the end and return what became of it all."""
        while self._events and any(report.ended_s is None for report in self.reports.values()):
            now_s = self._events[0][0]
            if now_s > self.until_s:
                break
            self.account.move(now_s, self.tasks.values(), self.nodes)
            while self._events and self._events[0][0] == now_s:
                heapq.heappop(self._events)[2]()
        end_s = self.until_s if math.isfinite(self.until_s) else self.account.at_s
        left = [number for number, report in self.reports.items() if report.ended_s is None]
        if left and math.isinf(self.until_s):
            raise ValueError(
                f"jobs {left[:10]} wait, and no node will come back for them; give a time until which to play"
            )
        self.account.move(end_s, self.tasks.values(), self.nodes)
        for number, life in self.lives.items():
            life.move(end_s)
            causes = life.ended(keeps_all=True)[1]
            self.account.add(self.tasks[number].nodes, causes.items())
            self.account.spans.keep(self.tasks[number], life, end_s, causes, End.STOPPED)
        for task in self.tasks.values():
            if task.state is TaskState.QUEUED:
                self.reports[task.chain].waited_s += end_s - task.submitted_s
        goodput = Goodput(len(self.nodes), end_s, self.account.node_s)
        counts, reports = self.counts, tuple(self.reports.values())
        return Simulated(reports, goodput, counts["ticks"], counts["crossing"], tuple(self.account.spans.kept))

    def soon(self) -> None:
        """Have the scheduler decide at the next tick."""
        step_s = self.setup.tick_s
        at_s = math.ceil(self.account.at_s / step_s - 1e-9) * step_s
        if self._tick_at_s < self.account.at_s:
            self._tick_at_s = max(at_s, self.account.at_s)
            self.at(self._tick_at_s, self.decide)

    # Jobs -----------------------------------------------------------------------------------------------------------

    def queue(self, job: Job, number: int, ran_s: float = 0.0) -> None:
        """Let a life of a job wait for nodes."""
        self.tasks[number] = replace(_task(job, number), submitted_s=self.account.at_s, ran_s=ran_s)
        self.soon()

    def decide(self) -> None:
        """Tick, and do what was decided."""
        self._tick_at_s = -math.inf
        setup = self.setup
        users = setup.users
        if setup.policy.order.by_usage:
            users = replace(users, usage=dict(self.account.usage.node_s))
        state = ClusterState(self.nodes, users, list(self.tasks.values()), self.account.at_s)
        self.counts["ticks"] += 1
        if not any(task.state is TaskState.QUEUED for task in self.tasks.values()):
            return  # Nobody asks for nodes, so all keep theirs.
        decisions = tick(state, setup.policy, seed=setup.seed + self.counts["ticks"])
        for decision in decisions:
            if decision.action is Action.START:
                self._start(decision)
            elif decision.action is Action.SUSPEND:
                self.reports[self.tasks[decision.task].chain].suspends += 1
                self._suspend(decision.task)
            else:
                assert decision.action is not Action.STOP, "who lost a node was stopped when that was noticed"
        if any(decision.action is Action.START for decision in decisions):
            crossing = sum(self.nodes.crosses(task.placed) for task in self.tasks.values())
            self.counts["crossing"] = max(self.counts["crossing"], crossing)
        if setup.reorder_s is not None and setup.policy.order.by_usage:
            self._reorder(setup.reorder_s)

    def _reorder(self, every_s: float) -> None:
        """Decide again after a while, if jobs wait and others run by now."""
        now_s = self.account.at_s
        if self.account.reorder_at_s <= now_s and len({task.state for task in self.tasks.values()}) > 1:
            self.account.reorder_at_s = now_s + every_s
            self.at(now_s + every_s, self.soon)

    def _start(self, decision: Decision) -> None:
        now_s, task = self.account.at_s, self.tasks[decision.task]
        report = self.reports[task.chain]
        self.tasks[task.number] = replace(task, state=TaskState.RUNNING, placed=decision.nodes, began_s=now_s)
        costs, distrusted = self.setup.costs, self.account.distrusted
        if task.chain in distrusted:
            distrusted.discard(task.chain)
            costs = costs.model_copy(update={"restore": costs.restore + costs.wrong})
        self.lives[task.number] = life = Life(report.job, now_s, self.saved_s.get(task.chain, 0.0), costs)
        report.waited_s += now_s - task.submitted_s
        life.straggle(now_s, *self.slow.slowdown(decision.nodes))
        if report.first_start_s is None:
            report.first_start_s = now_s
        self._expect_end(task.number)
        demoted_s = now_s + DEMOTED_AFTER_S - task.ran_s
        if task.priority is Priority.ABOVE_NORMAL and now_s < demoted_s < life.ends_s:
            self.at(demoted_s, self.soon)

    def _expect_end(self, number: int) -> None:
        life = self.lives[number]
        ends_s = life.ends_s
        if math.isfinite(ends_s):
            self.at(ends_s, lambda: self._end(number, life, ends_s))

    def _end(self, number: int, life: Life, ends_s: float) -> None:
        if self.lives.get(number) is not life or life.ends_s > ends_s + 1e-6:
            return
        self.reports[life.job.number].ended_s = self.account.at_s
        self._close(number, keeps_all=True)

    def _close(self, number: int, keeps_all: bool) -> Task:
        """End a life now."""
        task, life = self.tasks.pop(number), self.lives.pop(number)
        life.move(self.account.at_s)
        done_s, causes = life.ended(keeps_all)
        self.saved_s[task.chain] = done_s
        report = self.reports[task.chain]
        report.lost_s += causes[Cause.LOST]
        if life.broken:
            report.lost_per_failure_s.append(causes[Cause.LOST])
        if life.lost_by is Effect.CORRUPTION:
            self.account.distrusted.add(task.chain)
        self.account.add(task.nodes, causes.items())
        self.account.spans.keep(task, life, self.account.at_s, causes, _end_of(report, life, keeps_all))
        self.soon()
        return task

    def _again(self, number: int, keeps_all: bool) -> None:
        """End a life, and let the job wait for the next one."""
        job, life = self.reports[self.tasks[number].chain].job, self.lives[number]
        task = self._close(number, keeps_all)
        self.counts["tasks"] += 1
        self.queue(job, self.counts["tasks"], task.ran_s + self.account.at_s - life.began_s)

    def _suspend(self, number: int) -> None:
        """Give notice: steps go on until it is answered, then the job saves; who is late is killed. Who makes the last
        step ends by itself."""
        costs, now_s, life = self.setup.costs, self.account.at_s, self.lives[number]
        self.tasks[number] = replace(self.tasks[number], state=TaskState.LEAVING)
        self.account.spans.told_s[number] = now_s
        life.move(now_s)

        def unanswered() -> None:
            if self.lives.get(number) is life:
                self._again(number, keeps_all=False)

        def answered() -> None:
            if self.lives.get(number) is not life:
                return
            if life.stuck:
                self.at(now_s + ANSWER_WITHIN_S, unanswered)
                return
            life.stick(self.account.at_s, Cause.SUSPENDED)
            self.account.spans.answered_s[number] = self.account.at_s
            saves_s = costs.suspend_save
            self.at(self.account.at_s + (saves_s if saves_s <= SAVE_WITHIN_S else SAVE_WITHIN_S + KILL_S), saved)

        def saved() -> None:
            if self.lives.get(number) is life:
                self._again(number, keeps_all=costs.suspend_save <= SAVE_WITHIN_S and not life.broken)

        answers = life.job.answers and costs.answer <= ANSWER_WITHIN_S and not life.in_last_step
        wait_s = costs.answer if answers else ANSWER_WITHIN_S + KILL_S
        self.at(now_s + wait_s, answered if answers else unanswered)

    # Faults ---------------------------------------------------------------------------------------------------------

    def shared_fault(self, fault: SharedFault) -> None:
        """Let something fail that all tasks share: they stand still for a while, and may be slow for another."""
        now_s = self.account.at_s
        if fault.slowdown > 1 and fault.until_s > now_s:
            self._change_capacity(self.slow.shared.append, fault)
            self.at(fault.until_s, partial(self._change_capacity, self.slow.shared.remove, fault))
        for number, life in self.lives.items():
            life.rest(now_s, fault.rest_s, fault.why)
            self.at(now_s + fault.rest_s, partial(self._healed, number, life))

    def _change_capacity(self, change: Callable[[SharedFault], None], fault: SharedFault) -> None:
        change(fault)
        for number, life in self.lives.items():
            life.straggle(self.account.at_s, *self.slow.slowdown(self.tasks[number].placed))
            self._expect_end(number)

    def _healed(self, number: int, life: Life) -> None:
        if self.lives.get(number) is life and life.go_on(self.account.at_s):
            self._expect_end(number)

    def fault(self, fault: NodeFault) -> None:
        """Let nodes fail; nobody knows yet."""
        now_s, costs = self.account.at_s, self.setup.costs
        hit = {node for node in fault.nodes if self.nodes.ready[node]}
        if not hit:
            return
        if fault.effect is Effect.SLOW_NIC:
            self.slow.nodes |= hit
        for number, task in self.tasks.items():
            if not hit.isdisjoint(task.placed):
                life = self.lives[number]
                if fault.effect is Effect.SLOW_NIC:
                    life.straggle(now_s, *self.slow.slowdown(task.placed))
                else:
                    life.fail(now_s, fault.effect)
                self._expect_end(number)
        late_s = costs.detection_s(fault.effect) if fault.noticed_s is None else fault.noticed_s - now_s
        self.at(now_s + late_s, lambda: self._noticed(fault))

    def _noticed(self, fault: NodeFault) -> None:
        is_slow = fault.effect is Effect.SLOW_NIC
        hit = [node for node in fault.nodes if self.nodes.ready[node] and (not is_slow or node in self.slow.nodes)]
        if not hit:
            return  # It is out for another fault, or was, and came back whole.
        self.slow.nodes.difference_update(hit)
        # Tasks are stopped at once (HAI: detect, stop, relabel): a node may be well again before the next tick.
        for number, task in list(self.tasks.items()):
            if not set(hit).isdisjoint(task.placed) and task.state is TaskState.RUNNING:
                self._stop(number)
        self.nodes = self.nodes.without(hit)
        self.at(self.account.at_s + fault.repair_s, lambda: self._repaired(hit))
        self.soon()

    def _repaired(self, nodes: Sequence[int]) -> None:
        self.nodes = self.nodes.with_ready(nodes)
        self.soon()

    def _stop(self, number: int) -> None:
        """End a task that lost a node: one that is only slow may save, of the others what is left is stopped."""
        life, task = self.lives[number], self.tasks[number]
        self.reports[task.chain].failures += 1
        if not life.stuck:
            self._suspend(number)
            return
        self.tasks[number] = replace(task, state=TaskState.LEAVING)

        def stopped() -> None:
            if self.lives.get(number) is life:
                self._again(number, keeps_all=False)

        self.at(self.account.at_s + self.setup.costs.stop, stopped)
