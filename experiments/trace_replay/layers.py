"""What a step's time goes to, over all ranks: rows of ``replay_layers`` as tables and figures show them (pure)."""

from __future__ import annotations

import pandas as pd

TIMES = ("computed_s", "exposed_s", "hidden_s")
"""The columns of a row's times."""
OTHERS = "others"


def largest_kinds(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the layers and kinds of a trace that take longest, by (layer, kind) in the order of the trace: what each
    has per rank, as means over all ranks, and the rest in a row of ``others``."""
    means = _means(rows, ["layer", "kind"])
    kept, rest = _largest(means, most)
    if not rest.empty:
        others = rest.sum().to_frame().T
        others.index = pd.MultiIndex.from_tuples([(OTHERS, f"{len(rest)} kinds")], names=means.index.names)
        kept = pd.concat([kept, others])
    return kept


def largest_layers(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return the layers of a trace that take longest, likewise, by (layer, what its communication is)."""
    kept, rest = _largest(_means(rows, ["layer"]), most)
    talking = rows[rows["kind"].astype(str) != "compute"]
    kinds = {
        str(layer): ", ".join(dict.fromkeys(of_layer["kind"].astype(str)))
        for layer, of_layer in talking.groupby("layer", observed=True)
    }
    names = [(str(layer), kinds.get(str(layer), "")) for layer in kept.index]
    if not rest.empty:
        kept = pd.concat([kept, rest.sum().to_frame().T])
        names.append((f"{len(rest)} {OTHERS}", ""))
    kept.index = pd.MultiIndex.from_tuples(names)
    return kept


def _means(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    named = rows.astype({"layer": str, "kind": str})
    return named.groupby(by, sort=False)[["operations", "size_bytes", *TIMES]].sum() / max(1, rows["rank"].nunique())


def _largest(means: pd.DataFrame, most: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return those that take longest, and the rest: none, if there are no more."""
    if len(means) <= most:
        return means, means.iloc[:0]
    largest = means.index.isin(means[list(TIMES)].sum(axis=1).nlargest(most - 1).index)
    return means[largest], means[~largest]
