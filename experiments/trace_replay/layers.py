"""What a step's time goes to, over all ranks: rows of ``replay_layers`` as tables and figures show them (pure)."""

from __future__ import annotations

import pandas as pd

TIMES = ("computed_s", "exposed_s", "hidden_s")
"""The columns of a row's times."""
OTHERS = "others"


def largest_layers(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the layers and kinds of a trace that take longest, by (layer, kind) in the order of the trace: what each
    has per rank, as means over all ranks, and the rest in a row of ``others``."""
    ranks = max(1, rows["rank"].nunique())
    columns = ["operations", "size_bytes", *TIMES]
    named = rows.astype({"layer": str, "kind": str})
    means = named.groupby(["layer", "kind"], sort=False)[columns].sum() / ranks
    if len(means) <= most:
        return means
    largest = means[list(TIMES)].sum(axis=1).nlargest(most - 1).index
    kept = means[means.index.isin(largest)]
    rest = means[~means.index.isin(largest)].sum().to_frame().T
    rest.index = pd.MultiIndex.from_tuples([(OTHERS, f"{len(means) - len(kept)} kinds")], names=means.index.names)
    return pd.concat([kept, rest])
