"""What each failure cost the jobs that it stopped, by the events of a platform: until it was noticed, until the last
rank had left, until ranks ran again, and the steps since the last checkpoint. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.platform.event_rows import Row, happened_s
from cluster.platform.failure_cost import cost_parts
from fabric.records.packed import names_in

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "failure",
    "number",
    "life",
    "began_s",
    "detected_s",
    "stopped_s",
    "restarted_s",
    "lost_steps_s",
    "total_s",
)


def costs_by_events(events: pd.DataFrame) -> pd.DataFrame:
    """Return a row per life that was stopped by a failure, in the order in which they were told to stop.

    ``events``: the table ``platform_events`` of one or several platforms, in its order and with the columns of today. A
    failure began when its node was heard last, or, where it was noticed by something else, at that moment. The columns
    are in seconds of the events' clock, their parts those of :mod:`cluster.platform.failure_cost`:

    - ``failure``, ``number`` and ``life``: what stopped which job's life; ``began_s``: when it struck;
    - ``lost_steps_s``: from the last saved step of the life, or from its start, to the failure; these steps are made
      again;
    - ``detected_s``: from the failure, or from a step saved after it, to the moment at which the job was told to stop;
    - ``stopped_s``: from there until no rank was left;
    - ``restarted_s``: from there until ranks ran again, also while the job waited for nodes; NaN if they never did;
    - ``total_s``: the sum of the four.
    """
    import pandas as pd

    by_platform = events.groupby("job", observed=True, sort=False) if "job" in events.columns else [("", events)]
    rows = [row for _, own in by_platform for row in _rows_of(list(own.to_dict("records")))]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows_of(events: Sequence[Row]) -> list[dict[str, Any]]:
    return [_row_of(place, events) for place, event in enumerate(events) if event["event"] == "restart"]


def _row_of(place: int, events: Sequence[Row]) -> dict[str, Any]:
    told, life = events[place], events[place]["life"]
    before, after = events[: place + 1], events[place:]
    began_s = next(
        (float(row["at_s"]) for row in before if row["event"] == "started" and row["life"] == life), math.nan
    )
    left_s = next(
        (float(row["at_s"]) for row in after if row["event"] in ("left", "finished") and row["life"] == life), math.nan
    )
    again_s = next(
        (
            float(row["at_s"])
            for row in after
            if row["event"] == "started" and row["number"] == told["number"] and row["life"] > life
        ),
        math.nan,
    )
    saves = [row for row in events if row["event"] == "saved" and row["life"] == life]
    saved_s = max(map(happened_s, saves), default=began_s)
    name, hit_s = _failure_of(told, before, began_s)
    told_s = float(told["at_s"])
    # What was saved while ranks were killed counts up to the moment at which they were told to stop.
    kept_s = min(saved_s, told_s)
    cost = cost_parts(kept_s, hit_s, told_s, left_s, again_s)
    return {
        "failure": name,
        "number": told["number"],
        "life": life,
        "began_s": hit_s,
        "lost_steps_s": cost.lost_s,
        "detected_s": cost.detection_s,
        "stopped_s": cost.stop_s,
        "restarted_s": cost.wait_s,
        "total_s": cost.total_s,
    }


def _failure_of(told: Row, before: Sequence[Row], began_s: float) -> tuple[str, float]:
    """Return what a failure is called that stopped a life, and when it struck; no sooner than the life began."""
    told_s, nodes = float(told["at_s"]), frozenset(names_in(told["blamed"]))
    for row in reversed(before):
        if row["event"] == "node_out" and row["nodes"] in nodes:
            return f"{row['nodes']}: {row['why']}", min(max(happened_s(row), began_s), told_s)
    return str(told["why"]), told_s
