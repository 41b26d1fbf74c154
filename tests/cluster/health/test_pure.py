"""The pure part of node health: who is slow, who is a lemon, who stands still."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.faults.published import gpu_errors
from cluster.health.checks import Check, CheckResult, Occasion, Verdict
from cluster.health.config import HealthConfig, Lemons, StallWatch, Validate
from cluster.health.gpu_teams import GpuParts, Team, TeamSpeed, judged, teams_of
from cluster.health.histories import DAY_S, NodeHistory, Standing
from cluster.health.pairs import Pair, ring, rounds
from cluster.health.stalls import JobSteps
from cluster.health.validation import Measured, Nodes, Order, Validation
from cluster.health.xids import XIDS, Ask, GpuError, errors_in
from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.inside import Inside
from topologies.load import load_fabric

RATE = 1_000_000
VALIDATE = Validate(checks=(Check.ANSWER, Check.BANDWIDTH))


def leaf_of(node: str) -> int:
    """Three nodes on each leaf."""
    return int(node[1:]) // 3


def played(
    subjects: Sequence[str], helpers: Sequence[str], share: dict[str, float], silent: Sequence[str] = ()
) -> tuple[Validation, list[Sequence[Order]]]:
    """Return a validation after all was asked and answered: a pair has what the slower of its two NICs has."""
    nodes = Nodes(dict.fromkeys((*subjects, *helpers), (RATE,)), leaf_of)
    validation, now_s, asked = Validation(Occasion.DEMAND, subjects, helpers, nodes, VALIDATE), 0.0, []
    while not validation.is_over:
        orders = validation.turn(now_s)
        asked.append(orders)
        for order in orders:
            if order.node in silent:
                continue
            if order.peer:
                bps = 0.97 * RATE * min(share.get(one, 1.0) for one in (order.node, order.peer))
                validation.answer(order, Measured(bps))
            else:
                validation.answer(order, [])
        now_s += VALIDATE.timeout if silent else 0.1
        assert len(asked) < 500, "it does not come to an end"
    return validation, asked


names = st.integers(1, 12).map(lambda count: [f"n{number}" for number in range(count)])


@given(names, st.integers(0, 4), st.data())
def test_exactly_the_slow_nodes_are_named_wherever_a_sound_one_is(
    subjects: list[str], more: int, data: st.DataObject
) -> None:
    helpers = [f"n{number}" for number in range(20, 20 + more)]
    slow = data.draw(st.sets(st.sampled_from([*subjects, *helpers])))
    validation, asked = played(subjects, helpers, dict.fromkeys(slow, 0.25))
    failed = {one.node for one in validation.results if one.verdict is Verdict.FAILED}
    unknown = {one.node for one in validation.results if one.verdict is Verdict.UNKNOWN}
    assert failed <= slow, "a node was blamed for its partner's NIC"
    assert (
        not {one.node for one in validation.results if one.verdict is Verdict.PASSED and one.check is Check.BANDWIDTH}
        & slow
    )
    if failed or any(one.verdict is Verdict.PASSED and one.check is Check.BANDWIDTH for one in validation.results):
        assert not unknown and failed == slow & set(subjects), "with one sound node known, all is known"
    if len(subjects) + more - len(slow) >= 2 and len(subjects) + more <= 4:
        assert not unknown, "few nodes, two of them sound: they were measured with each other"
    for orders in asked:
        used = [node for order in orders for node in (order.node, order.peer) if node]
        assert len(used) == len(set(used)), "a node measures with two at once"


def test_a_slow_one_among_four_is_found_and_its_neighbours_are_not() -> None:
    validation, asked = played(["n0", "n1", "n2", "n3"], ["n4"], {"n1": 0.25})
    assert validation.failures() == {
        "n1": "bandwidth: NIC 0: 242 kbit/s of 1 Mbit/s with n0, 242 kbit/s of 1 Mbit/s with n2, "
        "242 kbit/s of 1 Mbit/s in 2 tries alone with n3"
    }
    alone = [{orders[0].node, orders[0].peer} for orders in asked if len(orders) == 1 and orders[0].peer]
    assert alone[:4] == [{"n1", "n3"}] * 4, "it is measured twice more, both ways, while nobody else sends"
    assert len(alone) == 6 and "n1" not in alone[4] | alone[5], "then two sound ones"


def test_who_is_slow_while_sound_nodes_are_is_not_blamed() -> None:
    """The fabric is slow from the confirmation on: n1's NIC is sound, but was in somebody's way before."""
    nodes = Nodes(dict.fromkeys(["n0", "n1", "n2", "n3"], (RATE,)), leaf_of)
    validation, alone = Validation(Occasion.DEMAND, ["n0", "n1", "n2", "n3"], [], nodes, VALIDATE), 0
    while not validation.is_over:
        orders = validation.turn(0.0)
        alone += len(orders) == 1
        for order in orders:
            slow = alone or "n1" in (order.node, order.peer)
            validation.answer(order, Measured(RATE * (0.25 if slow else 0.97)) if order.peer else [])
    assert validation.failures() == {}
    (result,) = [one for one in validation.results if one.verdict is Verdict.UNKNOWN]
    assert result.node == "n1" and math.isnan(result.measured)
    assert result.reason.endswith("had 250 kbit/s of 1 Mbit/s: all was slow, not this node alone")


@given(st.integers(1, 4), st.lists(st.booleans(), min_size=9, max_size=9))
def test_most_tries_decide_of_a_test_that_a_node_does_by_itself(half: int, fails: list[bool]) -> None:
    tries = 2 * half - 1
    nodes, config = Nodes({"n0": (RATE,)}, leaf_of), Validate(checks=(Check.STORAGE,), tries=tries)
    validation, asked = Validation(Occasion.DEMAND, ["n0"], [], nodes, config), 0
    while not validation.is_over:
        for order in validation.turn(0.0):
            verdict = Verdict.FAILED if fails[asked] else Verdict.PASSED
            validation.answer(order, [CheckResult("n0", Check.STORAGE, verdict, float(asked), reason=f"try {asked}")])
            asked += 1
    (result,) = validation.results
    assert (result.verdict is Verdict.FAILED) is (fails[0] and sum(fails[:tries]) >= half)
    assert asked <= tries and (fails[0] or asked == 1), "who passes is asked once"
    if asked > 1:
        assert all(f"try {number}" in result.reason for number in range(asked)), "the evidence"


def test_of_two_without_a_third_nobody_can_say() -> None:
    validation, _ = played(["n0", "n1"], [], {"n1": 0.25})
    assert set(validation.failures()) == {"n0", "n1"}
    assert all("which of them is slow is unknown" in why for why in validation.failures().values())
    three, _ = played(["n0", "n1", "n2"], [], dict.fromkeys(["n0", "n1", "n2"], 0.25))
    assert three.failures() == {}, "rather the fabric is slow, or the machine"
    assert set(three.untold()) == {"n0", "n1", "n2"}
    assert all(why.endswith("so were all others: the fabric or the machine is slow, not this node alone")
               for why in three.untold().values())  # fmt: skip
    alone, _ = played(["n0"], [], {})
    assert alone.failures() == {}
    assert alone.results[-1].reason == "NIC 0: there was no other node to measure with"


def test_who_does_not_answer_has_failed_and_measures_with_nobody() -> None:
    validation, asked = played(["n0", "n1", "n2", "n3"], [], {}, silent=["n2"])
    assert validation.failures() == {"n2": "answer: its agent did not answer within 10 s"}
    assert not any("n2" in (order.node, order.peer) for orders in asked[1:] for order in orders)


@given(st.integers(2, 30))
def test_a_ring_gives_everybody_two_partners(count: int) -> None:
    nodes = [f"n{number}" for number in range(count)]
    pairs = [pair for one in rounds(ring(nodes, [], leaf_of)) for pair in one]
    assert len(set(map(frozenset, pairs))) == len(pairs) == (count if count > 2 else 1)
    if count > 2:
        assert all(sum(pair.has(node) for pair in pairs) == 2 for node in nodes)
    assert Pair("a", "b").partner("b") == "a"


def test_helpers_of_the_same_leaf_come_first() -> None:
    assert ring(["n0"], ["n9", "n1", "n2"], leaf_of) == ["n0", "n1", "n2"]


# GPUs of a node ------------------------------------------------------------------------------------------------------

NVLINK = load_fabric("fire_flyer_2_nodes_nvlink")
INSIDE = cast(Inside, NVLINK.inside)


def test_teams_and_what_their_links_allow() -> None:
    parts = GpuParts.of(NVLINK, NVLINK.computes[0])
    assert parts is not None and GpuParts.of(load_fabric("fire_flyer_2_small"), NVLINK.computes[0]) is None
    teams = teams_of(INSIDE)
    assert [team.gpus for team in teams if team.over_nvlink] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [len(team.gpus) for team in teams if not team.over_nvlink] == [8] + [2] * 8
    limits = {team: team.limit_Bps(INSIDE) / 1e9 for team in teams}
    assert limits[Team((0, 1), over_nvlink=True)] == 300
    assert limits[Team((0, 1))] == 27
    assert limits[Team((4, 5))] == 18.75, "one GPU at a root port of 37.5 GB/s, both ways"
    assert limits[Team((5, 6))] == limits[Team(tuple(range(8)))] == 9.375, "both"
    assert parts.addresses(Team((2, 3), over_nvlink=True)) == (parts.nvlink[2], parts.nvlink[3])
    dgx = load_fabric("dgx_a100_nodes").inside
    assert dgx is not None and teams_of(dgx)[0] == Team(tuple(range(8)), over_nvlink=True)
    assert Team((0, 1)).busbw_Bps(100, 2.0) == 50 and Team((0, 1, 2, 3)).busbw_Bps(100, 2.0) == 75


def speeds(slow: dict[Team, float], links: dict[int, float]) -> dict[Team, TeamSpeed]:
    """Return what teams reach, at 97 % of their limits, where teams or PCIe links of GPUs have a part of their rate."""
    found = {}
    for team in teams_of(INSIDE):
        limit = team.limit_Bps(INSIDE) * slow.get(team, 1.0)
        own = [27e9 * links[gpu] for gpu in team.gpus if gpu in links and not team.over_nvlink]
        found[team] = TeamSpeed(0.97 * min([limit, *own]))
    return found


@pytest.mark.parametrize(
    ("slow", "links", "faults"),
    [
        ({}, {}, []),
        ({Team((2, 3), over_nvlink=True): 0.5}, {}, ["GPUs 2 and 3 over NVLink: 145.500 GB/s of 300.000 GB/s"]),
        (
            {},
            {2: 0.5},
            ["GPU 2: GPUs 1 and 2 over PCIe: 13.095 GB/s of 27.000 GB/s, GPUs 2 and 3 over PCIe: 13.095 GB"],
        ),
        ({Team((1, 2)): 0.5}, {}, ["GPUs 1 and 2 over PCIe: 13.095 GB/s of 27.000 GB/s"]),
        ({Team(tuple(range(8))): 0.5}, {}, ["GPUs 0 to 7 over PCIe: 4.547 GB/s of 9.375 GB/s"]),
        ({}, {2: 0.1, 5: 0.1}, ["GPU 2: ", "GPU 5: "]),
    ],
)
def test_the_gpu_or_the_link_is_named_that_is_slow(
    slow: dict[Team, float], links: dict[int, float], faults: list[str]
) -> None:
    found = judged(INSIDE, speeds(slow, links), 0.8)
    assert len(found.faults) == len(faults), found
    for fault, wanted in zip(found.faults, faults, strict=True):
        assert fault.startswith(wanted)
    assert (found.fraction < 0.8) is bool(faults)


# Histories -----------------------------------------------------------------------------------------------------------

OUTS = st.lists(st.tuples(st.floats(0, 100), st.sampled_from([(), (79,)])))


@given(OUTS, st.integers(1, 5))
def test_a_lemon_is_out_for_good_and_who_is_none_is_not(outs: list[tuple[float, tuple[int, ...]]], limit: int) -> None:
    limits = Lemons(outs=limit, tickets=None, xids=None, multi_node_fails=None, single_node_fails=None)
    history, now_s = NodeHistory(), 0.0
    times = []
    for days, xids in sorted(outs):
        now_s = days * DAY_S
        history.out(now_s, 60.0, xids)
        times.append(now_s)
        lemon = history.lemon(now_s, limits)
        assert bool(lemon) is (sum(at_s > now_s - 28 * DAY_S for at_s in times) >= limit)
        if lemon:
            history.discarded()
            assert history.standing is Standing.LEMON
            history.out(now_s + 1, 60.0)
            assert history.standing is Standing.LEMON, "nothing but a person's word brings it back"
            return
        assert history.standing is Standing.OUT and history.due_s == now_s + 60
        history.back()
        assert history.standing.value == "in"


def test_each_signal_makes_a_lemon_by_its_own_limit() -> None:
    def why(change: dict[str, Any], *what: tuple[str, tuple[Any, ...]]) -> str:
        none = dict.fromkeys(("outs", "tickets", "xids", "multi_node_fails", "single_node_fails"))
        history = NodeHistory()
        for name, arguments in what:
            getattr(history, name)(*arguments)
        return history.lemon(10.0, checked(Lemons, {**none, **change}, "test"))

    still_out = ("out", (1.0, 5.0))
    assert why({"tickets": 2}, still_out, still_out) == "2 repairs in 28 d (limit 2)"
    assert why({"outs": 2}, still_out, still_out) == "", "it was taken out once, and stayed out"
    xids = [("out", (1.0, 5.0, (xid,))) for xid in (79, 79, 94)]
    assert why({"xids": 2}, *xids) == "2 different Xids in 28 d (limit 2)"
    assert why({"xids": 3}, *xids) == ""
    assert why({"multi_node_fails": 1}, ("stopped", (1.0, 4))) == "1 jobs of several nodes stopped in 28 d (limit 1)"
    assert why({"single_node_fails": 1}, ("stopped", (1.0, 1))) == "1 jobs of one node stopped in 28 d (limit 1)"
    jobs = [("began", (1.0, 1))] * 5 + [("stopped", (2.0, 1))] * 3
    assert why({"single_node_fail_rate": 0.5}, *jobs) == "3 of 5 jobs of one node stopped (limit 50%)"
    assert why({"single_node_fail_rate": 0.5}, *jobs[1:]) == "", "four jobs say nothing"


# Stalls --------------------------------------------------------------------------------------------------------------


def test_a_gang_that_stands_still_is_seen_and_who_is_behind_is_blamed() -> None:
    watch, job = StallWatch(factor=5, least=4.0, first=100.0), JobSteps(4, 0.0)
    assert job.stall(1000.0, watch) is None, "it tells no steps"
    for step in range(1, 11):
        for rank in range(4):
            if (step, rank) != (10, 2):
                job.tell(rank, step, float(step))
    assert job.usual_s == 1.0
    assert job.stall(14.9, watch) is None
    stall = job.stall(15.0, watch)
    assert stall is not None and stall.blamed == (2,)
    assert stall.words(("a", "b", "c", "d")) == (
        "stalled: no rank has moved for 5 s, and a step takes 1 s; the others, at step 10, wait for c (step 9)"
    )
    job.tell(2, 10, 16.0)
    assert job.stall(20.0, watch) is None
    stall = job.stall(22.0, watch)
    assert stall is not None and stall.blamed == ()
    assert stall.words(("a", "b", "c", "d")).endswith("all are at step 10, so which node is to blame is not known")


def test_before_a_step_is_usual_the_watch_waits_longer() -> None:
    watch, job = StallWatch(factor=5, least=4.0, first=100.0), JobSteps(2, 0.0)
    job.tell(0, 1, 10.0)
    assert job.stall(109.0, watch) is None
    assert job.stall(110.0, watch) is not None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.floats(0, 5)), min_size=1))
def test_whoever_is_at_the_front_is_never_blamed(told: list[tuple[int, int, float]]) -> None:
    job, now_s = JobSteps(4, 0.0), 0.0
    for rank, step, later_s in told:
        now_s += later_s
        job.tell(rank, step, now_s)
    stall = job.stall(now_s + 10_000, StallWatch())
    assert stall is not None
    front = max(job.steps.values())
    assert all(job.steps[rank] < front for rank in stall.blamed)
    assert 2 * len(stall.blamed) <= len(job.steps)


# Errors and configs --------------------------------------------------------------------------------------------------


def test_every_xid_of_the_papers_table_has_a_class_and_a_line_that_is_read_back() -> None:
    assert {xid for _, xid in gpu_errors()} <= set(XIDS)
    told = [GpuError(12.5, gpu, xid) for gpu, xid in enumerate(XIDS)]
    log = "\n".join(["[    0.000000] Linux version 6.1", *(one.line() for one in told), "[1.0] NVRM: Xid (PCI"])
    assert list(errors_in(log)) == told
    assert told[0].line() == "[   12.500000] NVRM: Xid (PCI:0000:00:00): 13, exception of the graphics engine"
    assert GpuError(0.0, 0, 999).kind.ask is Ask.REPAIR, "of what nobody knows, the worst is taken"


def test_a_result_crosses_as_a_message() -> None:
    for measured in (math.nan, 2.0):
        one = CheckResult("a", Check.GPU, Verdict.FAILED, measured, 1.0, "", "why")
        again = CheckResult.of_message("a", one.message())
        assert again.message() == one.message()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"validate": {"checks": []}}, "validate.checks"),
        ({"validate": {"bandwidth": 2}}, "validate.bandwidth"),
        ({"validate": {"every": "15 s"}}, "validate.every: 15 s is less than two timeouts of 10 s; raise it"),
        ({"lemon": {"outs": 0}}, "lemon.outs"),
        ({"stall": {"factor": 1}}, "stall.factor"),
    ],
)
def test_what_is_wrong_in_a_config_is_named(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked(HealthConfig, keys, "test")


def test_a_test_that_cannot_end_in_time_is_refused() -> None:
    fabric = load_fabric("fire_flyer_2_small")
    assert checked(HealthConfig, {}, "test").faults(fabric) == ()
    slow = checked(HealthConfig, {"validate": {"size": "64 MiB"}}, "test")
    assert slow.faults(fabric) == (
        "validate.timeout: 10 s, but 67,108,864 B take 134 s at 0.8 of the slowest NIC's rate; raise it, or lower "
        "validate.size",
    )
