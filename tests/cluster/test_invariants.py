"""What every tick of every policy keeps, whatever came before: checked by other code than decides."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings

from cluster.decisions import Action, Decision, Reason
from cluster.nodes import Nodes, pairs_across_zones
from cluster.policies import in_order
from cluster.tasks import LEVELS, Priority, Task, TaskState
from tests.cluster.walks import Step, Walk, random_walk, ticks, walks

STATES, STEPS = 100_000, 20
HEADS = (Reason.NO_ROOM, Reason.ZONES)


def check(walk: Walk, decisions: Sequence[Decision]) -> None:
    """Check one tick before it is applied."""
    assert [decision.task for decision in decisions] == list(walk.tasks), "one decision per task"
    assert walk.tick() == decisions, "the same state and seed, other decisions"
    by_task = {decision.task: decision for decision in decisions}
    check_nodes(walk, decisions)
    check_quotas(walk, by_task)
    check_reasons(walk, by_task)
    if not any(task.priority is Priority.AUTO for task in walk.tasks.values()):
        check_order(walk, by_task)


def check_nodes(walk: Walk, decisions: Sequence[Decision]) -> None:
    """No node has two tasks, none is given that is not ready, at most so many tasks cross zones, with one pair."""
    held = [place for task in walk.tasks.values() for place in task.placed]
    for decision in decisions:
        if decision.action is Action.START:
            task = walk.tasks[decision.task]
            assert task.state is TaskState.QUEUED
            assert len(decision.nodes) == task.nodes
            assert all(walk.nodes.ready[place] for place in decision.nodes)
            assert {walk.nodes.groups[walk.nodes.group_of[place]] for place in decision.nodes} == {task.group}
            held += decision.nodes
    assert max(Counter(held).values(), default=0) <= 1, "a node has two tasks"
    if walk.policy.crossing is not None:
        given = [task.placed for task in walk.tasks.values()]
        given += [decision.nodes for decision in decisions if decision.action is Action.START]
        crossing = [pairs for nodes in given if (pairs := pairs_across_zones(nodes, walk.nodes))]
        assert len(crossing) <= walk.policy.crossing
        assert sum(crossing) <= walk.policy.crossing


def check_quotas(walk: Walk, by_task: dict[int, Decision]) -> None:
    """Those that run after the tick use no more nodes than the quota of their user, level and group."""
    used, automatic = Counter[tuple[str, Priority, str]](), Counter[tuple[str, str]]()
    for task in walk.tasks.values():
        if by_task[task.number].action in (Action.START, Action.KEEP):
            automatic[task.user, task.group] += task.nodes
            if task.priority is not Priority.AUTO:
                used[task.user, level_of(task, walk.now_s), task.group] += task.nodes
    for key, nodes in used.items():
        quota = walk.users.quota(key)
        assert quota is None or nodes <= quota, key
    for (user, group), nodes in automatic.items():
        quotas = [walk.users.quota((user, level, group)) for level in LEVELS]
        assert None in quotas or nodes <= sum(quota or 0 for quota in quotas), (user, group)


def level_of(task: Task, now_s: float) -> Priority:
    runs_s = task.ran_s + (now_s - task.began_s if task.placed else 0.0)
    return Priority.NORMAL if task.priority is Priority.ABOVE_NORMAL and runs_s >= 1800 else task.priority


def check_reasons(walk: Walk, by_task: dict[int, Decision]) -> None:
    for task in walk.tasks.values():
        decision = by_task[task.number]
        assert str(decision.because(walk.nodes))
        if decision.action is Action.SUSPEND:
            assert task.state is TaskState.RUNNING
            assert decision.reason in (
                (Reason.YIELDS, Reason.OVER_QUOTA) if walk.policy.preempts else (Reason.OVER_QUOTA,)
            )
        if decision.action is Action.STOP:
            assert not all(walk.nodes.ready[place] for place in task.placed)
        if decision.action is Action.KEEP:
            assert all(walk.nodes.ready[place] for place in task.placed)


def key_of(walk: Walk) -> Callable[[Task], int]:
    """Return the places of tasks in the policy's order, which ``test_policies`` tests."""
    tasks = list(walk.tasks.values())
    order = in_order(walk.policy, tasks, [level_of(task, walk.now_s) for task in tasks], walk.users)
    places = {tasks[place].number: number for number, place in enumerate(order.tolist())}
    return lambda task: places[task.number]


def check_order(walk: Walk, by_task: dict[int, Decision]) -> None:
    """Nobody passes one who waits, but for backfilling; who yields comes later, and is not of the same user and level;
    the first who waits could not be helped."""
    key = key_of(walk)
    for task in walk.tasks.values():
        decision = by_task[task.number]
        if decision.reason is Reason.YIELDS:
            assert decision.other is not None
            other = walk.tasks[decision.other]
            assert key(other) < key(task)
            same = level_of(other, walk.now_s) == level_of(task, walk.now_s)
            assert other.user != task.user or not same, "it interrupts its own"
        if decision.reason in HEADS:
            check_head(walk, by_task, task)


def check_head(walk: Walk, by_task: dict[int, Decision], head: Task) -> None:
    key = key_of(walk)
    mine = [task for task in walk.tasks.values() if task.group == head.group]
    passed = [task for task in mine if key(task) > key(head) and by_task[task.number].action is Action.START]
    if not walk.policy.backfills:
        assert not passed, "it is passed without backfilling"
    if walk.policy.preempts:
        own = [(task.user, level_of(task, walk.now_s)) for task in passed]
        assert (head.user, level_of(head, walk.now_s)) not in own, "it could not take the nodes back"
    if any(decision.reason is Reason.NODES_LEAVING for decision in by_task.values()):
        return  # What is kept for others is not told.
    stays, crossing = list[int](), 0
    for task in walk.tasks.values():
        nodes = task.placed or by_task[task.number].nodes
        if by_task[task.number].action not in (Action.START, Action.KEEP) or task in passed:
            continue
        same = task.user == head.user and level_of(task, walk.now_s) == level_of(head, walk.now_s)
        takes = walk.policy.preempts and key(task) > key(head) and not same and task.group == head.group
        if not takes or not task.placed:
            stays += nodes
            crossing += pairs_across_zones(nodes, walk.nodes) > 0
    free = [place for place in range(len(walk.nodes)) if walk.nodes.ready[place] and place not in stays]
    counts = zone_counts(walk.nodes, free, head.group)
    assert not fits(walk, head, counts, crossing), "it could have started"
    if walk.policy.backfills and passed and not walk.policy.preempts:
        check_no_delay(walk, by_task, head, passed)


def zone_counts(nodes: Nodes, places: Sequence[int], group: str) -> Counter[int]:
    return Counter(int(nodes.zones[place]) for place in places if nodes.groups[nodes.group_of[place]] == group)


def fits(walk: Walk, task: Task, counts: Counter[int], crossing: int) -> bool:
    if walk.policy.crossing is None:
        return counts.total() >= task.nodes
    most = sorted(counts.values(), reverse=True)[: 2 if crossing < walk.policy.crossing else 1]
    return sum(most) >= task.nodes


def check_no_delay(walk: Walk, by_task: dict[int, Decision], head: Task, passed: Sequence[Task]) -> None:
    """If every task runs to its limit, the head starts no later than without those that passed it."""
    assert earliest_s(walk, by_task, head, ()) >= earliest_s(walk, by_task, head, passed)


def earliest_s(walk: Walk, by_task: dict[int, Decision], head: Task, passed: Sequence[Task]) -> float:
    """Return when a task that waits could start, if all others ran to their limits, and only ``passed`` passed it."""
    runs = []
    for task in walk.tasks.values():
        decision = by_task[task.number]
        if decision.action is Action.KEEP:
            runs.append(
                (math.inf if task.limit_s is None else max(walk.now_s, task.began_s + task.limit_s), task.placed)
            )
        elif decision.action is Action.START and (decision.reason is Reason.FREE or task in passed):
            runs.append((math.inf if task.limit_s is None else walk.now_s + task.limit_s, decision.nodes))
    for time_s in sorted({walk.now_s, *(ends_s for ends_s, _ in runs)}):
        held = {place for ends_s, nodes in runs if ends_s > time_s for place in nodes}
        crossing = sum(ends_s > time_s and pairs_across_zones(nodes, walk.nodes) > 0 for ends_s, nodes in runs)
        free = [place for place in range(len(walk.nodes)) if walk.nodes.ready[place] and place not in held]
        if fits(walk, head, zone_counts(walk.nodes, free, head.group), crossing):
            return time_s
    return math.inf


def check_no_starvation(walk: Walk) -> None:
    """Once no node fails and nobody submits, everyone starts whose quota and group are large enough."""
    walk.nodes = walk.nodes.with_ready(range(len(walk.nodes)))
    for _ in range(4 * len(walk.tasks) + 4):
        walk.let_leave()
        decisions = walk.tick()
        check(walk, decisions)
        walk.apply(decisions)
        for task in walk.those(TaskState.RUNNING):
            del walk.tasks[task.number]
        if not walk.those(TaskState.LEAVING) and all(
            decision.reason in (Reason.QUOTA_TOO_SMALL, Reason.TOO_LARGE, Reason.NO_GROUP)
            for decision in decisions
            if decision.task in walk.tasks
        ):
            break
    for task in walk.tasks.values():
        largest = walk.users.largest_quota(task)
        there = sum(walk.nodes.groups[code] == task.group for code in walk.nodes.group_of)
        widest = max(zone_counts(walk.nodes, range(len(walk.nodes)), task.group).values(), default=0)
        alone = walk.policy.crossing == 0 and task.nodes > widest
        assert (largest is not None and task.nodes > largest) or task.nodes > there or alone, task


def play(drawn: tuple[Walk, list[Step]]) -> None:
    walk, steps = drawn
    for seen, decisions in ticks(walk, steps):
        check(seen, decisions)
    if walk.policy.crossing != 0 and walk.nodes.zone_count < 3:
        check_no_starvation(walk)


@settings(max_examples=150, deadline=None)
@given(walks())
def test_every_tick_keeps_the_rules(drawn: tuple[Walk, list[Step]]) -> None:
    play(drawn)


@pytest.mark.soak  # A minute.
def test_every_tick_of_100_000_states_keeps_the_rules() -> None:
    """Drawn evenly, where hypothesis prefers small numbers; a failure names its seed."""
    for seed in range(STATES // STEPS + 1):
        try:
            play(random_walk(seed, STEPS))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
