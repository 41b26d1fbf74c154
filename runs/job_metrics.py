"""Numbers that several experiments take from the tables of a run."""

from __future__ import annotations

import pandas as pd


def sent_by_port(ports: pd.DataFrame) -> dict[str, float]:
    """Return how many bytes each port sent in all its lanes, from the first of some rows of ``ports`` to the last."""
    sent = ports.groupby(["port", "lane"], observed=True)["sent_bytes"].agg(["min", "max"])
    totals = (sent["max"] - sent["min"]).groupby("port", observed=True).sum()
    return {str(name): float(total) for name, total in totals.items()}
