"""The trees over which HFReduce reduces and broadcasts: NCCL's double binary tree, and one that crosses zones once.

Both trees of a pair span all ranks and each carries half of the data, up (reduce) and down (broadcast). A rank so sends
half of the data for every edge that it has in either tree, and receives as much::

    sent by a rank = S/2 x (its edges in tree 1 + its edges in tree 2)

A single binary tree would leave half of the ranks with one edge and the inner ones with three; two trees in which each
rank is inner only once even that out to at most four edges: no rank sends more than 2S, so the ideal algbw is NIC/2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

Pair = tuple[int, int]
MAX_EDGES = 4
"""The edges of a rank over both trees with which it sends 2S."""


@dataclass(frozen=True)
class RankTree:
    """A rooted tree over ranks 0 to n-1. ``parent`` of the root is None."""

    parent: tuple[int | None, ...]

    @property
    def ranks(self) -> int:
        """How many ranks it spans."""
        return len(self.parent)

    @property
    def root(self) -> int:
        """The rank without a parent."""
        return self.parent.index(None)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of each rank, in order of rank."""
        found: list[list[int]] = [[] for _ in self.parent]
        for child, parent in self.edges():
            found[parent].append(child)
        return tuple(map(tuple, found))

    def edges(self) -> Iterator[Pair]:
        """Yield (child, parent) of every edge."""
        return ((child, parent) for child, parent in enumerate(self.parent) if parent is not None)

    def degree(self, rank: int) -> int:
        """Return how many edges a rank has."""
        return len(self.children[rank]) + (self.parent[rank] is not None)

    @cached_property
    def depth(self) -> int:
        """The edges between the root and the rank farthest from it."""
        return max(self._steps_to_root(rank) for rank in range(self.ranks))

    def _steps_to_root(self, rank: int) -> int:
        steps, above = 0, self.parent[rank]
        while above is not None:
            steps, above = steps + 1, self.parent[above]
        return steps


DoubleTree = tuple[RankTree, RankTree]


def double_binary_tree(ranks: int) -> DoubleTree:
    """Return NCCL's pair of trees (``ncclGetDtree``, NVIDIA/nccl ``src/graph/trees.cc``).

    Tree 1 is rooted at 0; tree 2 is its mirror image (even ``ranks``, root n-1) or the same shifted by one rank (odd,
    root 1). With even ``ranks`` no rank has children in both trees, with odd ``ranks`` at most one has. Raises
    ValueError below one rank.
    """
    first = _binary_tree(ranks)
    if ranks % 2 == 0:
        return first, _relabelled(first, lambda rank: ranks - 1 - rank)
    return first, _relabelled(first, lambda rank: (rank + 1) % ranks)


def double_tree_at_zero(ranks: int) -> DoubleTree:
    """Return a pair of trees both rooted at 0, which has one child in each; no other rank has children in both."""
    return _rooted_at_zero(ranks)


def from_the_root(tree: RankTree) -> list[Pair]:
    """Return (parent, child) of every edge, those nearer to the root first."""
    found: list[Pair] = []
    parents = [tree.root]
    while parents:
        level = [(parent, child) for parent in parents for child in tree.children[parent]]
        found += level
        parents = [child for _, child in level]
    return found


def zone_aware_double_tree(zones: Sequence[int]) -> DoubleTree:
    """Return a pair of trees in which one pair of ranks, over both trees, talks across each border between zones.

    ``zones`` is the zone of each rank; zones may have any size and order. Each zone has a pair of trees of its own with
    one rank, the gateway, as the root of both; gateways are joined, and the root of the whole is the first zone's. A
    gateway has one edge inside its zone and one across in either tree, so even it sends no more than 2S.

    Zones form a chain in order of their numbers, because no other shape keeps to 2S: the ``n`` ranks of a zone may have
    ``4n`` ends of edges, its own trees use ``4(n - 1)``, and the four that are left serve two borders in two trees. A
    zone inside the chain of three or more enters by one gateway and leaves by another. With a single zone the result is
    :func:`double_binary_tree`. Raises ValueError without ranks.
    """
    members = [[rank for rank, zone in enumerate(zones) if zone == name] for name in sorted(set(zones))]
    if len(members) <= 1:
        return double_binary_tree(len(zones))
    parents: tuple[list[int | None], list[int | None]] = ([None] * len(zones), [None] * len(zones))
    above: int | None = None
    for place, ranks in enumerate(members):
        is_middle = 0 < place < len(members) - 1
        for parent, tree in zip(parents, _gateway_trees(len(ranks), two_gateways=is_middle), strict=True):
            for rank, local in zip(ranks, tree.parent, strict=True):
                parent[rank] = above if local is None else ranks[local]
        above = ranks[-1] if is_middle else ranks[0]
    return RankTree(tuple(parents[0])), RankTree(tuple(parents[1]))


def sent_fractions(trees: DoubleTree) -> tuple[float, ...]:
    """Return what each rank sends in one allreduce, as a multiple of the size S; it receives as much."""
    return tuple(edges / 2 for edges in _total_degrees(trees))


def tree_flows(trees: DoubleTree) -> list[tuple[int, int, float]]:
    """Return (from rank, to rank, multiple of the size) of an allreduce: half of S up and half down every edge."""
    return [(a, b, 0.5) for tree in trees for edge in tree.edges() for a, b in (edge, edge[::-1])]


def _total_degrees(trees: DoubleTree) -> tuple[int, ...]:
    return tuple(sum(tree.degree(rank) for tree in trees) for rank in range(trees[0].ranks))


def _binary_tree(ranks: int) -> RankTree:
    if ranks < 1:
        raise ValueError(f"a tree of {ranks} ranks: has no root; give at least one rank")
    return RankTree((None, *(_binary_parent(rank, ranks) for rank in range(1, ranks))))


def _binary_parent(rank: int, ranks: int) -> int:
    """Return NCCL's parent: the lowest set bit cleared and the next one set, unless that is out of range."""
    lowest = rank & -rank
    above = (rank ^ lowest) | lowest << 1
    return above if above < ranks else rank ^ lowest


def _relabelled(tree: RankTree, name: Callable[[int], int]) -> RankTree:
    parent: list[int | None] = [None] * tree.ranks
    for child, above in tree.edges():
        parent[name(child)] = name(above)
    return RankTree(tuple(parent))


def _gateway_trees(ranks: int, two_gateways: bool) -> DoubleTree:
    """Return a pair of trees both rooted at 0, which has one edge in each; so has the last rank, if it is a gateway."""
    if not two_gateways or ranks <= 2:
        return _rooted_at_zero(ranks)
    first, second = _rooted_at_zero(ranks - 1)
    degrees = _total_degrees((first, second))
    room = [rank for rank in range(1, ranks - 1) for _ in range(MAX_EDGES - degrees[rank])]
    above_in_first = _inner_rank(first, room)
    room.remove(above_in_first)
    return _with_leaf(first, above_in_first), _with_leaf(second, _inner_rank(second, room))


def _rooted_at_zero(ranks: int) -> DoubleTree:
    """Return NCCL's tree 1 and another like it over the same root, whose other ranks are inner in one of the two only.

    In tree 1 the even ranks but 0 are inner. Mirroring ranks 1 to n-1 swaps even and odd if n is odd; shifting them by
    one, the last to 1, does so if n is even, since the last is then a leaf.
    """
    first = _binary_tree(ranks)
    if ranks <= 2:
        return first, first
    if ranks % 2:
        return first, _relabelled(first, lambda rank: ranks - rank if rank else 0)
    return first, _relabelled(first, lambda rank: rank % (ranks - 1) + 1 if rank else 0)


def _inner_rank(tree: RankTree, ranks: Sequence[int]) -> int:
    """Return the first of ``ranks`` that has children, else the first: few ranks are to be inner in both trees."""
    return next((rank for rank in ranks if tree.children[rank]), ranks[0])


def _with_leaf(tree: RankTree, parent: int) -> RankTree:
    return RankTree((*tree.parent, parent))
