"""The order of targets in chains, and what it makes of recovery. Pure.

:func:`traffic.storage.chains.place_chains` decides which nodes share a chain, as evenly as the numbers allow. When a
node returns, its targets stand last in their chains, and of each chain the last target that serves sends what it
lacks. 3FS's placement promises each peer an equal share of that: its part of the chains that it shares with the node.
But its generator (``gen_chain_table.py``) lists the targets of a chain in the order of the nodes' numbers, so that of
every chain the node with the highest number sends, and the first one never does. Reads are spread evenly all the same,
as any target serves them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from fabric.model.identity import NodeId
from traffic.storage.chains import Chain, ChainTable, Target


class TargetOrder(str, Enum):
    """How the targets of each chain are ordered."""

    EVEN_HEADS = "even_heads"
    """Heads are spread evenly; the others by the design."""
    BY_NODE = "by_node"
    """By the number of their nodes, as 3FS's generator lists them."""
    SHUFFLED = "shuffled"
    """At random, each chain by itself."""
    EVEN_SENDERS = "even_senders"
    """So that who sends to any one node that returns is spread as evenly as a greedy choice can."""


def in_order(table: ChainTable, order: TargetOrder, seed: int = 0) -> ChainTable:
    """Return a table with the targets of each chain ordered so. Versions stay: it is for a cluster that begins.

    ``seed`` decides how chains are shuffled, and nothing else.
    """
    arrange: dict[TargetOrder, Callable[[Sequence[Chain]], Iterator[tuple[Target, ...]]]] = {
        TargetOrder.EVEN_HEADS: lambda chains: (chain.targets for chain in chains),
        TargetOrder.BY_NODE: lambda chains: (tuple(sorted(chain.targets)) for chain in chains),
        TargetOrder.SHUFFLED: lambda chains: _shuffled(chains, seed),
        TargetOrder.EVEN_SENDERS: _with_even_senders,
    }
    ordered = zip(table.chains, arrange[order](table.chains), strict=True)
    return replace(table, chains=tuple(replace(chain, targets=targets) for chain, targets in ordered))


def _shuffled(chains: Sequence[Chain], seed: int) -> Iterator[tuple[Target, ...]]:
    for chain in chains:
        targets = sorted(chain.targets)
        random.Random(f"{seed}/{chain.number}").shuffle(targets)
        yield tuple(targets)


def _with_even_senders(chains: Sequence[Chain]) -> Iterator[tuple[Target, ...]]:
    """Yield each chain's targets, the two at its end chosen: the last sends to all others, the one before it to it."""
    sent: Counter[tuple[NodeId, NodeId]] = Counter()
    total: Counter[NodeId] = Counter()
    heads: Counter[NodeId] = Counter()

    for chain in chains:
        if len(chain.targets) < 2:
            yield chain.targets
            continue

        def cost(tail: Target, before: Target, targets: Sequence[Target] = chain.targets) -> tuple[int, int, int]:
            pairs = [*((tail.node, one.node) for one in targets if one != tail), (before.node, tail.node)]
            return sum(2 * sent[pair] + 1 for pair in pairs), total[tail.node], total[before.node]

        pairs = [(tail, before) for tail in chain.targets for before in chain.targets if before != tail]
        tail, before = min(pairs, key=lambda pair: (*cost(*pair), pair))
        others = sorted((one for one in chain.targets if one not in (tail, before)), key=lambda one: heads[one.node])
        for one in (before, *others):
            sent[tail.node, one.node] += 1
        sent[before.node, tail.node] += 1
        total[tail.node] += len(others) + 1
        total[before.node] += 1
        ordered = (*others, before, tail)
        heads[ordered[0].node] += 1
        yield ordered


@dataclass(frozen=True)
class Recovery:
    """Who sends what to a node that returns, in chains: one whole copy of a chain's chunks each.

    ``peers``: all other nodes, in order; ``chains``: the other nodes of each chain that the node is in, head first.
    """

    returning: NodeId
    peers: tuple[NodeId, ...]
    chains: tuple[tuple[NodeId, ...], ...]

    @cached_property
    def promised(self) -> dict[NodeId, float]:
        """What each peer sends if all that share a chain send equal parts of it, as 3FS's placement counts."""
        found = dict.fromkeys(self.peers, 0.0)
        for others in self.chains:
            for node in others:
                found[node] += 1 / len(others)
        return found

    @cached_property
    def sent(self) -> dict[NodeId, int]:
        """What each peer sends: of each chain the last target that serves sends all."""
        senders = Counter(others[-1] for others in self.chains if others)
        return {node: senders[node] for node in self.peers}

    @property
    def imbalance(self) -> float:
        """How much more the busiest peer sends than the mean one; 1 if all send the same. What takes so much longer
        where senders set the pace. NaN if nobody sends."""
        mean = sum(self.sent.values()) / len(self.sent) if self.sent else 0
        return max(self.sent.values()) / mean if mean else float("nan")


def recoveries(table: ChainTable) -> dict[NodeId, Recovery]:
    """Return, for each node of a table, who sends what when it returns."""
    chains: dict[NodeId, list[tuple[NodeId, ...]]] = {}
    for chain in table.chains:
        for node in chain.nodes:
            chains.setdefault(node, []).append(tuple(other for other in chain.nodes if other != node))
    nodes = sorted(chains)
    return {
        node: Recovery(node, tuple(other for other in nodes if other != node), tuple(chains[node])) for node in nodes
    }


def worst_recovery(table: ChainTable) -> Recovery:
    """Return the recovery of the node for which the peers' shares are the most uneven."""
    return max(recoveries(table).values(), key=lambda found: found.imbalance)
