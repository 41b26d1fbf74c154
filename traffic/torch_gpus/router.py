"""Which experts tokens take where a router's scores have no values: drawn, as jobs of kind ``training`` draw them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traffic.torch_gpus.variables import ROUTER, seed_and_skew
from traffic.work.generators.routing import RoutingRule


@dataclass(frozen=True)
class Router:
    """Draws by the number of the rank that asks, the same in each layer and step, so that recomputation agrees.
    ``skew``: as that of :class:`~traffic.work.generators.routing.RoutingRule`. Ranks are forked of a process that has a
    router already, so the number is read at each draw."""

    seed: int
    skew: float = 0.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Router | None:
        """Return the router; None if none was asked for. Raises UsageError."""
        if ROUTER not in environment:
            return None
        return cls(*seed_and_skew(environment[ROUTER]))

    def chosen(self, shape: Sequence[int], top: int) -> npt.NDArray[np.intp]:
        """Return the experts of tokens by their scores' shape, (..., experts), as (..., top)."""
        *rows, experts = shape
        rule = RoutingRule(experts, top, 1, 1, seed=self.seed, skew=self.skew)
        return np.ascontiguousarray(rule.chosen(int(os.environ.get("RANK", "0")), math.prod(rows))).reshape(*rows, top)
