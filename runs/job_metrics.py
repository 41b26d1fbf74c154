"""Numbers that several experiments take from the tables of a run."""

from __future__ import annotations

import pandas as pd

from fabric.measures import Better, Measure

QUEUES = (
    Measure("queue_mean_bytes", "bytes that wait at the leaf's port to the client, mean over samples", Better.LESS),
    Measure("queue_most_bytes", "most bytes that wait at the leaf's port to the client in a sample", Better.LESS),
)


def sent_by_port(ports: pd.DataFrame) -> dict[str, float]:
    """Return how many bytes each port sent in all its lanes, from the first of some rows of ``ports`` to the last."""
    sent = ports.groupby(["port", "lane"], observed=True)["sent_bytes"].agg(["min", "max"])
    totals = (sent["max"] - sent["min"]).groupby("port", observed=True).sum()
    return {str(name): float(total) for name, total in totals.items()}


def queue_numbers(ports: pd.DataFrame, port: str, lane: str, in_time: tuple[float, float]) -> dict[str, float]:
    """Return how much waited at a port's lane, over the samples of a stretch of time; nothing without any."""
    inside = ports["at_s"].between(*in_time)
    waiting = ports[inside & (ports["port"] == port) & (ports["lane"] == lane)]["backlog_bytes"]
    if waiting.empty:
        return {}
    return {"queue_mean_bytes": float(waiting.mean()), "queue_most_bytes": float(waiting.max())}
