"""Who sends what in the experiment, on how many connections, how fast NICs could, and what its config refuses."""

from __future__ import annotations

from collections import Counter

import pytest

from experiments.spraying.config import Load, SprayingConfig, Spreading
from experiments.spraying.study import Spread
from fabric.errors import ConfigError
from fabric.failures.schedule import FailureSchedule, LinkState
from fabric.model.lanes import Queueing
from runs.registry import resolve
from topologies.load import load_fabric
from traffic.flows.messages import bound_s, flows_of
from traffic.transport.message_config import Control

FABRIC = load_fabric("fat_tree_k4")


def config(*overrides: str) -> SprayingConfig:
    found = resolve("spraying", list(overrides)).config
    assert isinstance(found, SprayingConfig)
    return found


def test_every_host_sends_and_receives_as_much_in_a_permutation_and_an_all_to_all() -> None:
    for load, each in ((Load.PERMUTATION, 2_000_000), (Load.ALL_TO_ALL, 15 * 133_334)):
        messages = config().messages(FABRIC, load)
        sent, received = Counter[str](), Counter[str]()
        for one in messages:
            sent[one.source.name] += one.size_bytes
            received[one.sink.name] += one.size_bytes
        assert {*sent.values(), *received.values()} == {each}
        assert len(sent) == len(received) == 16
    assert config("seed=2").messages(FABRIC, Load.PERMUTATION) != config().messages(FABRIC, Load.PERMUTATION)


def test_an_incast_takes_its_receiver_s_link_as_long_as_all_of_it() -> None:
    messages = config("senders=5").messages(FABRIC, Load.INCAST)
    assert {one.sink for one in messages} == {FABRIC.computes[-1]}
    assert bound_s(FABRIC, messages) == pytest.approx(5 * bound_s(FABRIC, messages[:1]))
    assert bound_s(FABRIC, messages[:1]) == pytest.approx(2e6 * 8 / 100e9, rel=0.03)


@pytest.mark.parametrize("each", [1, 4, 16])
def test_connections_of_a_message_carry_all_of_it(each: int) -> None:
    messages = config("message=2000001").messages(FABRIC, Load.PERMUTATION)
    flows = flows_of(messages, each, 0.5)
    assert len(flows) == each * len(messages)
    assert sum(one.size_bytes for one in flows) == sum(one.size_bytes for one in messages)
    assert max(one.size_bytes for one in flows) - min(one.size_bytes for one in flows) <= 1


def test_allreduces_are_bound_by_what_a_rank_sends() -> None:
    ring, trees = (config().least_s(FABRIC, load) for load in (Load.RING, Load.HFREDUCE))
    assert ring / trees == pytest.approx(15 / 16)


def test_a_case_has_its_routing_its_seed_and_its_control() -> None:
    made = config("seed=3")
    assert made.routing_of(Spreading.SPRAY).hash_seed == 3
    assert [one.policy.name for one in made.routings_played] == [
        "static", "ecmp", "adaptive", "spray", "round_robin", "entropy"
    ]  # fmt: skip
    assert [{*made.controls_in(queueing).values()} for queueing in made.queueings] == [{"line"}, {"cubic"}]
    case = Spread(Queueing.LOSSLESS, Spreading.ECMP_4, 1, Load.ALL_TO_ALL)
    assert case.name == "lossless_ecmp_4_less_1_all_to_all"
    assert case.title == "all-to-all, ECMP, 4 flows, 1 uplink failed, one lossless lane"
    assert [one.value for one in Spreading if one.tolerates_reordering] == [
        *("spray", "round_robin", "entropy", "messages", "messages_credits")
    ]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["failed_uplinks=[2]"], "failed_uplinks: 2 of the 2 uplinks of z0l00 leave none"),
        (["routing.repair=wait"], "failed_uplinks: with routing.repair: wait their share is lost for good"),
        (["senders=16"], "senders: 16, and there are 15 beside the receiver"),
        (["routing.policy=spray"], "routing.policy: spray is not what decides here"),
        (["transport.reordering=2"], "transport.reordering: Input should be greater than or equal to 3"),
        (["lossy_control=dcqn"], "lossy_control"),
    ],
)
def test_what_does_not_fit_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        config(*overrides)
    assert any(said in fault for fault in failed.value.faults), failed.value.faults


def test_messages_have_their_control_and_all_else_what_the_run_has() -> None:
    own = config("transport.kind=verbs", "transport.messages.timeout=2 ms").transport
    kinds = {one: one.transport(own) for one in Spreading}
    assert {one.value for one, found in kinds.items() if found.kind == "messages"} == {
        *("messages", "messages_credits", "messages_nscc")
    }
    assert {one.value for one, found in kinds.items() if found.reordering == own.reordering} == {
        *("spray", "round_robin", "entropy", "messages", "messages_credits")
    }
    nscc = kinds[Spreading.MESSAGES_NSCC]
    assert (nscc.kind, nscc.messages.control, nscc.messages.timeout) == ("messages", Control.NSCC, 0.002)
    assert nscc.messages.paths > kinds[Spreading.MESSAGES].messages.paths == 1, "switches spray, or the sender does"


def test_where_no_uplink_fails_the_runs_own_failures_do() -> None:
    slow = config("failures=[{link: 'z0l00:3', at: 0 s, rate: 0.5}]")
    assert slow.failing(FABRIC, 0) is None
    schedule = config().failing(FABRIC, 1)
    assert schedule is not None
    (down,) = schedule.events
    assert down.state == LinkState(up=False)
    assert config().failing(FABRIC, 0) == FailureSchedule()
