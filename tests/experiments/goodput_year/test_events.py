"""What is drawn, and what a failure or a suspension is said to cost, from events and steps that are known."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import astuple
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from cluster.placement import Placement
from cluster.platform.failure_cost import CostParts
from cluster.simulation.measured import SpineCost
from experiments.goodput_year.config import DrawsConfig, EventsConfig, GoodputYearConfig, Kind
from experiments.goodput_year.costs_by_steps import (
    Failed,
    FailureCost,
    LifeSteps,
    SuspensionCost,
    costs_by_steps,
    life_steps,
    stalled_s,
    suspension_costs,
)
from experiments.goodput_year.draws import Place, drawn_failures, ends_s, leaf_moment_s, submissions_s
from experiments.goodput_year.places import by_leaf, first_nodes, leaf_names, listed, spines_above
from experiments.goodput_year.shared_costs import spine_cost, waited_s
from experiments.goodput_year.storms import Storm, beside, storms_of, written
from experiments.goodput_year.summary import _metrics
from fabric.errors import ConfigError, TrafficError
from fabric.failures.config import schedule_failures
from fabric.metrics import by_path
from runs.registry import resolve
from tests.experiments.declared import undeclared

CONFIG: Any = resolve("goodput_year", [])[1]
assert isinstance(CONFIG, GoodputYearConfig)
FABRIC = CONFIG.fabric()
EVENTS = CONFIG.events
NODES = listed(FABRIC, EVENTS.nodes[1:])
PLACE = Place(first_nodes(NODES, 7), NODES.names, leaf_names(FABRIC, EVENTS.nodes))


def test_each_failure_hits_a_node_of_the_job_at_a_random_moment_once_it_makes_steps_again() -> None:
    planned = drawn_failures(EVENTS, PLACE, "failures", seed=1)
    assert planned == drawn_failures(EVENTS, PLACE, "failures", seed=1)
    assert Counter(one.kind for one in planned) == EVENTS.draws.counts
    schedule_failures([one.line for one in planned], FABRIC, 1)
    away: dict[str, float] = {}
    for before, one in zip([None, *planned], planned, strict=False):
        assert one.at_s > away.get(one.node, 0.0), "it has no rank while it is away"
        if before is not None:
            gap_s = one.at_s - before.at_s
            assert 20 <= gap_s <= EVENTS.away + 20 + EVENTS.program.interval
            if before.kind in (Kind.SILENT, Kind.LEAF):
                assert one.node != before.node, "its place was taken, and it is the spare one"
                assert gap_s > EVENTS.away
        if one.kind in (Kind.SILENT, Kind.LEAF):
            away[one.node] = one.at_s + EVENTS.away
    assert ends_s(EVENTS, planned) >= planned[-1].at_s + 30


def test_moments_are_even_over_the_interval() -> None:
    many = EVENTS.model_copy(update={"draws": DrawsConfig(killed=0, silent=200, leaf=0, cut=0)})
    times = [one.at_s for one in drawn_failures(many, PLACE, "failures", seed=3)]
    gaps = [later - earlier - EVENTS.away - 20 for earlier, later in pairwise(times)]
    assert min(gaps) >= 0 and max(gaps) <= 300
    assert sum(gaps) / len(gaps) == pytest.approx(150, rel=0.15)
    assert sum(gap < 75 for gap in gaps) / len(gaps) == pytest.approx(0.25, abs=0.08)


def test_a_leaf_fails_only_if_one_node_of_the_platform_has_it_alone() -> None:
    assert set(PLACE.leaves) == set(EVENTS.nodes[1:]) - {"z0h004"} or len(PLACE.leaves) >= 6
    leaves = [PLACE.leaves[one.node] for one in drawn_failures(EVENTS, PLACE, "f", 1) if one.kind is Kind.LEAF]
    assert leaves and all(leaf in {node.name for node in FABRIC.switches} for leaf in leaves)


def test_suspensions_do_not_meet() -> None:
    times = submissions_s(EVENTS, 1)
    assert len(times) == EVENTS.suspensions
    assert all(later - earlier >= 60 for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"away": "60 s"}, "away: 60 s is less than 90 s, in which the job goes on without the node; raise it"),
        ({"cut": "55 s"}, "cut: a node that is cut off for 55 s may be taken out; lower it"),
        ({"program": {"step": "7 s"}}, "interval 300 s is not a multiple of step, 7 s; change one"),
        ({"nodes": ["z0h000", "z0h001", "z0h001", "z0h002"]}, "nodes: names one more than once"),
    ],
)
def test_what_could_not_be_played_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        EventsConfig.model_validate({**EVENTS.model_dump(mode="json"), **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"leaves.nodes": ["z0h000", "z0h004", "z0h001", "z0h005"]}, "the scheduler's leaf, z0l00, has z0h004, too"),
        ({"leaves.nodes": ["z0h000", "z0h001", "z0h002", "z0h003"]}, "leaves.nodes: no leaf has two of them"),
        ({"leaves.job": 7}, "leaves.job: 7 nodes, but without the fullest leaf 6 are left; lower it"),
        ({"leaves.nodes": ["z0h000", "st000", "z0h002", "z0h003"]}, "leaves.nodes: st000: no compute node"),
        ({"spine.routing": {"repair": "wait"}}, "an allreduce never goes on without the switch; use reroute"),
        ({"storage_loss.dataloader": {"batch": 4}}, "nodes compute between batches, and read until they are stopped"),
        ({"wrong.checkpoints.count": None}, "count None and keep 2; the one before the last must be there"),
        ({"wrong.checkpoints.restored_by": [2]}, "restored_by: all nodes restore here; leave it out"),
        ({"validation.health": {}}, "before_job: nodes are validated before the job here; set it"),
        ({"year.validated": 0.01}, "validations: 0.01 days are not more than validates, 600 s, and an hour"),
        ({"year.machines.rsc1.leaves": 1001}, "machines.rsc1.leaves: 1001 for 1000 nodes; lower it"),
    ],
)
def test_what_else_could_not_be_played_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve("goodput_year", [f"{key}={json.dumps(value)}" for key, value in changed.items()])


def test_leaves_and_spines_are_found_in_the_fabric() -> None:
    nodes = CONFIG.leaves.nodes
    placed = first_nodes(listed(FABRIC, nodes[1:]), CONFIG.leaves.job, Placement.LEAVES)
    assert by_leaf(FABRIC, placed) == {"z0l01": ("z0h001", "z0h005", "z0h009"), "z0l02": ("z0h002", "z0h006", "z0h010")}
    assert spines_above(FABRIC, FABRIC.computes[0]) == ("z0s00", "z0s01", "z0s02", "z0s03")
    moments = [leaf_moment_s(1, number, 10.0) for number in range(200)]
    assert min(moments) >= 0 and max(moments) <= 30 and len(set(moments)) == 200


def test_a_spine_costs_a_stall_and_longer_steps() -> None:
    steps = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.1), (3.1, 6.0), (6.0, 7.5), (7.5, 8.5), (8.5, 10.5)]
    found = spine_cost(steps, 4.0, 4, 4.0)
    assert (found.stall, found.slow_communication, found.spines) == pytest.approx((1.9, 1.5, 4))
    assert [found.of(count) for count in (4, 20)] == pytest.approx([1.5, 1.1])
    assert spine_cost([(0.0, 1.0), (1.0, 1.5)], 1.0, 4, 4.0).slow_communication == 1, "no faster than whole"
    with pytest.raises(
        TrafficError, match=r"spine: 2 steps before the failure and 0 after it; raise spine.time \(4 s\)"
    ):
        spine_cost(steps[:2], 4.0, 4, 4.0)


def test_a_training_waits_while_any_of_its_nodes_does() -> None:
    waits = [(10.0, 12.0), (11.0, 14.0), (20.0, 20.005), (18.0, 19.0), (25.0, 40.0)]
    assert waited_s(waits, 0.0, 100.0) == pytest.approx(4 + 1 + 15)
    assert waited_s(waits, 11.5, 26.0) == pytest.approx(2.5 + 1 + 1)
    assert waited_s([], 0.0, 1.0) == 0


# Costs ---------------------------------------------------------------------------------------------------------------


def row(at_s: float, event: str, life: int, nodes: str = "", *, step: int = -1, number: int = 1) -> dict[str, Any]:
    return {"at_s": at_s, "event": event, "number": number, "life": life, "nodes": nodes, "step": step}


FAILED_ONCE = [
    row(0, "submitted", 1),
    row(1, "started", 1, "a b"),
    row(770, "restart", 1),
    row(771, "left", 1, step=300),
    row(773, "started", 2, "b c"),
]
"""Steps of a second from 5 s on, a checkpoint after step 300 that is complete at 310 s; b fails at 700 s."""


def test_the_parts_of_a_failure_are_all_of_the_time_from_the_last_step_that_was_kept() -> None:
    gone = "gone: rank 0 of 2: waited 600 s for rank 1 and the end of step 696: timed out\n"
    log = "begin 105.0\n" + gone + "".join(f"{step} {105 + step}.0\n" for step in range(1, 696)) + "696 80"
    lives = {1: life_steps(1, log, 100.0), 2: LifeSteps(2, 776.5, {302: 778.5, 301: 777.5})}
    assert lives[1].last == (695, 700.0), "the line that was not written whole does not count"
    (cost,) = costs_by_steps([Failed("silent", "b", 700.0), Failed("silent", "c", 700.0)], FAILED_ONCE, lives)
    parts = astuple(cost.parts)
    assert parts == pytest.approx((700 - 305, 70, 1, 2, 3.5))
    assert cost.parts.total_s == pytest.approx(776.5 - 305) == pytest.approx(sum(parts))
    assert (cost.resumed, cost.life) == (300, 1)


@pytest.mark.parametrize(("step", "began_s", "lost_s"), [(-1, 5.0, 695.0), (900, 5.0, 695.0), (300, None, 0.0)])
def test_without_a_checkpoint_of_its_own_a_life_has_lost_all_it_made(
    step: int, began_s: float | None, lost_s: float
) -> None:
    """Also if it goes on from one of a life before, as from step 900; and nothing if its ranks had not met yet."""
    events = [one if one["event"] != "left" else {**one, "step": step} for one in FAILED_ONCE]
    lives = {1: LifeSteps(1, began_s, {1: 6.0, 300: 305.0}), 2: LifeSteps(2, 776.5)}
    (cost,) = costs_by_steps([Failed("killed", "a", 700.0)], events, lives)
    assert cost.parts.lost_s == pytest.approx(lost_s)


def test_a_cut_costs_what_a_step_took_beyond_the_usual() -> None:
    ends = {1: 2.0, 2: 4.0, 3: 6.0, 4: 19.5, 5: 21.5, 6: 90.0}
    assert stalled_s(6.5, LifeSteps(1, 0.0, ends), usual_s=2.0) == pytest.approx(11.5)
    assert stalled_s(5.9, LifeSteps(1, 0.0, ends), usual_s=2.0) == pytest.approx(11.5), "the step's rank had ended"
    assert stalled_s(3.0, LifeSteps(1, 0.0, ends), usual_s=2.0) == 0


def test_a_suspension_is_its_tick_answer_save_start_and_return() -> None:
    events = [
        row(0, "submitted", 1),
        row(1, "started", 1, "a b"),
        row(40.3, "submitted", 2, number=2),
        row(41, "suspend", 1),
        row(45, "left", 1, step=20),
        row(46, "started", 2, "a b", number=2),
        row(60, "finished", 2, number=2),
        row(61, "started", 3, "a b"),
    ]
    lives = {1: LifeSteps(1, 2.0, {20: 42.0}), 2: LifeSteps(2, 47.5), 3: LifeSteps(3, 62.0)}
    (cost,) = suspension_costs(events, lives)
    assert (cost.tick_s, cost.answer_s, cost.save_s, cost.start_s, cost.resume_s) == pytest.approx((0.7, 1, 3, 2.5, 2))
    assert cost.lost == 0
    killed = [one if one["event"] != "left" else {**one, "step": 15} for one in events]
    assert suspension_costs(killed, lives)[0].lost == 5


# Storms --------------------------------------------------------------------------------------------------------------


def operations(rows: list[tuple[str, str, float, float, int]]) -> pd.DataFrame:
    columns = ["operation", "host", "started_s", "ended_s", "size_bytes"]
    return pd.DataFrame(rows, columns=columns)


def test_storms_are_format_apart_by_their_begin_and_count_only_if_all_nodes_got_all() -> None:
    rows = [
        (kind, host, at_s, at_s + 2.0, 1000)
        for at_s in (1.0, 5.0)
        for kind, host in (("restore", "a"), ("restore", "b"))
    ]
    broken = [("restore", "a", 9.0, 11.0, 1000), ("restore_abandoned", "b", 9.0, 11.0, 10)]
    found = storms_of("resync", operations([*rows, *broken, ("read", "a", 1.0, 1.5, 100)]), 2000.0)
    assert [(one.began_s, one.nodes, one.size_bytes, one.part) for one in found] == [
        (1.0, 2, 2000, 0.5),
        (5.0, 2, 2000, 0.5),
    ]
    attempts = pd.DataFrame({"began_s": [0.0, 2.5], "ended_s": [2.0, 2.75], "chunks": [3, 1]})
    assert [one.resync for one in beside(found, attempts)] == pytest.approx([0.625, 0.0])


def test_checkpoints_count_all_copies_of_what_was_written_while_the_load_played() -> None:
    rows = operations([("write", host, 1.0, 3.0, 500) for host in "ab"] + [("write", "a", 3.0, 3.5, 100)])
    assert written("write", rows, 2000.0, 3, (1.0, 3.0)) == Storm("write", 1.0, 3.0, 2, 1000, 0.75)
    assert written("write", rows, 2000.0, 3, (4.0, 5.0)) is None


# Metrics -------------------------------------------------------------------------------------------------------------


def test_all_numbers_of_events_are_declared() -> None:
    cost = FailureCost("error", "a", 1.0, 1, 300, CostParts(395.0, 70.0, 1.0, 2.0, 3.5))
    others: Any = SimpleNamespace(
        leaves=[cost], spine=SpineCost(stall=1, slow_communication=2, spines=2), storage_loss=True,
        wrong_copies=SimpleNamespace(wrong_copies=1), wrong_checkpoint=SimpleNamespace(found_s=1.0, again_s=2.0),
        validation_s=4.0,
    )  # fmt: skip
    seen: Any = SimpleNamespace(
        failures=SimpleNamespace(costs=[cost], cuts=[SimpleNamespace(stalled_s=1.0)]),
        suspensions=[SuspensionCost(1.0, 0.7, 1.0, 3.0, 2.5, 2.0, 0)],
        storms=[Storm("restore", 1.0, 3.0, 2, 2000, 0.5)], slowed=2.0,
        costs=SimpleNamespace(storage_lost=11.0, resync=1.0), others=others,
    )  # fmt: skip
    found = list(_metrics(seen))
    assert undeclared("goodput_year", found) == []
    metrics = by_path(found)
    assert metrics["failures.all.lost_mean_s"] == 395
    assert metrics["restore.restore_fraction"] == 0.5
