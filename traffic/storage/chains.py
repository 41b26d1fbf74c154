"""Where chunks live: targets, chains, the versioned table of chains, and the layout of a file over them. Pure.

A *target* is a disk of a storage node. A *chain* is an ordered set of targets on different nodes, head first, that
hold the same chunks. A *file* is cut into chunks of equal size; chunk ``i`` lives on ``chains[i mod stripe]`` of the
file's layout (3FS design notes, "Location of file chunks").
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fabric.errors import ConfigError
from fabric.model.identity import NodeId

_MOST_BLOCKS = 20_000
"""Up to so many blocks of nodes all are looked at for the best."""


@dataclass(frozen=True, order=True)
class Target:
    """A disk of a storage node; one replica of a chain's chunks lives on it."""

    node: NodeId
    disk: int

    def __str__(self) -> str:
        return f"{self.node}/{self.disk}"


@dataclass(frozen=True)
class Chain:
    """Targets in the order that writes travel: the head takes writes, any target serves reads.

    ``version`` counts the chain's own changes, as 3FS's does: a death disturbs nobody on chains without the dead node.
    ``syncing``: a target that has come back and is brought up to date; writes pass it last, and it serves no reads.
    ``waiting``: others that have come back. ``is_awaited``: no target serves, but the last that did may come back.
    """

    number: int
    targets: tuple[Target, ...]
    version: int = 1
    syncing: Target | None = None
    waiting: tuple[Target, ...] = ()
    is_awaited: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether the last target is gone, and the chunks with it."""
        return not self.targets and not self.is_awaited

    @property
    def head(self) -> Target:
        """The target that takes writes. Raises IndexError if the chain is lost."""
        return self.targets[0]

    @cached_property
    def nodes(self) -> tuple[NodeId, ...]:
        """The nodes of the targets, head first."""
        return tuple(target.node for target in self.targets)

    @cached_property
    def written(self) -> tuple[NodeId, ...]:
        """The nodes that a write passes, head first."""
        return self.nodes if self.syncing is None else (*self.nodes, self.syncing.node)

    def target_on(self, node: NodeId) -> Target | None:
        """Return the target on ``node``, or None if the chain has none there that takes writes."""
        syncing = () if self.syncing is None else (self.syncing,)
        return next((target for target in (*self.targets, *syncing) if target.node == node), None)

    def successor_of(self, node: NodeId) -> NodeId | None:
        """Return the node that follows ``node``; None at the tail. Raises ValueError if ``node`` is not in it."""
        place = self.written.index(node) + 1
        return self.written[place] if place < len(self.written) else None

    def without_node(self, node: NodeId) -> Chain:
        """Return the chain as it is once ``node`` is gone; the order of the others stays."""
        if node not in self.nodes:
            return self
        left = tuple(target for target in self.targets if target.node != node)
        return Chain(self.number, left, self.version + 1)

    def __str__(self) -> str:
        return f"chain {self.number} ({' -> '.join(map(str, self.targets)) or 'lost'})"


@dataclass(frozen=True)
class TableChange:
    """What changes from one chain table to a newer one: its version, and the chains that differ."""

    version: int
    chains: tuple[Chain, ...]


@dataclass(frozen=True)
class ChainTable:
    """All chains. ``version`` counts the table's changes. The order of targets that go on serving never changes."""

    version: int
    chains: tuple[Chain, ...]

    def without_node(self, node: NodeId) -> ChainTable:
        """Return the next version, in which no chain has a target on ``node``."""
        return ChainTable(self.version + 1, tuple(chain.without_node(node) for chain in self.chains))

    def change_from(self, older: ChainTable) -> TableChange:
        """Return what :meth:`changed_by` makes this table of an older one with."""
        differing = (new for new, old in zip(self.chains, older.chains, strict=True) if new.version > old.version)
        return TableChange(self.version, tuple(differing))

    def news_in(self, change: TableChange) -> tuple[Chain, ...]:
        """Return the chains of ``change`` that are newer than the same ones here."""
        return tuple(chain for chain in change.chains if chain.version > self.chains[chain.number].version)

    def changed_by(self, change: TableChange) -> ChainTable:
        """Return this table with the chains of ``change`` that are newer than its own."""
        newer = {chain.number: chain for chain in self.news_in(change)}
        chains = tuple(newer.get(chain.number, chain) for chain in self.chains) if newer else self.chains
        return ChainTable(max(self.version, change.version), chains)

    @property
    def lost(self) -> tuple[Chain, ...]:
        """The chains whose last target is gone."""
        return tuple(chain for chain in self.chains if chain.is_lost)


def place_chains(nodes: Sequence[NodeId], disks_per_node: int, chains_per_target: int, replicas: int) -> ChainTable:
    """Return the first chain table of a cluster: ``nodes x disks_per_node x chains_per_target / replicas`` chains.

    Every target serves exactly ``chains_per_target`` chains, heads are spread evenly, and each pair of nodes shares as
    equally many chains as the numbers allow (a balanced incomplete block design where one exists), so that a dead
    node's reads are taken over evenly by all others (3FS design notes, "Balanced traffic during recovery"). Built by
    rotating blocks of nodes, as cyclic designs are; the next block is the one whose pairs are the rarest so far.

    Raises ConfigError if the numbers cannot be divided so.
    """
    faults = list(_placement_faults(len(nodes), disks_per_node * chains_per_target, replicas))
    if faults:
        raise ConfigError("chain table", faults)
    disks: Counter[NodeId] = Counter()
    heads: Counter[NodeId] = Counter()
    chains = []
    for number, block in enumerate(_blocks(len(nodes), disks_per_node * chains_per_target, replicas)):
        members = [nodes[place] for place in block]
        first = min(members, key=lambda node: heads[node])
        heads[first] += 1
        ordered = [first, *(node for node in members if node != first)]
        chains.append(Chain(number, tuple(_next_target(node, disks, disks_per_node) for node in ordered)))
    return ChainTable(1, tuple(chains))


def _placement_faults(nodes: int, chains_per_node: int, replicas: int) -> Iterator[str]:
    if replicas > nodes:
        yield f"replicas {replicas} exceed the {nodes} storage nodes; use at most {nodes}"
    elif chains_per_node % replicas and nodes % replicas:
        yield (
            f"{chains_per_node} chains per node (disks_per_node x chains_per_target) on {nodes} nodes cannot be cut "
            f"into chains of {replicas} replicas; make it a multiple of {replicas}"
        )


def _next_target(node: NodeId, disks: Counter[NodeId], disks_per_node: int) -> Target:
    disk = disks[node] % disks_per_node
    disks[node] += 1
    return Target(node, disk)


def _blocks(nodes: int, chains_per_node: int, replicas: int) -> Iterator[tuple[int, ...]]:
    """Yield the places of each chain's nodes.

    A block and its rotations put ``replicas`` chains on every node; the short orbit of evenly spaced places puts one.
    """
    shared: Counter[int] = Counter()  # Chains shared by places that far apart, taken both ways round.
    for _ in range(chains_per_node % replicas):
        evenly = tuple(range(0, nodes, nodes // replicas))
        shared.update(_distances(evenly, nodes, full_orbit=False))
        yield from (tuple((place + turn) % nodes for place in evenly) for turn in range(nodes // replicas))
    is_few = math.comb(nodes - 1, replicas - 1) <= _MOST_BLOCKS
    candidates = [(0, *rest) for rest in itertools.combinations(range(1, nodes), replicas - 1)] if is_few else []
    for _ in range(chains_per_node // replicas):
        if candidates:
            block = min(candidates, key=lambda block: _crowding(block, nodes, shared))
        else:
            block = _grown_block(nodes, replicas, shared)
        shared.update(_distances(block, nodes))
        yield from (tuple((place + turn) % nodes for place in block) for turn in range(nodes))


def _grown_block(nodes: int, replicas: int, shared: Counter[int]) -> tuple[int, ...]:
    """Return a block whose pairs are rare so far, place by place: 127 nodes have ten million blocks of five."""
    block: tuple[int, ...] = (0,)
    while len(block) < replicas:
        others = (place for place in range(1, nodes) if place not in block)
        block = min(((*block, place) for place in others), key=lambda grown: _crowding(grown, nodes, shared))
    return tuple(sorted(block))


def _distances(block: Sequence[int], nodes: int, full_orbit: bool = True) -> Counter[int]:
    """Return how often a block's rotations bring together two places ``distance`` apart, for each distance."""
    counts: Counter[int] = Counter()
    for a, b in itertools.permutations(block, 2):
        counts[(a - b) % nodes] += 1
    return counts if full_orbit else Counter(dict.fromkeys(counts, 1))


def _crowding(block: Sequence[int], nodes: int, shared: Counter[int]) -> tuple[int, int]:
    added = _distances(block, nodes)
    after = [shared[distance] + count for distance, count in added.items()]
    growth = sum((shared[distance] + count) ** 2 - shared[distance] ** 2 for distance, count in added.items())
    return growth, max(after, default=0)


@dataclass(frozen=True, order=True)
class ChunkId:
    """A chunk: its file and its place in it."""

    file: int
    index: int

    def __str__(self) -> str:
        return f"chunk {self.index} of file {self.file}"


class Extent(NamedTuple):
    """A stretch of one chunk, and the chain that the chunk lives on."""

    chunk: ChunkId
    chain: int
    offset: int
    length: int


class ChunkPlace(NamedTuple):
    """A chunk and the chain that it lives on."""

    chunk: ChunkId
    chain: int

    def extent(self, offset: int, length: int) -> Extent:
        """Return a stretch of it."""
        return Extent(self.chunk, self.chain, offset, length)


@dataclass(frozen=True)
class FileLayout:
    """Where a file's chunks live: chunk ``i`` on ``chains[i mod len(chains)]``. The last chunk may be shorter."""

    file: int
    size_bytes: int
    chunk_bytes: int
    chains: tuple[int, ...]

    @property
    def chunks(self) -> int:
        """How many chunks the file has."""
        return -(-self.size_bytes // self.chunk_bytes)

    def chain_of(self, index: int) -> int:
        """Return the chain of chunk ``index``."""
        return self.chains[index % len(self.chains)]

    def chunk_size(self, index: int) -> int:
        """Return the size of chunk ``index``, bytes."""
        return min(self.chunk_bytes, self.size_bytes - index * self.chunk_bytes)

    def place(self, index: int) -> ChunkPlace:
        """Return chunk ``index`` and its chain."""
        return ChunkPlace(ChunkId(self.file, index), self.chain_of(index))

    def extent(self, index: int) -> Extent:
        """Return the whole of chunk ``index``."""
        return Extent(ChunkId(self.file, index), self.chain_of(index), 0, self.chunk_size(index))

    def extents(self) -> Iterator[Extent]:
        """Yield every chunk, whole."""
        return map(self.extent, range(self.chunks))

    def locate(self, offset: int, length: int) -> list[Extent]:
        """Return the stretches of chunks that hold ``length`` bytes at ``offset``. Raises ValueError past the end."""
        if offset < 0 or length < 1 or offset + length > self.size_bytes:
            raise ValueError(f"file {self.file}: bytes {offset}..{offset + length} are outside its {self.size_bytes}")
        found = []
        while length:
            index, within = divmod(offset, self.chunk_bytes)
            taken = min(length, self.chunk_bytes - within)
            found.append(Extent(ChunkId(self.file, index), self.chain_of(index), within, taken))
            offset, length = offset + taken, length - taken
        return found


@dataclass(frozen=True)
class Striping:
    """How files are laid over a table of ``chains`` chains: chunk size and stripe, and the seed of the choices."""

    chunk_bytes: int
    stripe: int
    chains: int
    seed: int

    def layout(self, file: int, size_bytes: int) -> FileLayout:
        """Return the layout of a file: ``stripe`` consecutive chains, shuffled.

        Files start one stripe after the other, the first at a seeded chain (3FS: ``ChainAllocator``, a round-robin with
        a random start), so that files whose numbers follow each other use all chains evenly.
        """
        start = random.Random(self.seed).randrange(self.chains) + file * self.stripe
        chains = [(start + place) % self.chains for place in range(self.stripe)]
        random.Random(f"{self.seed}/{file}").shuffle(chains)
        return FileLayout(file, size_bytes, self.chunk_bytes, tuple(chains))


def extents_on(node: NodeId, table: ChainTable, files: Iterable[FileLayout]) -> Iterator[Extent]:
    """Yield the chunks of ``files`` of which ``node`` holds a replica."""
    for layout in files:
        for extent in layout.extents():
            if node in table.chains[extent.chain].nodes:
                yield extent
