"""All collectives, by name. A new one is a module in :mod:`traffic.collectives.operations` and a line here."""

from __future__ import annotations

from traffic.collectives.collective import Collective
from traffic.collectives.operations.all_gather import ALL_GATHER
from traffic.collectives.operations.all_to_all import ALL_TO_ALL
from traffic.collectives.operations.allreduce import ALLREDUCE
from traffic.collectives.operations.broadcast import BROADCAST
from traffic.collectives.operations.reduce import REDUCE
from traffic.collectives.operations.reduce_scatter import REDUCE_SCATTER

COLLECTIVES: dict[str, Collective] = {
    collective.name: collective
    for collective in (
        ALLREDUCE,
        ALL_GATHER,
        REDUCE_SCATTER,
        ALL_TO_ALL,
        BROADCAST,
        REDUCE,
    )
}
DEFAULT_COLLECTIVE = ALLREDUCE.name


def collective_named(name: str) -> Collective:
    """Return a collective. Raises ValueError if there is none of that name."""
    if name not in COLLECTIVES:
        raise ValueError(f"{name!r} is no collective; use one of {', '.join(COLLECTIVES)}")
    return COLLECTIVES[name]
