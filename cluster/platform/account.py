"""What came to pass on the platform in a phase, in a sentence or three, from its events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cluster.platform.event_rows import step_of
from fabric.records.packed import names_in

if TYPE_CHECKING:
    import pandas as pd

Event = dict[str, Any]


def account(events: pd.DataFrame, began_s: float, asked: int) -> str:
    """Return what came to pass.

    ``events``: rows of the table of events in their order; ``began_s``: when the phase began, by the same clock;
    ``asked``: how many jobs the config has.
    """
    rows: list[Event] = [{**row, "at_s": row["at_s"] - began_s} for row in events.to_dict("records")]  # type: ignore[dict-item]
    parts = [_ended(rows, asked)]
    suspended = _of(rows, "suspend")
    if suspended:
        parts.append(f"{len(suspended)} suspended for others: {', '.join(_resumed(rows, one) for one in suspended)}")
    if put_off := [row for row in _of(rows, "requeued") if row["reason"] == "no_answer"]:
        parts.append(f"{len(put_off)} starts put off, for nodes did not answer ({put_off[0]['why']})")
    parts += [_lost(rows, one) for one in _of(rows, "node_out") if not _was_out(rows, one)]
    parts += [_restarted(rows, one) for one in _of(rows, "restart")]
    return "; ".join(parts) + "."


def _of(rows: Sequence[Event], event: str) -> list[Event]:
    return [row for row in rows if row["event"] == event]


def _ended(rows: Sequence[Event], asked: int) -> str:
    """Return how many jobs ended well, and what became of the others."""
    submitted, ended = _of(rows, "submitted"), {row["number"] for row in _of(rows, "finished")}
    text = f"{len(ended)} of {asked} jobs finished"
    stopped = "stopped by their users or at the end of the phase"
    for event, words in (("fail", "failed"), ("timeout", "stopped at their limits"), ("cancel", stopped)):
        if count := len({row["number"] for row in _of(rows, event)} - ended):
            text += f", {count} {words}"
    if len(submitted) < asked:
        text += f", {asked - len(submitted)} not submitted before the phase ended"
    return text


def _name(rows: Sequence[Event], number: int) -> str:
    """Return what a job is called."""
    return next((row["why"] for row in _of(rows, "submitted") if row["number"] == number), f"job {number}")


def _next_start(rows: Sequence[Event], told: Event) -> Event | None:
    """Return the start of the life after one that was told to end."""
    later = (row for row in _of(rows, "started") if row["number"] == told["number"] and row["life"] > told["life"])
    return next(later, None)


def _saved(rows: Sequence[Event], told: Event) -> str:
    """Return from which step a job goes on whose life was told to end: the last that any life had saved by then, in
    words."""
    lives = [row for row in rows if row["number"] == told["number"] and row["life"] <= told["life"]]
    steps = [step_of(row) for row in lives if row["event"] in ("saved", "left", "finished")]
    saved = [step for step in steps if step is not None]
    return f"from step {saved[-1]}" if saved else "from the start"


def _resumed(rows: Sequence[Event], told: Event) -> str:
    again = _next_start(rows, told)
    name = _name(rows, told["number"])
    return f"{name} did not go on" if again is None else f"{name} went on {_saved(rows, told)}"


def _of_node(rows: Sequence[Event], node: str) -> list[Event]:
    """Return when a node went out, again where it stayed out after a repair, and came back."""
    return [row for row in rows if row["event"] in ("node_out", "node_back") and row["nodes"] == node]


def _was_out(rows: Sequence[Event], out: Event) -> bool:
    """Return whether a node was out before it was said to be."""
    mine = _of_node(rows, out["nodes"])
    place = next(place for place, row in enumerate(mine) if row is out)
    return place > 0 and mine[place - 1]["event"] == "node_out"


def _lost(rows: Sequence[Event], out: Event) -> str:
    mine = _of_node(rows, out["nodes"])
    later = mine[next(place for place, row in enumerate(mine) if row is out) + 1 :]
    back = next((row for row in later if row["event"] == "node_back"), None)
    until = f"back at {back['at_s']:.1f} s" if back else "not back"
    again = [row for row in later if row["event"] == "node_out" and (back is None or row["at_s"] < back["at_s"])]
    stayed = "".join(f", still out at {row['at_s']:.1f} s ({row['why']})" for row in again)
    return f"{out['nodes']} was taken out at {out['at_s']:.1f} s ({out['why']}){stayed}, {until}"


def _restarted(rows: Sequence[Event], told: Event) -> str:
    again, name = _next_start(rows, told), _name(rows, told["number"])
    if again is None:
        return f"{name} was stopped at {told['at_s']:.1f} s and did not begin again"
    waited_s = again["at_s"] - told["at_s"]
    return f"{name} began again {waited_s:.1f} s later {_saved(rows, told)} on {', '.join(names_in(again['nodes']))}"
