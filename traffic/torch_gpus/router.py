"""Which experts tokens take where a router's scores have no values: drawn, as jobs of kind ``training`` draw them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traffic.torch_gpus.variables import ROUTER, seed_and_skew
from traffic.work.generators.routing import RoutingRule


@dataclass(frozen=True)
class Router:
    """What draws: by a rank's number, the same in each layer and step, so that what is recomputed agrees. ``skew``: as
    that of :class:`~traffic.work.generators.routing.RoutingRule`."""

    seed: int
    skew: float = 0.0
    rank: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Router | None:
        """Return the router of a rank; None if none was asked for. Raises UsageError."""
        if ROUTER not in environment:
            return None
        seed, skew = seed_and_skew(environment[ROUTER])
        return cls(seed, skew, int(environment.get("RANK", "0")))

    def chosen(self, shape: Sequence[int], top: int) -> npt.NDArray[np.intp]:
        """Return the experts of tokens by their scores' shape, (..., experts), as (..., top)."""
        *rows, experts = shape
        rule = RoutingRule(experts, top, 1, 1, seed=self.seed, skew=self.skew)
        return np.ascontiguousarray(rule.chosen(self.rank, math.prod(rows))).reshape(*rows, top)
