"""All collectives, by name. A new one is a module in :mod:`traffic.collectives.operations` and a line here."""

from __future__ import annotations

from traffic.collectives.collective import Collective
from traffic.collectives.operations.all_gather import ALL_GATHER
from traffic.collectives.operations.all_to_all import ALL_TO_ALL
from traffic.collectives.operations.all_to_all_v import ALL_TO_ALL_V
from traffic.collectives.operations.allreduce import ALLREDUCE
from traffic.collectives.operations.barrier import BARRIER
from traffic.collectives.operations.broadcast import BROADCAST
from traffic.collectives.operations.gather import GATHER
from traffic.collectives.operations.push_pull import PUSH_PULL
from traffic.collectives.operations.reduce import REDUCE
from traffic.collectives.operations.reduce_scatter import REDUCE_SCATTER
from traffic.collectives.operations.scatter import SCATTER
from traffic.collectives.operations.send_receive import SEND_RECEIVE

COLLECTIVES: dict[str, Collective] = {
    collective.name: collective
    for collective in (
        ALLREDUCE,
        ALL_GATHER,
        REDUCE_SCATTER,
        ALL_TO_ALL,
        ALL_TO_ALL_V,
        BROADCAST,
        REDUCE,
        GATHER,
        SCATTER,
        SEND_RECEIVE,
        BARRIER,
        PUSH_PULL,
    )
}
DEFAULT_COLLECTIVE = ALLREDUCE.name


def collective_named(name: str) -> Collective:
    """Return a collective. Raises ValueError if there is none of that name."""
    if name not in COLLECTIVES:
        raise ValueError(f"{name!r} is not a collective; use one of {', '.join(COLLECTIVES)}")
    return COLLECTIVES[name]
