"""Storms of reads and writes, from the rows of operations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from traffic.metrics import begun

_GAP_S = 0.5
"""Nodes that begin within it of each other begin one storm; storms are a second apart at least."""
_HALF = 0.5


@dataclass(frozen=True)
class Storm:
    """All nodes read, or wrote, a checkpoint at once: from the first one's begin to the last one's end. ``part``: of
    the payload that the NICs of all storage nodes carry, with all copies; ``resync``: part of it in which a storage
    node was brought up to date."""

    phase: str
    began_s: float
    ended_s: float
    nodes: int
    size_bytes: int
    part: float
    resync: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s


def storms_of(phase: str, operations: pd.DataFrame, most_Bps: float) -> list[Storm]:  # noqa: N803 - bytes, not bits
    """Return the restores of all nodes; those of which a node did not get all are left out."""
    rows = begun(operations, "restore").sort_values("started_s")
    found = []
    group = (rows["started_s"].diff() > _GAP_S).cumsum()
    nodes = rows["host"].nunique()
    for _, own in rows.groupby(group):
        if len(own) < nodes or (own["operation"].astype(str) != "restore").any():
            continue
        began_s, ended_s, size = (
            float(own["started_s"].min()),
            float(own["ended_s"].max()),
            int(own["size_bytes"].sum()),
        )
        found.append(Storm(phase, began_s, ended_s, len(own), size, size / (ended_s - began_s) / most_Bps))
    return found


def written(
    phase: str,
    operations: pd.DataFrame,
    most_Bps: float,  # noqa: N803 - bytes, not bits
    replicas: int,
    load_s: tuple[float, float],
) -> Storm | None:
    """Return what all nodes wrote of checkpoints, one after another, while the load played; None if nothing was."""
    rows = operations[operations["operation"].astype(str) == "write"]
    began_s, ended_s = load_s
    rows = rows[rows["ended_s"].between(began_s, ended_s)]
    size = int(rows["size_bytes"].sum())
    if not size:
        return None
    part = size * replicas / (ended_s - began_s) / most_Bps
    return Storm(phase, began_s, ended_s, int(rows["host"].nunique()), size, part)


def beside(storms: Sequence[Storm], attempts: pd.DataFrame) -> list[Storm]:
    """Return storms with the part of their time in which anything was sent to a node that came back."""
    sent = attempts[attempts["chunks"] > 0] if len(attempts) else attempts
    spans = sorted(zip(sent["began_s"].astype(float), sent["ended_s"].astype(float), strict=True))
    found = []
    for storm in storms:
        covered, until_s = 0.0, storm.began_s
        for began_s, ended_s in spans:
            from_s, to_s = max(began_s, until_s), min(ended_s, storm.ended_s)
            if to_s > from_s:
                covered, until_s = covered + to_s - from_s, to_s
        found.append(replace(storm, resync=covered / storm.seconds))
    return found


def is_beside(storm: Storm) -> bool:
    """Return whether a storm was beside a resync for half of its time at least."""
    return storm.resync >= _HALF
