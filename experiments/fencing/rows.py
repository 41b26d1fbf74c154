"""The rows of the experiment's own tables, from what clients saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from experiments.fencing.tables import TABLES
from fabric.model.identity import NodeId
from traffic.storage.config import Fence
from traffic.storage.history import MAYBE, Event, Kind, stale


def history_of(
    phase: str, events: Mapping[NodeId, Sequence[Event]], places: Mapping[NodeId, str], origin_s: float
) -> pd.DataFrame:
    """Return the rows of ``history``; times become seconds of the run."""
    found = {one for one, _ in stale(event for of_client in events.values() for event in of_client)}
    rows = [
        (
            *(phase, str(node), places[node], one.kind.value, one.chunk.index, one.request, one.version or 0),
            one.started_s - origin_s,
            math.nan if one.ended_s == MAYBE else one.ended_s - origin_s,
            one in found,
        )
        for node, of_client in events.items()
        for one in of_client
    ]
    return pd.DataFrame(rows, columns=list(TABLES["history"].columns))


def windows_of(
    fence: Fence, history: pd.DataFrame, failed: pd.DataFrame, forgotten_s: float | None, cut_s: float, halted_s: float
) -> pd.DataFrame:
    """Return the rows of ``stale_windows`` of a phase with a fence. ``failed``: its reads that were given up."""
    rows = []
    for (phase, host, place), of_host in history.groupby(["phase", "host", "place"], observed=True, sort=False):
        if place == "writer":
            continue
        reads = of_host[(of_host["kind"] == Kind.READ.value) & (of_host["started_s"] >= cut_s)]
        old = reads[reads["stale"].astype(bool)]["started_s"]
        given_up = int((failed["host"].astype(str) == host).sum())
        first_s, last_s = (float(old.min()), float(old.max())) if len(old) else (math.nan, math.nan)
        when = math.nan if forgotten_s is None else forgotten_s
        rows.append((phase, host, fence.value, place, len(reads), given_up, len(old), when, first_s, last_s, halted_s))
    return pd.DataFrame(rows, columns=list(TABLES["stale_windows"].columns))
