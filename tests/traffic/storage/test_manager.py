from __future__ import annotations

import random

import pytest

from fabric.model.identity import NodeId, Role
from traffic.storage.chain_states import LocalState, PublicState
from traffic.storage.chains import Chain, ChainTable, place_chains
from traffic.storage.history import chain_faults
from traffic.storage.managers.manager import ClusterManager, TargetReport
from traffic.storage.service.membership import Membership, public_state

NODES = [NodeId(Role.STORAGE, None, index) for index in range(4)]
UP, ON, OFF = LocalState
S, L, Y, W, O = PublicState  # noqa: E741 - serving, lastsrv, syncing, waiting, offline


def table_of(replicas: int = 3, nodes: int = 3) -> ChainTable:
    return place_chains(NODES[:nodes], 1, replicas, replicas)


def reports(table: ChainTable, local: LocalState = UP) -> list[TargetReport]:
    return [TargetReport(chain.number, local, chain.version) for chain in table.chains]


def test_a_service_that_is_silent_has_failed_after_its_time_at_the_next_check() -> None:
    table = table_of()
    manager = ClusterManager(table, failed_after_s=60, checked_every_s=10, now_s=0)
    for second in range(200):
        for node in NODES[:2]:
            if second % 10 == 0:
                assert manager.heartbeat(node, second, reports(manager.table), second)
        if (change := manager.look(second)) is not None:
            break
    assert second == 70, "heard at 0, checked at 60 and 70"
    assert change is not None
    assert len(change.chains) == 3
    assert {chain.nodes for chain in change.chains} <= {(NODES[0], NODES[1]), (NODES[1], NODES[0])}
    assert (change.version, manager.version) == (2, 2)


def test_old_heartbeats_and_what_is_said_by_an_old_chain_are_not_heard() -> None:
    manager = ClusterManager(table_of(), 60, 10, 0)
    first = manager.table
    assert manager.heartbeat(NODES[0], 5, reports(first, OFF), 1)
    assert not manager.heartbeat(NODES[0], 5, reports(first, UP), 2)
    assert not manager.heartbeat(NODES[3], 1, [], 2), "it has no target"
    manager.look(2)
    assert all(NODES[0] not in chain.nodes for chain in manager.table.chains)
    assert manager.heartbeat(NODES[0], 6, reports(first, UP), 3)
    assert manager.look(3) is None, "it does not know of the new chains yet"
    assert manager.heartbeat(NODES[0], 7, reports(manager.table, ON), 4)
    manager.look(4)
    assert all(chain.syncing is not None and chain.syncing.node == NODES[0] for chain in manager.table.chains)


def test_the_routing_is_told_from_a_version_on() -> None:
    first = table_of()
    manager = ClusterManager(first, 60, 10, 0)
    manager.heartbeat(NODES[0], 1, [TargetReport(1, OFF, 1)], 1)
    change = manager.look(1)
    assert change is not None
    assert [chain.number for chain in change.chains] == [1]
    assert manager.since(1) == change
    assert manager.since(2).chains == ()
    assert first.changed_by(change) == manager.table


def test_a_chain_whose_targets_are_all_down_is_awaited_not_lost() -> None:
    manager = ClusterManager(table_of(), 60, 10, 0)
    manager.look(100)
    assert all(chain.is_awaited and not chain.is_lost and not chain.targets for chain in manager.table.chains)


def test_public_states_are_told_by_the_routing() -> None:
    targets = table_of().chains[0].targets
    chain = Chain(0, targets[:1], 3, targets[1], targets[2:3])
    states = {public_state(chain, target.node) for target in targets}
    assert states == {S, Y, W}
    assert public_state(chain, NODES[3]) is O


def test_a_service_that_was_forgotten_begins_anew_and_joins_once_nobody_counts_on_it() -> None:
    table = table_of()
    service = Membership(NODES[0], table, 0, restart_s=5, fence_after_s=None)
    assert service.next_heartbeat(table) == (1, [TargetReport(n, UP, 1) for n in range(3)])
    one_gone = ChainTable(2, (table.chains[0].without_node(NODES[0]), *table.chains[1:]))
    service.see(one_gone, 100)
    assert service.restarts == 1
    assert {report.local for report in service.next_heartbeat(one_gone)[1]} == {OFF}
    assert not service.may_answer(101)
    service.see(one_gone, 110)
    assert {report.local for report in service.next_heartbeat(one_gone)[1]} == {OFF}, "others still count on it"
    all_gone = one_gone.without_node(NODES[0])
    service.see(all_gone, 111)
    assert {report.local for report in service.next_heartbeat(all_gone)[1]} == {ON}
    assert service.may_answer(111)
    service.is_up_to_date(1)
    assert [report.local for report in service.next_heartbeat(all_gone)[1]] == [ON, UP, ON]


def test_a_fenced_service_answers_nothing_until_it_is_heard_again() -> None:
    service = Membership(NODES[0], table_of(), 0, 5, fence_after_s=30)
    assert service.may_answer(30)
    assert not service.may_answer(30.1)
    service.heard(sent_s=20)
    assert service.may_answer(50)
    service.heard(sent_s=10)
    assert not service.may_answer(50.1)
    assert Membership(NODES[0], table_of(), 0, 5, None).may_answer(1e9)


def test_a_service_that_was_fenced_answers_only_once_it_has_asked_for_the_routing_since() -> None:
    """Heard again, it does not know whether others were told that it is out of its chains."""
    table = table_of()
    service = Membership(NODES[0], table, 0, 5, fence_after_s=30)
    service.heard(20, 21)
    assert service.may_answer(25)
    service.heard(100, 101)
    assert not service.may_answer(102)
    service.see(table, 103, asked_s=100.5)
    assert service.must_see, "asked before it was heard: its chains may have changed in between"
    service.heard(110, 111)
    assert not service.may_answer(112)
    service.see(table, 113, asked_s=112)
    assert service.may_answer(113)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_chains_stay_sound_and_all_serve_in_the_end(seed: int) -> None:
    """Services that fall silent, one by one and together, with heartbeats and routings every 10 s."""
    rng = random.Random(seed)
    table = table_of(3, 4)
    manager = ClusterManager(table, 60, 10, 0)
    services = {node: Membership(node, table, 0, 5, 30) for node in NODES}
    tables = dict.fromkeys(NODES, table)
    silent_until = dict.fromkeys(NODES, 0.0)
    for second in range(1, 3000):
        if second < 2000 and second % 50 == 0 and rng.random() < 0.5:
            silent_until[rng.choice(NODES)] = second + rng.choice([20, 80, 200])
        for place, (node, service) in enumerate(services.items()):
            if (second + place) % 10 == 0 and second >= silent_until[node]:
                number, said = service.next_heartbeat(tables[node])
                manager.heartbeat(node, number, said, second)
                service.heard(second)
                tables[node] = tables[node].changed_by(manager.since(tables[node].version))
                service.see(tables[node], second)
            for chain in tables[node].chains:
                if public_state(chain, node) is Y and rng.random() < 0.1:
                    service.is_up_to_date(chain.number)
        manager.look(second)
        serving = {node for node, service in services.items() if service.may_answer(second)}
        for chain in manager.table.chains:
            # Who answers and is not in the chain any more is fenced, or was told.
            wrong = [n for n in serving if n in tables[n].chains[chain.number].nodes and n not in chain.nodes]
            assert not wrong, (second, chain)
    for number in range(len(table.chains)):
        assert chain_faults([one.chain for one in manager.history if one.chain.number == number]) == []
    assert all(len(chain.nodes) == 3 for chain in manager.table.chains)
    assert manager.version > 1
