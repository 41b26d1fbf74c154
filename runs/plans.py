"""The plans of a run's process: each is made once, for whoever goes by it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from controllers.routing import Routing
from fabric.model.network import Fabric

_NOT_PLANNED: Mapping[str, Any] = {name: getattr(Routing(), name) for name in ("sweep_delay", "entropies", "adaptive")}
"""What of a routing says only when the controller acts, or what is drawn for packets."""


def planned(fabric: Fabric, routing: Routing) -> RoutePlan:
    """Return the plan of a routing for a fabric without failures. The last two are kept: a run's own, and the other of
    static routes and hashing. Raises TopologyError if the fabric is wrong as wired."""
    return _planned(fabric, routing.model_copy(update=_NOT_PLANNED))


@lru_cache(maxsize=2)
def _planned(fabric: Fabric, routing: Routing) -> RoutePlan:
    return plan_routes(fabric, routing)
