"""Numbers that several experiments take from the tables of a run."""

from __future__ import annotations

import pandas as pd

from traffic.collectives.bandwidth import with_bandwidths


def collective_medians(steps: pd.DataFrame) -> dict[str, float]:
    """Return the medians over rows of ``steps``: algbw and busbw in bytes/s, and how long a step took in seconds."""
    medians = with_bandwidths(steps)[["algbw", "busbw", "time_s"]].median()
    named = {"algbw_Bps": "algbw", "busbw_Bps": "busbw", "step_s": "time_s"}
    return {name: float(medians[column]) for name, column in named.items()}


def sent_by_port(ports: pd.DataFrame) -> dict[str, float]:
    """Return how many bytes each port sent in all its lanes, from the first of some rows of ``ports`` to the last."""
    sent = ports.groupby(["port", "lane"], observed=True)["sent_bytes"].agg(["min", "max"])
    totals = (sent["max"] - sent["min"]).groupby("port", observed=True).sum()
    return {str(name): float(total) for name, total in totals.items()}
