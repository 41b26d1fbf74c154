"""What each failure cost the jobs that it stopped, by the events of a platform: until it was noticed, until the last
rank had left, until ranks ran again, and the steps since the last checkpoint. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
_EARLIER = re.compile(r"not heard for ([0-9.]+) s|complete ([0-9.]+) s before")
"""How long before an event that happened of which it tells, in the words of tables without ``earlier_s``."""
_SEPARATORS = re.compile(r"--|[:\s/,]+")
_Event = Mapping[Any, Any]


@dataclass(frozen=True)
class Struck:
    """A failure as it was carried out: what it is called, when it began by the clock of the events, and the nodes that
    it hit."""

    name: str
    at_s: float
    nodes: frozenset[str]


def struck_by(failures: pd.DataFrame, nodes: Iterable[str]) -> list[Struck]:
    """Return the failures of a run's table ``failures`` that hit some of a platform's nodes: programs that were stopped
    or killed on them, and their links that went down."""
    known = frozenset(nodes)
    found = []
    for row in failures.dropna(subset=["done_s"]).sort_values("done_s").to_dict("records"):
        target, state = str(row["target"]), str(row["state"])
        hit = known & frozenset(_SEPARATORS.split(target))
        if hit and state != "whole" and (row["kind"] == "process" or not row["up"]):
            found.append(Struck(f"{target} {state}", float(row["done_s"]), hit))
    return found


def costs_by_events(events: pd.DataFrame, struck: Sequence[Struck] = ()) -> pd.DataFrame:
    """Return a row per life that was stopped by a failure, in the order in which they were told to stop.

    ``events``: the table ``platform_events`` of one or several platforms, in its order. ``struck``: when failures
    really began; one of which the table alone knows began when its node was heard last, or, where it was noticed by
    something else, at that moment. The columns are in seconds of the events' clock:

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
    rows = [row for _, own in by_platform for row in _rows_of(list(own.to_dict("records")), struck)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _rows_of(events: Sequence[_Event], struck: Sequence[Struck]) -> list[dict[str, Any]]:
    return [_row_of(place, events, struck) for place, event in enumerate(events) if event["event"] == "restart"]


def _row_of(place: int, events: Sequence[_Event], struck: Sequence[Struck]) -> dict[str, Any]:
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
    saved_s = max(map(_happened_s, saves), default=began_s)
    name, hit_s = _failure_of(told, before, struck, began_s)
    told_s = float(told["at_s"])
    # What was saved while ranks were killed counts up to the moment at which they were told to stop.
    kept_s = min(saved_s, told_s)
    costs = {
        "lost_steps_s": max(0.0, hit_s - kept_s),
        "detected_s": told_s - max(hit_s, kept_s),
        "stopped_s": left_s - told_s,
        "restarted_s": again_s - left_s,
    }
    row = {"failure": name, "number": told["number"], "life": life, "began_s": hit_s, **costs}
    return row | {"total_s": sum(costs.values())}


def _happened_s(row: _Event) -> float:
    """Return the time of what an event reports late: the last heartbeat of a silent node, or a checkpoint whose agent
    was away."""
    earlier_s = row.get("earlier_s")
    if earlier_s is None:
        found = _EARLIER.search(str(row["why"]))
        earlier_s = float(found[1] or found[2]) if found else 0.0
    return float(row["at_s"]) - float(earlier_s)


def _failure_of(told: _Event, before: Sequence[_Event], struck: Sequence[Struck], began_s: float) -> tuple[str, float]:
    """Return what a failure is called that stopped a life, and when it struck; no sooner than the life began."""
    told_s, why = float(told["at_s"]), str(told["why"])
    nodes = frozenset(why.partition(":")[0].split(", "))
    known = [one for one in struck if one.nodes & nodes and one.at_s <= told_s]
    if known:
        last = max(known, key=lambda one: one.at_s)
        return last.name, max(last.at_s, began_s)
    for row in reversed(before):
        if row["event"] == "node_out" and row["nodes"] in nodes:
            return f"{row['nodes']}: {row['why']}", min(max(_happened_s(row), began_s), told_s)
    return why, told_s
