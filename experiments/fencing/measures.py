"""What the numbers of a run of ``fencing`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure("<fence>.<place>.clients", "clients at this place with this fence"),
    Measure("<fence>.<place>.reads", "their reads from the cut on"),
    Measure("<fence>.<place>.failed", "reads that were given up", Better.LESS),
    Measure("<fence>.<place>.stale", "reads that were stale", Better.LESS),
    Measure("<fence>.<place>.clients_stale", "clients with a stale read", Better.LESS),
    Measure(
        "<fence>.<place>.window_<statistic>_s",
        "from a client's first stale read to its last: the shortest, the median, the longest",
        Better.LESS,
    ),
    Measure(
        "<fence>.<place>.after_forgotten_max_s",
        "from when the node was forgotten until the last stale read",
        Better.LESS,
    ),
    Measure(
        "<fence>.<place>.to_the_end",
        "clients that read stale data until less than 2 s before the end of the load",
        Better.LESS,
    ),
)
