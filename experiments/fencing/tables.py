"""The tables that ``fencing`` adds to a result: what clients saw, and for how long they read what was stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabric.tables import NO_UNIT, Column, Table, common

if TYPE_CHECKING:
    import pandas as pd

PLACE = Column("category", NO_UNIT, "`between`, hears all; `beside`, hears the tail and not the manager; `writer`")


def _fence_in_phase(rows: pd.DataFrame) -> pd.Series[str]:
    """Return the fences of results from before there was a column: phases are named by them."""
    return rows["phase"].astype(str).str.rpartition("_")[0]


TABLES = {
    "history": Table(
        "One row per write or read of a client that has an answer, and per write that has none.",
        {
            **common("phase", "host"),
            "place": PLACE,
            "kind": Column("category", NO_UNIT, "`write` or `read`"),
            "chunk": Column("int64", NO_UNIT, "place of the chunk in its file"),
            "request": Column("int64", NO_UNIT, "number of the write, or of that whose bytes were read"),
            "version": Column("int64", NO_UNIT, "version of the answer; 0 for a write that has none"),
            "started_s": Column("float64", "s", "time at which it began"),
            "ended_s": Column("float64", "s", "time of the answer; NaN without one"),
            "stale": Column("bool", NO_UNIT, "whether it is older than what had ended when it began"),
        },
    ),
    "stale_windows": Table(
        "One row per client that reads.",
        {
            **common("phase", "host"),
            "fence": Column("category", NO_UNIT, "fence of the phase: `off`, `half`", absent=_fence_in_phase),
            "place": PLACE,
            "reads": Column("int64", "count", "reads that succeeded from the cut on"),
            "failed": Column("int64", "count", "reads given up"),
            "stale": Column("int64", "count", "reads that were stale"),
            "forgotten_s": Column("float64", "s", "time at which the tail was in the chain no more"),
            "first_s": Column("float64", "s", "time at which the first stale read began; NaN without one"),
            "last_s": Column("float64", "s", "time at which the last stale read began; NaN without one"),
            "halted_s": Column("float64", "s", "time at which the load ended"),
        },
    ),
}
