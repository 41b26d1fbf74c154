"""Rules of the scheduler, each in a small cluster."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cluster.decisions import Action, Decision, Reason
from cluster.nodes import Nodes
from cluster.placement import Placement
from cluster.policies import EASY, FAIR_SHARE, FIFO, HAI, HAI_BACKFILL, POLICIES, Policy
from cluster.scheduler import ClusterState, tick
from cluster.tasks import Priority, Task, TaskState, Users, verify_submission
from fabric.errors import ConfigError
from topologies.load import load_fabric

FOUR = Nodes.grid(zones=1, leaves=1, nodes_per_leaf=4)
TWO_ZONES = Nodes.grid(zones=2, leaves=2, nodes_per_leaf=2)
START, KEEP, SUSPEND, STOP, WAIT = Action.START, Action.KEEP, Action.SUSPEND, Action.STOP, Action.WAIT


def task(
    number: int,
    nodes: int,
    user: str = "ada",
    priority: Priority = Priority.NORMAL,
    on: tuple[int, ...] = (),
    **more: Any,
) -> Task:
    """Return a task that waits, or runs on some nodes."""
    state = TaskState.RUNNING if on else TaskState.QUEUED
    return Task(number, user, nodes, **{"priority": priority, "placed": on, "state": state, **more})


def decide(
    *tasks: Task, nodes: Nodes = FOUR, policy: Policy = HAI, users: Users | None = None, now_s: float = 0.0
) -> dict[int, Decision]:
    found = tick(ClusterState(nodes, users or Users(), tasks, now_s), policy)
    return {decision.task: decision for decision in found}


def told(decisions: Mapping[int, Decision]) -> dict[int, tuple[Action, Reason]]:
    return {number: (one.action, one.reason) for number, one in decisions.items()}


HIGH, ABOVE, NORMAL, AUTO = Priority.HIGH, Priority.ABOVE_NORMAL, Priority.NORMAL, Priority.AUTO
BO, CY = "bo", "cy"
RULES: dict[str, tuple[list[Task], dict[int, tuple[Action, Reason]]]] = {
    "priority high to low": (
        [task(1, 3), task(2, 3, BO, HIGH)],
        {1: (WAIT, Reason.NO_ROOM), 2: (START, Reason.FREE)},
    ),
    "first come, first served inside a priority, and nobody passes": (
        [task(3, 1, CY), task(1, 3), task(2, 2, BO)],
        {1: (START, Reason.FREE), 2: (WAIT, Reason.NO_ROOM), 3: (WAIT, Reason.BEHIND)},
    ),
    "a suspended task keeps its place by its chain": (
        [task(2, 4, BO), task(9, 4, chain=1)],
        {2: (WAIT, Reason.NO_ROOM), 9: (START, Reason.FREE)},
    ),
    "a higher one interrupts the last of the lower ones, and waits until it has left": (
        [task(1, 2, on=(0, 1)), task(2, 2, BO, on=(2, 3)), task(3, 2, CY, HIGH)],
        {1: (KEEP, Reason.RUNS), 2: (SUSPEND, Reason.YIELDS), 3: (WAIT, Reason.NODES_LEAVING)},
    ),
    "no more are told to leave than are needed": (
        [task(1, 1, on=(0,)), task(2, 3, BO, on=(1, 2, 3)), task(3, 3, CY, HIGH)],
        {1: (KEEP, Reason.RUNS), 2: (SUSPEND, Reason.YIELDS), 3: (WAIT, Reason.NODES_LEAVING)},
    ),
    "nobody is told to leave for one who would not fit then, either": (
        [task(1, 2, on=(0, 1), priority=HIGH), task(2, 2, BO, on=(2, 3)), task(3, 3, CY, HIGH)],
        {1: (KEEP, Reason.RUNS), 2: (KEEP, Reason.RUNS), 3: (WAIT, Reason.NO_ROOM)},
    ),
    "nobody is told twice": (
        [task(2, 4, BO, on=(0, 1, 2, 3), state=TaskState.LEAVING), task(3, 2, CY, HIGH), task(4, 2, CY, HIGH)],
        {2: (WAIT, Reason.LEAVES), 3: (WAIT, Reason.NODES_LEAVING), 4: (WAIT, Reason.NODES_LEAVING)},
    ),
    "a user's task never interrupts another of the same priority, even an older chain": (
        [task(5, 4, on=(0, 1, 2, 3)), task(6, 4, chain=1)],
        {5: (KEEP, Reason.RUNS), 6: (WAIT, Reason.NO_ROOM)},
    ),
    "an older chain of another user does, inside a priority": (
        [task(5, 4, on=(0, 1, 2, 3)), task(6, 4, BO, chain=1)],
        {5: (SUSPEND, Reason.YIELDS), 6: (WAIT, Reason.NODES_LEAVING)},
    ),
    "what asks for more nodes than are ready keeps nobody waiting": (
        [task(1, 5), task(2, 4, BO)],
        {1: (WAIT, Reason.TOO_LARGE), 2: (START, Reason.FREE)},
    ),
    "other groups are other nodes": (
        [task(1, 1, group="debug"), task(2, 4)],
        {1: (WAIT, Reason.NO_GROUP), 2: (START, Reason.FREE)},
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_hai_decides_by_its_rules(rule: str) -> None:
    tasks, expected = RULES[rule]
    assert told(decide(*tasks)) == expected


def test_what_ran_above_normal_for_half_an_hour_is_normal() -> None:
    runs = task(1, 4, on=(0, 1, 2, 3), priority=ABOVE, began_s=100.0)
    waits = task(2, 4, BO, chain=0)
    assert decide(runs, waits, now_s=1899.9)[1].action is KEEP
    assert decide(runs, waits, now_s=1900.0)[1].action is SUSPEND
    again = task(3, 4, priority=ABOVE, ran_s=1800.0)
    assert decide(again, task(2, 4, BO))[2].action is START, "what former lives ran counts, too"


def test_quotas_are_per_user_priority_and_group() -> None:
    users = Users({("ada", NORMAL, "training"): 2, ("ada", HIGH, "training"): 3}, default=0)
    tasks = [task(1, 2), task(2, 1), task(3, 1, priority=HIGH), task(4, 1, BO), task(5, 3)]
    assert told(decide(*tasks, users=users)) == {
        1: (START, Reason.FREE),
        2: (WAIT, Reason.OVER_QUOTA),
        3: (START, Reason.FREE),
        4: (WAIT, Reason.QUOTA_TOO_SMALL),
        5: (WAIT, Reason.QUOTA_TOO_SMALL),
    }


def test_what_cannot_start_takes_no_quota_from_others() -> None:
    users = Users({("ada", NORMAL, "training"): 5}, default=0)
    assert told(decide(task(1, 5), task(2, 2), users=users)) == {
        1: (WAIT, Reason.TOO_LARGE),
        2: (START, Reason.FREE),
    }


def test_in_a_quota_the_running_task_comes_before_an_older_chain() -> None:
    users = Users({("ada", NORMAL, "training"): 2}, default=0)
    assert told(decide(task(5, 2, on=(0, 1)), task(6, 2, chain=1), users=users)) == {
        5: (KEEP, Reason.RUNS),
        6: (WAIT, Reason.OVER_QUOTA),
    }


def test_a_quota_that_got_smaller_suspends_the_youngest() -> None:
    users = Users({("ada", NORMAL, "training"): 3}, default=0)
    decisions = decide(task(1, 2, on=(0, 1)), task(2, 2, on=(2, 3)), users=users)
    assert told(decisions) == {1: (KEEP, Reason.RUNS), 2: (SUSPEND, Reason.OVER_QUOTA)}


def test_auto_is_the_highest_priority_with_room_in_its_quota() -> None:
    users = Users({("ada", HIGH, "training"): 2, ("ada", NORMAL, "training"): 4}, default=0)
    tasks = [task(1, 3, priority=AUTO), task(2, 2, priority=AUTO), task(3, 2, priority=AUTO)]
    assert told(decide(*tasks, users=users)) == {
        1: (WAIT, Reason.NO_ROOM),
        2: (START, Reason.FREE),
        3: (WAIT, Reason.OVER_QUOTA),
    }


def test_a_task_whose_node_is_lost_is_stopped_and_the_node_named() -> None:
    nodes = FOUR.without([1])
    decision = decide(task(1, 2, on=(0, 1)), nodes=nodes)[1]
    assert (decision.action, str(decision.because(nodes))) == (STOP, "z0h001: not ready any more")


def test_a_task_that_crosses_zones_has_its_ranks_numbered_zone_by_zone() -> None:
    decisions = decide(task(1, 6), task(2, 2, BO), nodes=TWO_ZONES)
    assert decisions[1].nodes == (0, 1, 2, 3, 4, 5)
    assert decisions[2].nodes == (6, 7)


def test_one_task_at_a_time_crosses_zones() -> None:
    three = Nodes.grid(zones=3, leaves=1, nodes_per_leaf=4)
    tasks = [task(1, 5, on=(0, 1, 2, 3, 4)), task(2, 5, BO)]
    found = decide(*tasks, nodes=three, policy=FIFO)
    assert found[2] == (2, WAIT, Reason.ZONES, (), 1)
    assert "task 1 crosses zones already" in str(found[2].because(three))
    assert decide(*tasks, nodes=three, policy=replace(FIFO, crossing=2))[2].action is START
    assert decide(*tasks, nodes=three, policy=replace(FIFO, crossing=None))[2].action is START


def test_for_nodes_of_one_zone_only_those_in_the_way_leave() -> None:
    """Three are wanted while task 9 crosses: task 2 comes last, but what it leaves would not be enough."""
    tasks = [task(1, 1, on=(0,)), task(2, 1, BO, on=(4,)), task(9, 3, "dan", HIGH, on=(3, 5, 7)), task(10, 3, CY, HIGH)]
    assert told(decide(*tasks, nodes=TWO_ZONES)) == {
        1: (SUSPEND, Reason.YIELDS),
        2: (KEEP, Reason.RUNS),
        9: (KEEP, Reason.RUNS),
        10: (WAIT, Reason.NODES_LEAVING),
    }


def test_fifo_knows_no_priority_and_interrupts_nobody() -> None:
    tasks = [task(1, 3, on=(0, 1, 2)), task(2, 2, BO), task(3, 1, CY, HIGH)]
    assert told(decide(*tasks, policy=FIFO)) == {
        1: (KEEP, Reason.RUNS),
        2: (WAIT, Reason.NO_ROOM),
        3: (WAIT, Reason.BEHIND),
    }


@pytest.mark.parametrize(
    ("limit_s", "nodes", "passes"), [(100.0, 1, True), (101.0, 1, False), (None, 1, False), (50.0, 2, False)]
)
def test_easy_lets_pass_who_does_not_delay_the_first(limit_s: float | None, nodes: int, passes: bool) -> None:
    """The first waits for task 1, which ends at 100 s, and then needs all nodes."""
    tasks = [task(1, 3, on=(0, 1, 2), limit_s=100.0), task(2, 4, BO, limit_s=10.0), task(3, nodes, CY, limit_s=limit_s)]
    found = told(decide(*tasks, policy=EASY))
    assert found[2] == (WAIT, Reason.NO_ROOM)
    assert found[3] == ((START, Reason.BACKFILLED) if passes else (WAIT, Reason.WOULD_DELAY))


def test_time_sharing_lends_nodes_and_takes_them_back() -> None:
    """Task 2 cannot have 3 nodes while task 1 runs, which comes first; task 3 is lent the one that is free, but not
    task 4: it is of the same user and level, and would never be interrupted."""
    tasks = [
        task(1, 2, priority=HIGH, on=(0, 1)),
        task(2, 3, BO),
        task(4, 1, BO),
        task(3, 2, CY, Priority.UNDER_NORMAL),
    ]
    found = decide(*tasks, policy=HAI_BACKFILL)
    assert told(found)[4] == (WAIT, Reason.WOULD_DELAY)
    assert told(found)[3] == (START, Reason.LENT)
    assert "takes the nodes back" in str(found[3].because(FOUR))
    later = [task(2, 3, BO), task(4, 1, BO), task(3, 2, CY, Priority.UNDER_NORMAL, on=(2, 3))]
    assert told(decide(*later, policy=HAI_BACKFILL))[3] == (SUSPEND, Reason.YIELDS)


def test_easy_lets_pass_who_uses_nodes_that_the_first_does_not_need() -> None:
    tasks = [task(1, 3, on=(0, 1, 2), limit_s=100.0), task(2, 3, BO), task(3, 1, CY), task(4, 1, CY)]
    found = told(decide(*tasks, policy=EASY))
    assert found[3] == (START, Reason.BACKFILLED)
    assert found[4] == (WAIT, Reason.WOULD_DELAY)


def test_fair_share_takes_who_used_the_least_for_its_share() -> None:
    users = Users(usage={"ada": 100.0, "bo": 90.0}, shares={"ada": 2.0})
    found = told(decide(task(1, 4), task(2, 4, BO), policy=FAIR_SHARE, users=users))
    assert found == {1: (START, Reason.FREE), 2: (WAIT, Reason.NO_ROOM)}
    assert told(decide(task(1, 4), task(2, 4, BO), policy=FAIR_SHARE, users=Users(usage=users.usage)))[2][0] is START


LEAVES = Nodes.grid(zones=1, leaves=3, nodes_per_leaf=4)


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement.PACKED, (1, 2, 3)),
        (Placement.SPREAD, (8, 1, 9)),
        (Placement.LEAVES, (1, 2, 3)),
    ],
)
def test_placement_chooses_leaves(placement: Placement, expected: tuple[int, ...]) -> None:
    """Free are three nodes of leaf 0, two of leaf 1 and four of leaf 2."""
    taken = task(1, 3, BO, on=(0, 4, 5))
    decision = decide(taken, task(2, 3), nodes=LEAVES, policy=HAI.placed(placement))[2]
    assert decision.nodes == expected


def test_few_leaves_are_the_fullest_that_has_enough_else_the_emptiest_first() -> None:
    taken = task(1, 3, BO, on=(0, 4, 5))
    by_leaves = HAI.placed(Placement.LEAVES)
    assert decide(taken, task(2, 2), nodes=LEAVES, policy=by_leaves)[2].nodes == (6, 7)
    assert decide(taken, task(2, 6), nodes=LEAVES, policy=by_leaves)[2].nodes == (8, 9, 10, 11, 6, 7)


def test_random_placement_is_by_the_seed() -> None:
    state = ClusterState(LEAVES, Users(), [task(1, 6)], 0.0)
    found = {tick(state, HAI.placed(Placement.RANDOM), seed)[0].nodes for seed in range(20)}
    assert len(found) > 10
    assert tick(state, HAI.placed(Placement.RANDOM), 3) == tick(state, HAI.placed(Placement.RANDOM), 3)


def test_a_state_that_contradicts_itself_is_refused() -> None:
    for tasks, words in (
        ([task(1, 1, on=(0,)), task(2, 1, on=(0,))], "z0h000: tasks [1, 2] have it"),
        ([task(1, 2, on=(0,))], "task 1: it has 1 nodes and asks for 2"),
        ([task(1, 1), task(1, 1)], "two have the same number"),
    ):
        with pytest.raises(ValueError, match=words.replace("[", r"\[").replace("]", r"\]")):
            decide(*tasks)


def test_a_task_that_could_never_start_is_refused_when_it_is_submitted() -> None:
    users = Users({("ada", NORMAL, "training"): 2}, default=0)
    with pytest.raises(ConfigError) as caught:
        verify_submission(task(7, 5), users, FOUR)
    assert caught.value.faults == (
        "nodes: 5, but the group training has 4; ask for 4 or fewer",
        "nodes: 5, but ada's quota at NORMAL in training is 2; ask for 2 or fewer, or use another priority",
    )
    with pytest.raises(ConfigError, match="unknown group 'debug'; use 'training'"):
        verify_submission(task(7, 1, group="debug"), users, FOUR)
    verify_submission(task(7, 2, priority=AUTO), users, FOUR)
    users = Users({("ada", NORMAL, "training"): 2, ("ada", ABOVE, "training"): 4})
    with pytest.raises(ConfigError, match=r"ABOVE_NORMAL \(and at NORMAL, which it is after half an hour\) .* is 2"):
        verify_submission(task(7, 3, priority=ABOVE), users, FOUR)
    demoted = decide(task(7, 3, priority=ABOVE, ran_s=1800.0), users=users)
    assert demoted[7].reason is Reason.QUOTA_TOO_SMALL


def test_nodes_are_those_of_a_fabric() -> None:
    fabric = load_fabric("fire_flyer_2_small")
    nodes = Nodes.of(fabric, {fabric.computes[0].name: "debug"})
    assert nodes.names == tuple(node.name for node in fabric.computes)
    assert nodes.zone_list == tuple(node.zone for node in fabric.computes)
    assert nodes.groups[nodes.group_of[0]] == "debug"
    assert nodes.groups[nodes.group_of[1]] == "training"
    leaf = fabric.leaf_of(fabric.nics_of[fabric.computes[0]][0])
    neighbours = {nic.node for nic in fabric.nics_on_leaf(leaf)}
    same = [node for node, number in zip(fabric.computes, nodes.leaves, strict=True) if number == nodes.leaves[0]]
    assert set(same) == neighbours & set(fabric.computes)


def busy_cluster(waiting: int) -> ClusterState:
    """Return 1,250 nodes that are full, and tasks that wait for them."""
    rng = random.Random(1)
    nodes = Nodes.grid(zones=2, leaves=25, nodes_per_leaf=25)
    free, tasks = list(range(len(nodes))), list[Task]()
    levels = [Priority.HIGH, Priority.ABOVE_NORMAL, Priority.NORMAL, Priority.UNDER_NORMAL]
    while free:
        size = min(len(free), rng.choice((1, 1, 1, 2, 4, 8, 16)))
        on, free = tuple(free[:size]), free[size:]
        tasks.append(
            task(
                len(tasks), size, f"u{rng.randrange(80)}", rng.choice(levels[2:]), on=on, limit_s=rng.uniform(100, 1e5)
            )
        )
    while len(tasks) < waiting:
        size, level = rng.choice((1, 1, 1, 2, 4, 8, 16, 64)), rng.choice(levels)
        tasks.append(task(len(tasks), size, f"u{rng.randrange(80)}", level, limit_s=rng.uniform(100, 1e5)))
    return ClusterState(nodes, Users(default=400), tasks, 5000.0)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_eight_times_the_tasks_are_not_decided_in_the_square_of_the_time(name: str) -> None:
    """A tick over 10,000 tasks on 1,250 nodes takes 55 to 75 ms of an idle core. How long it takes here depends on the
    machine, how it grows does not."""
    few_s, many_s = (tick_cpu_s(name, waiting) for waiting in (1_250, 10_000))
    print(f"{name}: {few_s * 1e3:.1f} ms of CPU time for 1,250 tasks, {many_s * 1e3:.1f} ms for 10,000")
    assert many_s < 24 * few_s, "the square would be 64 times as long"


def tick_cpu_s(name: str, waiting: int) -> float:
    """CPU seconds of one tick, the shortest of five: the machine does other things, too."""
    state, took_s = busy_cluster(waiting), []
    for _ in range(5):
        began_s = time.process_time()
        decisions = tick(state, POLICIES[name])
        took_s.append(time.process_time() - began_s)
        assert len(decisions) == waiting
    return min(took_s)
