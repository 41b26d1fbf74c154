"""What the numbers of a run of ``time_sharing`` mean."""

from __future__ import annotations

from cluster.sharing import measures
from fabric.measures import Better, Measure

COST = Measure("<cost>_s", "time that this cost of a job took, as measured", Better.LESS)
COMPOSED = (measures.USED_WAITING, measures.USED_ARRIVING, measures.WAITED)
MEASURES = (
    *measures.MEASURES,
    Measure(
        "composed.same_fraction", "decisions that platform and simulation made in the same turn, of all", Better.MORE
    ),
    Measure(
        "composed.wait_apart_most_s",
        "most by which a job's wait on the platform differs from the simulation's",
        Better.LESS,
    ),
    Measure("bound.held_fraction", "share of the waits that are within their bound", Better.MORE),
    COST,
    *(
        one.under("composed", which, meaning=f"{one.meaning}; composed{at}, median over seeds")
        for which, at in (("seeds", ""), ("load_<percent>", " at this load"))
        for one in COMPOSED
    ),
)
