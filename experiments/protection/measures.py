"""What the numbers of a run of ``protection`` mean."""

from __future__ import annotations

from traffic.measures import OPERATIONS

MEASURES = tuple(
    one._replace(name=one.name.removeprefix("<operation>."), meaning=f"of flows of others, {one.meaning}")
    for one in OPERATIONS
)
