"""States of a cluster that come about: users submit, tasks end and leave, nodes fail, and the scheduler ticks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from cluster.decisions import Action, Decision
from cluster.nodes import Nodes
from cluster.placement import Placement
from cluster.policies import POLICIES, Policy
from cluster.scheduler import ClusterState, tick
from cluster.tasks import LEVELS, Priority, Task, TaskState, Users

USERS = ("ada", "bo", "cy")
Step = tuple[int, int, int, int]


@dataclass
class Walk:
    """A cluster that is changed step by step."""

    nodes: Nodes
    users: Users
    policy: Policy
    now_s: float = 0.0
    tasks: dict[int, Task] = field(default_factory=dict)
    submitted: int = 0

    @property
    def state(self) -> ClusterState:
        return ClusterState(self.nodes, self.users, list(self.tasks.values()), self.now_s)

    def step(self, step: Step) -> None:
        """Let something happen: what it is, and to whom, by numbers."""
        what, a, b, c = step
        if what <= 2:
            for more in range(1 + what):
                self.submit(a, b + more, c + more * a)
        elif what == 3:
            self.now_s += (1.0, 600.0, 1800.0)[a % 3]
            self.let_leave()
        elif what == 4 and (running := self.those(TaskState.RUNNING)):
            del self.tasks[running[a % len(running)].number]
        elif what == 5:
            self.nodes = self.nodes.without([a % len(self.nodes)])
        elif what == 6:
            self.nodes = self.nodes.with_ready([a % len(self.nodes)])

    def submit(self, a: int, b: int, c: int) -> None:
        self.submitted += 1
        levels = [*LEVELS, Priority.AUTO] if c % 5 == 4 else list(LEVELS)
        self.tasks[self.submitted] = Task(
            number=self.submitted,
            user=USERS[a % len(USERS)],
            nodes=1 + (b if c % 6 == 0 else b % 3),
            priority=levels[(a + c) % len(levels)],
            group=self.nodes.groups[b * c % len(self.nodes.groups)],
            submitted_s=self.now_s,
            limit_s=None if c % 4 == 0 else 100.0 * (1 + (a * b + c) % 9),
        )

    def those(self, state: TaskState) -> list[Task]:
        return [task for task in self.tasks.values() if task.state is state]

    def let_leave(self) -> None:
        """Let those that were told to leave do so, and wait as new lives."""
        for task in self.those(TaskState.LEAVING):
            del self.tasks[task.number]
            self.submitted += 1
            self.tasks[self.submitted] = replace(
                task,
                number=self.submitted,
                state=TaskState.QUEUED,
                placed=(),
                ran_s=task.ran_s + self.now_s - task.began_s,
                began_s=0.0,
            )

    def tick(self) -> list[Decision]:
        return tick(self.state, self.policy, seed=self.submitted)

    def apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            task = self.tasks[decision.task]
            if decision.action is Action.START:
                self.tasks[task.number] = replace(
                    task, state=TaskState.RUNNING, placed=decision.nodes, began_s=self.now_s
                )
            elif decision.action in (Action.SUSPEND, Action.STOP):
                self.tasks[task.number] = replace(task, state=TaskState.LEAVING)


def two_groups(nodes: Nodes) -> Nodes:
    """Return nodes of which every third is of another group."""
    group_of = nodes.group_of.copy()
    group_of[::3] = 1
    return replace(nodes, groups=("training", "debug"), group_of=group_of)


@st.composite
def walks(draw: st.DrawFn) -> tuple[Walk, list[Step]]:
    """Draw a cluster and what happens to it."""
    nodes = Nodes.grid(draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    if draw(st.booleans()) and len(nodes) > 1:
        nodes = two_groups(nodes)
    policy = POLICIES[draw(st.sampled_from(sorted(POLICIES)))].placed(draw(st.sampled_from(Placement)))
    policy = replace(policy, crossing=draw(st.sampled_from((1, 1, 1, 0, None))))
    quota = st.none() | st.integers(0, 8)
    quotas = {
        (user, level, group): found
        for user in USERS[:2]
        for level in (Priority.HIGH, Priority.NORMAL, Priority.ABOVE_NORMAL)
        for group in nodes.groups
        if (found := draw(quota)) is not None
    }
    usage = dict(zip(USERS, draw(st.tuples(*[st.sampled_from((0.0, 5.0, 9.0))] * 3)), strict=True))
    walk = Walk(nodes, Users(quotas, draw(st.none() | st.just(6)), usage=usage), policy)
    size = len(nodes)
    steps = st.tuples(st.integers(0, 6), st.integers(0, size), st.integers(0, size), st.integers(0, 20))
    return walk, draw(st.lists(steps, min_size=12, max_size=12))


def random_walk(seed: int, steps: int) -> tuple[Walk, list[Step]]:
    """Return a cluster and what happens to it, by a seed."""
    rng = random.Random(seed)
    nodes = Nodes.grid(rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4))
    if rng.random() < 0.4 and len(nodes) > 1:
        nodes = two_groups(nodes)
    policy = POLICIES[rng.choice(sorted(POLICIES))].placed(rng.choice(list(Placement)))
    policy = replace(policy, crossing=rng.choice((1, 1, 1, 0, None)))
    quotas = {
        (user, level, group): rng.randint(0, 8)
        for user in USERS[:2]
        for level in (Priority.HIGH, Priority.NORMAL, Priority.ABOVE_NORMAL)
        for group in nodes.groups
        if rng.random() < 0.4
    }
    usage = {user: rng.choice((0.0, 5.0, 9.0)) for user in USERS}
    size = len(nodes)
    return Walk(nodes, Users(quotas, rng.choice((None, 6)), usage=usage), policy), [
        (rng.randint(0, 6), rng.randint(0, size), rng.randint(0, size), rng.randint(0, 20)) for _ in range(steps)
    ]


def ticks(walk: Walk, steps: Sequence[Step]) -> Iterator[tuple[Walk, list[Decision]]]:
    """Yield the walk before each tick, and what was decided."""
    for step in steps:
        walk.step(step)
        decisions = walk.tick()
        yield walk, decisions
        walk.apply(decisions)
