"""Which experts tokens take, and how many tokens go where for that.

A token takes the ``top`` experts with the highest scores, of the ``top_groups`` groups with the highest scores
(DeepSeek-V3, section 2.1.2). Scores are between 0 and 1, as its sigmoid gives them, here random and uniform.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
UNIFORM_DEVIATION = 12**-0.5
"""Standard deviation of numbers that are uniform between 0 and 1."""
FP8_BLOCK = 128
"""Numbers in FP8 that share a scale of 4 bytes."""


def token_bytes(hidden: int, dtype: str) -> int:
    """Return the bytes of a token's vector: FP8 with its scales, or BF16."""
    return hidden + -(-hidden // FP8_BLOCK) * 4 if dtype == "fp8" else 2 * hidden


@dataclass(frozen=True)
class RoutingRule:
    """How a token's experts are chosen. ``best``: how many of a group's scores are added up to the group's."""

    experts: int
    top: int
    groups: int
    top_groups: int
    best: int = 2
    seed: int = 0
    skew: float = 0.0

    def chosen(self, rank: int, tokens: int) -> npt.NDArray[np.intp]:
        """Return the experts of a rank's tokens, as ``tokens`` rows of ``top``."""
        random = np.random.default_rng((self.seed, 1, rank))
        scores = random.random((tokens, self.experts), dtype=np.float32)
        if self.skew:
            liked = np.random.default_rng((self.seed, 0)).standard_normal(self.experts, dtype=np.float32)
            scores += np.float32(self.skew * UNIFORM_DEVIATION) * liked
        if self.top_groups < self.groups:
            grouped = scores.reshape(tokens, self.groups, -1)
            best = min(self.best, grouped.shape[2])
            highest = np.partition(grouped, -best, axis=2)[:, :, -best:].sum(axis=2)
            out = np.argpartition(highest, -self.top_groups, axis=1)[:, : -self.top_groups]
            np.put_along_axis(grouped, out[:, :, None], -np.inf, axis=1)
        return np.argpartition(scores, -self.top, axis=1)[:, -self.top :]


@dataclass(frozen=True)
class Routed:
    """Tokens by where they go. ``to_node[rank][node]``, ``to_rank[rank][rank]``: tokens with an expert there;
    ``copies[rank][rank]``: how many experts they have there. ``tokens``:
    those of all ranks."""

    to_node: Counts
    to_rank: Counts
    copies: Counts
    tokens: int

    @property
    def nodes_per_token(self) -> float:
        """Mean number of nodes that a token goes to, its own included if it has an expert there."""
        return float(self.to_node.sum() / self.tokens)


def route(rule: RoutingRule, ranks: int, ranks_per_node: int, tokens: int) -> Routed:
    """Return where ``tokens`` tokens of each of ``ranks`` ranks go, over which experts are spread in their order."""
    per_rank = rule.experts // ranks
    nodes = -(-ranks // ranks_per_node)
    to_node = np.zeros((ranks, nodes), dtype=np.int64)
    to_rank = np.zeros((ranks, ranks), dtype=np.int64)
    copies = np.zeros((ranks, ranks), dtype=np.int64)
    for rank in range(ranks):
        places = rule.chosen(rank, tokens) // per_rank
        copies[rank] = np.bincount(places.ravel(), minlength=ranks)
        to_rank[rank] = _distinct(places, ranks)
        to_node[rank] = _distinct(places // ranks_per_node, nodes)
    return Routed(to_node, to_rank, copies, ranks * tokens)


def _distinct(places: npt.NDArray[np.intp], count: int) -> Counts:
    """Return how many rows have each number at least once."""
    seen = np.zeros((len(places), count), dtype=bool)
    np.put_along_axis(seen, places, True, axis=1)
    found: Counts = seen.sum(axis=0)
    return found


def mean_nodes(experts: int, top: int, nodes: int) -> float:
    """Return the mean number of nodes that a token goes to if all experts are alike and no groups limit them:
    g (1 - C(E - E/g, k) / C(E, k))."""
    missed = 1.0
    for step in range(top):
        missed *= (experts - experts / nodes - step) / (experts - step)
    return nodes * (1 - missed)
