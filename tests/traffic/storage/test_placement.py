from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from fabric.model.identity import NodeId, Role
from traffic.storage.chains import Chain, ChainTable, Target, place_chains
from traffic.storage.placement import TargetOrder, in_order, recoveries, worst_recovery


def nodes(count: int) -> list[NodeId]:
    return [NodeId(Role.STORAGE, None, index) for index in range(count)]


def complete_design(count: int, replicas: int) -> ChainTable:
    """Return a chain for every set of ``replicas`` nodes: the most even design there is."""
    blocks = itertools.combinations(nodes(count), replicas)
    return ChainTable(1, tuple(Chain(n, tuple(Target(node, 0) for node in block)) for n, block in enumerate(blocks)))


def sent(table: ChainTable, node: int) -> list[int]:
    found = recoveries(table)[nodes(node + 1)[node]]
    return [found.sent[peer] for peer in found.peers]


def test_3fs_readme_example_promises_one_and_a_half_each_and_the_shipped_order_sends_0_to_3() -> None:
    """Its `data_placement` prints 1.5 for each of 20 pairs; chains as `gen_chain_table` lists them."""
    table = in_order(place_chains(nodes(5), 1, 6, 3), TargetOrder.BY_NODE)
    for node in nodes(5):
        assert set(recoveries(table)[node].promised.values()) == {1.5}
    assert sent(table, 0) == [0, 1, 2, 3]
    assert sent(table, 4) == [0, 1, 2, 3]
    assert sent(table, 2) == [0, 1, 2, 3]
    assert recoveries(table)[nodes(1)[0]].imbalance == 2


@pytest.mark.parametrize(("count", "replicas"), [(4, 2), (5, 3), (6, 3), (7, 4), (8, 2), (9, 3)])
def test_by_node_what_a_peer_sends_is_a_binomial_coefficient(count: int, replicas: int) -> None:
    """Of the sets with the node that returns and a peer, those in which the peer has the highest number of the others:
    the remaining ``replicas - 2`` are among the lower ones."""
    table = in_order(complete_design(count, replicas), TargetOrder.BY_NODE)
    for back in range(count):
        lower = [sum(other < peer and other != back for other in range(count)) for peer in range(count) if peer != back]
        assert sent(table, back) == [math.comb(below, replicas - 2) for below in lower]
        promised = recoveries(table)[nodes(count)[back]].promised
        share = math.comb(count - 2, replicas - 2) / (replicas - 1)
        assert list(promised.values()) == pytest.approx([share] * (count - 1))


@pytest.mark.parametrize("order", TargetOrder)
def test_an_order_changes_neither_the_design_nor_what_is_promised(order: TargetOrder) -> None:
    table = place_chains(nodes(9), 2, 4, 2)
    ordered = in_order(table, order, seed=3)
    assert [set(chain.targets) for chain in ordered.chains] == [set(chain.targets) for chain in table.chains]
    assert [(chain.number, chain.version) for chain in ordered.chains] == [(c.number, c.version) for c in table.chains]
    for node in nodes(9):
        before, after = recoveries(table)[node], recoveries(ordered)[node]
        assert before.promised == after.promised
        assert sum(after.sent.values()) == pytest.approx(sum(after.promised.values()))


def imbalances(table: ChainTable) -> dict[TargetOrder, float]:
    return {order: worst_recovery(in_order(table, order, seed=1)).imbalance for order in TargetOrder}


def test_on_few_nodes_shuffling_evens_out_what_the_shipped_order_skews() -> None:
    """3FS's README example: 5 nodes of 16 disks, 6 chains each, 3 replicas."""
    found = imbalances(place_chains(nodes(5), 16, 6, 3))
    print({order.value: round(value, 3) for order, value in found.items()})
    assert found[TargetOrder.BY_NODE] == 2
    assert found[TargetOrder.SHUFFLED] < 1.5
    assert found[TargetOrder.EVEN_SENDERS] < 1.1


def test_at_the_papers_size_only_a_chosen_order_has_no_peer_send_two_chains() -> None:
    """180 nodes of 16 disks, 6 chains each, 3 replicas: 96 chains a node over 179 peers; pairs share two at most."""
    found = imbalances(place_chains(nodes(180), 16, 6, 3))
    print({order.value: round(value, 2) for order, value in found.items()})
    assert found[TargetOrder.EVEN_SENDERS] == pytest.approx(179 / 96)  # One chain, to a mean of 96 / 179.
    assert found[TargetOrder.BY_NODE] == found[TargetOrder.SHUFFLED] == pytest.approx(2 * 179 / 96)


def test_with_two_replicas_the_sender_is_forced() -> None:
    table = place_chains(nodes(180), 16, 6, 2)
    of_each = {order: recoveries(in_order(table, order, seed=1))[nodes(1)[0]].sent for order in TargetOrder}
    assert len(set(map(str, of_each.values()))) == 1
    by_node, shuffled = (in_order(table, order) for order in (TargetOrder.BY_NODE, TargetOrder.SHUFFLED))
    heads = [Counter(chain.head.node for chain in one.chains) for one in (by_node, shuffled)]
    assert heads[0][nodes(1)[0]] == 96, "the first node is the head of all its chains"
    assert heads[0][nodes(180)[-1]] == 0
    assert 20 < min(heads[1].values()) <= max(heads[1].values()) < 76


def test_greedy_senders_are_even_where_the_numbers_allow() -> None:
    assert sorted(sent(in_order(place_chains(nodes(5), 1, 6, 3), TargetOrder.EVEN_SENDERS), 0)) == [1, 1, 2, 2]
    whole = in_order(place_chains(nodes(5), 2, 6, 3), TargetOrder.EVEN_SENDERS)
    assert worst_recovery(whole).imbalance <= 4 / 3


def test_shuffling_is_by_the_seed_and_the_chain() -> None:
    table = place_chains(nodes(6), 1, 6, 3)
    once = in_order(table, TargetOrder.SHUFFLED, seed=5)
    assert once == in_order(table, TargetOrder.SHUFFLED, seed=5)
    assert once != in_order(table, TargetOrder.SHUFFLED, seed=6)
    assert len({tuple(table.chains[n].targets.index(t) for t in once.chains[n].targets) for n in range(12)}) > 2


def test_chains_of_one_target_have_nobody_to_send() -> None:
    table = in_order(place_chains(nodes(3), 1, 2, 1), TargetOrder.EVEN_SENDERS)
    found = recoveries(table)[nodes(1)[0]]
    assert set(found.sent.values()) == {0}
    assert math.isnan(found.imbalance)
