from __future__ import annotations

import itertools
import math
import pickle
import time
from collections import Counter

import pytest

from fabric.errors import ConfigError
from fabric.model.identity import NodeId, Role
from traffic.storage.chains import ChainTable, ChunkId, FileLayout, Striping, Target, extents_on, place_chains
from traffic.storage.orders import NewChains

SIZES = [
    # nodes, disks, chains a target, replicas
    (2, 1, 1, 2),
    (4, 4, 6, 2),
    (4, 3, 3, 2),
    (5, 1, 6, 3),
    (6, 2, 5, 2),
    (7, 1, 3, 3),
    (9, 2, 4, 2),
    (12, 4, 11, 2),
    (6, 1, 4, 3),
]


def nodes(count: int) -> list[NodeId]:
    return [NodeId(Role.STORAGE, None, index) for index in range(count)]


def table_of(count: int, disks: int, chains: int, replicas: int) -> ChainTable:
    return place_chains(nodes(count), disks, chains, replicas)


def chains_of_target(table: ChainTable) -> Counter[Target]:
    """Return how many chains each target serves."""
    return Counter(target for chain in table.chains for target in chain.targets)


def chains_of_pair(table: ChainTable) -> Counter[frozenset[NodeId]]:
    """Return how many chains each pair of nodes shares: what one takes over when the other dies."""
    return Counter(frozenset(pair) for chain in table.chains for pair in itertools.combinations(chain.nodes, 2))


@pytest.mark.parametrize("size", SIZES)
def test_every_target_serves_equally_many_chains(size: tuple[int, int, int, int]) -> None:
    count, disks, chains, replicas = size
    table = table_of(*size)
    assert len(table.chains) == count * disks * chains // replicas
    served = chains_of_target(table)
    assert len(served) == count * disks
    assert set(served.values()) == {chains}


@pytest.mark.parametrize("size", SIZES)
def test_targets_of_a_chain_are_on_different_nodes(size: tuple[int, int, int, int]) -> None:
    for chain in table_of(*size).chains:
        assert len(set(chain.nodes)) == len(chain.targets) == size[3]


@pytest.mark.parametrize("size", SIZES)
def test_pairs_of_nodes_share_as_equally_many_chains_as_the_numbers_allow(size: tuple[int, int, int, int]) -> None:
    count, disks, chains, replicas = size
    shared = chains_of_pair(table_of(*size))
    mean = disks * chains * (replicas - 1) / (count - 1)
    pairs = [shared[frozenset((a, b))] for a in nodes(count) for b in nodes(count) if a < b]
    # A rotation of a block of an even number of nodes may cover half of them twice, so one above the ceiling.
    assert max(pairs) <= math.ceil(mean) + (0 if mean.is_integer() else 1)
    if mean.is_integer():
        assert set(pairs) == {int(mean)}


@pytest.mark.parametrize("size", [*SIZES, (6, 1, 5, 3)])
def test_heads_are_spread_evenly(size: tuple[int, int, int, int]) -> None:
    heads = Counter(chain.head.node for chain in table_of(*size).chains)
    assert max(heads.values()) - min(heads[node] for node in nodes(size[0])) <= 1


def test_3fs_readme_example_gives_each_peer_one_and_a_half_units_of_a_dead_nodes_reads() -> None:
    table = table_of(5, 1, 6, 3)
    assert len(table.chains) == 10
    for dead in nodes(5):
        takers: Counter[NodeId] = Counter()
        for chain in table.chains:
            if dead in chain.nodes:
                for node in set(chain.nodes) - {dead}:
                    takers[node] += 1
        assert {count / 2 for count in takers.values()} == {1.5}


def test_reads_of_a_dead_node_of_the_small_fabric_go_evenly_to_all_others() -> None:
    table = table_of(4, 4, 6, 2)
    for dead in nodes(4):
        takers = Counter(node for chain in table.chains if dead in chain.nodes for node in chain.nodes if node != dead)
        assert set(takers.values()) == {8}


def test_production_size_is_placed_quickly_and_evenly() -> None:
    table = table_of(180, 16, 6, 2)
    assert len(table.chains) == 180 * 16 * 6 // 2
    assert max(chains_of_pair(table).values()) <= 2


@pytest.mark.parametrize(("size", "most"), [((127, 1, 35, 5), 2), ((64, 4, 16, 4), 4)])
def test_blocks_that_are_too_many_to_look_at_are_grown(size: tuple[int, int, int, int], most: int) -> None:
    """127 nodes with five replicas are where 3FS's solver gives up."""
    count, disks, chains, replicas = size
    assert most == math.ceil(disks * chains * (replicas - 1) / (count - 1))
    table = table_of(*size)
    assert set(chains_of_target(table).values()) == {chains}
    assert max(chains_of_pair(table).values()) <= most


@pytest.mark.parametrize(
    ("size", "fault"),
    [
        ((1, 4, 6, 2), "replicas 2 exceed the 1 storage nodes"),
        ((5, 1, 3, 2), "3 chains per node .* make it a multiple of 2"),
    ],
)
def test_numbers_that_cannot_be_divided_are_named(size: tuple[int, int, int, int], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        table_of(*size)


def test_a_death_changes_the_version_of_its_own_chains_only_and_little_is_said_of_it() -> None:
    """180 nodes of 16 disks, as Fire-Flyer 2 has."""
    nodes = [NodeId(Role.STORAGE, None, index) for index in range(180)]
    table = place_chains(nodes, 16, 6, 2)
    dead = nodes[17]
    after = table.without_node(dead)
    started = time.process_time()
    change = after.change_from(table)
    word = NewChains.of(change)
    assert {chain.number for chain in change.chains} == {c.number for c in table.chains if dead in c.nodes}
    assert len(change.chains) == 16 * 6
    assert all(chain.version == 2 for chain in change.chains)
    assert table.changed_by(word.change) == after
    taken_s = time.process_time() - started
    print(
        f"{len(word.pickled)} B of {len(pickle.dumps(table))} B, {taken_s * 1000:.1f} ms to make, send and take it in"
    )
    assert len(word.pickled) < len(pickle.dumps(table)) / 50
    assert after.changed_by(change) is not after
    assert after.news_in(change) == ()


def test_changes_may_come_in_any_order_and_twice() -> None:
    nodes = [NodeId(Role.STORAGE, None, index) for index in range(4)]
    first = place_chains(nodes, 2, 6, 3)
    second = first.without_node(nodes[1])
    third = second.without_node(nodes[3])
    changes = [second.change_from(first), third.change_from(second)]
    for order in (changes, changes[::-1], [changes[1], *changes]):
        table = first
        for change in order:
            table = table.changed_by(change)
        assert table == third


def test_without_node_keeps_the_order_of_the_others_and_counts_the_version() -> None:
    table = table_of(5, 1, 6, 3)
    dead = table.chains[0].head.node
    following = table.without_node(dead)
    assert following.version == table.version + 1
    assert following.chains[0].targets == table.chains[0].targets[1:]
    for before, after in zip(table.chains, following.chains, strict=True):
        assert after.targets == tuple(target for target in before.targets if target.node != dead)
    assert not following.lost


def test_a_chain_whose_last_target_is_gone_is_lost() -> None:
    table = table_of(4, 4, 6, 2)
    a, b = table.chains[0].nodes
    gone = table.without_node(a).without_node(b)
    assert gone.chains[0].is_lost
    assert len(gone.lost) == chains_of_pair(table)[frozenset((a, b))]


def test_successors_run_from_head_to_tail() -> None:
    chain = table_of(5, 1, 6, 3).chains[3]
    assert [chain.successor_of(node) for node in chain.nodes] == [chain.nodes[1], chain.nodes[2], None]


def layout(size_bytes: int = 1000, chunk_bytes: int = 64, stripe: int = 8, file: int = 3, seed: int = 1) -> FileLayout:
    return Striping(chunk_bytes, stripe, chains=48, seed=seed).layout(file, size_bytes)


def test_a_file_is_striped_over_consecutive_chains_shuffled() -> None:
    chains = layout().chains
    start = next(start for start in range(48) if {(start + k) % 48 for k in range(8)} == set(chains))
    assert chains != tuple((start + k) % 48 for k in range(8))
    assert [layout().chain_of(index) for index in range(16)] == [*chains, *chains]


def test_following_files_use_all_chains_evenly() -> None:
    used = Counter(chain for file in range(6) for chain in layout(file=file).chains)
    assert used == Counter(range(48))


def test_layout_depends_on_the_seed_and_on_nothing_else() -> None:
    assert layout(seed=1) == layout(seed=1)
    assert layout(seed=1).chains != layout(seed=2).chains


def test_the_last_chunk_is_shorter() -> None:
    sizes = [extent.length for extent in layout(1000, 64).extents()]
    assert sizes == [64] * 15 + [40]


def test_locate_cuts_a_range_at_chunk_borders() -> None:
    found = layout(1000, 64).locate(60, 100)
    assert [(e.chunk, e.offset, e.length) for e in found] == [
        (ChunkId(3, 0), 60, 4),
        (ChunkId(3, 1), 0, 64),
        (ChunkId(3, 2), 0, 32),
    ]
    assert [e.chain for e in found] == list(layout().chains[:3])


@pytest.mark.parametrize(("offset", "length"), [(-1, 5), (0, 0), (990, 11)])
def test_locate_refuses_what_is_outside_the_file(offset: int, length: int) -> None:
    with pytest.raises(ValueError, match="outside its 1000"):
        layout(1000).locate(offset, length)


def test_every_chunk_of_a_file_is_on_as_many_nodes_as_replicas() -> None:
    table = table_of(4, 4, 6, 2)
    held = Counter(extent.chunk for node in nodes(4) for extent in extents_on(node, table, [layout(6400, 64)]))
    assert len(held) == 100
    assert set(held.values()) == {2}
