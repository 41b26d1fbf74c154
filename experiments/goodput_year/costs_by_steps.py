"""What each failure cost, from the platform's events and the steps that rank 0 printed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from cluster.platform.event_rows import step_of
from cluster.platform.failure_cost import CostParts, cost_parts
from fabric.records.packed import names_in

Event = Mapping[str, Any]


@dataclass
class LifeSteps:
    """A life's steps: when its ranks had met, and when each step had ended, in seconds of the run."""

    life: int
    began_s: float | None = None
    ended_s: dict[int, float] = field(default_factory=dict)

    @property
    def last(self) -> tuple[int, float] | None:
        """The last step and when it had ended."""
        return max(self.ended_s.items(), default=None)


def life_steps(life: int, log: str, origin_s: float) -> LifeSteps:
    """Return what rank 0 of a life printed; a last line without its end was being written when it was killed."""
    found = LifeSteps(life)
    for line in log.splitlines(keepends=True):
        what, _, at = line.strip().partition(" ")
        if not line.endswith("\n") or not at:
            continue
        if what == "begin":
            found.began_s = float(at) - origin_s
        elif what.isdecimal():  # Else it says why it ended.
            found.ended_s[int(what)] = float(at) - origin_s
    return found


@dataclass(frozen=True)
class FailureCost:
    """What a failure cost. ``resumed``: the step behind which its next life made its first one, or that the life had
    saved if that one made none."""

    kind: str
    node: str
    at_s: float
    life: int
    resumed: int | None
    parts: CostParts


@dataclass(frozen=True)
class Failed:
    """A failure as it came about."""

    kind: str
    node: str
    at_s: float


def costs_by_steps(
    failed: Iterable[Failed], events: Sequence[Event], lives: Mapping[int, LifeSteps]
) -> list[FailureCost]:
    """Return what each failure cost that ended a life: those that hit none, or that steps went on after, are left out.

    ``events``: rows of the table ``platform_events``, with times in seconds of the run, as ``failed`` has them.
    """
    found = []
    for one in failed:
        life = _life_with(one, events)
        told = _first(events, life, "restart", one.at_s)
        if life is None or told is None:
            continue
        left = _first(events, life, "left", one.at_s)
        later = [row for row in events if row["event"] == "started" and row["life"] > life]
        again = next((row for row in later if row["number"] == told["number"]), None)
        if left is None or again is None or (began_s := lives[again["life"]].began_s) is None:
            continue
        steps = lives[again["life"]].ended_s
        resumed = min(steps) - 1 if steps else step_of(left)
        kept_s = _kept_until_s(resumed, life, lives, one.at_s)
        parts = cost_parts(kept_s, one.at_s, told["at_s"], left["at_s"], again["at_s"], met_s=began_s)
        found.append(FailureCost(one.kind, one.node, one.at_s, life, resumed, parts))
    return found


def _life_with(one: Failed, events: Sequence[Event]) -> int | None:
    """Return the life that had a node at a time; None if none had."""
    has: int | None = None
    for row in events:
        if row["at_s"] > one.at_s:
            break
        if row["event"] == "started" and one.node in names_in(row["nodes"]):
            has = int(row["life"])
        elif row["event"] in ("left", "finished") and row["life"] == has:
            has = None
    return has


def _first(events: Sequence[Event], life: int | None, event: str, from_s: float) -> Event | None:
    rows = (row for row in events if row["life"] == life and row["event"] == event and row["at_s"] >= from_s)
    return next(rows, None)


def _kept_until_s(resumed: int | None, life: int, lives: Mapping[int, LifeSteps], at_s: float) -> float:
    """Return when the last step had ended that was kept: in this life, or that is when it began to make steps."""
    own = lives[life]
    if own.began_s is None:
        return at_s  # It had made no step.
    return own.ended_s.get(resumed, own.began_s) if resumed is not None else own.began_s


# Cuts ----------------------------------------------------------------------------------------------------------------


def stalled_s(at_s: float, steps: LifeSteps, usual_s: float) -> float:
    """Return how long steps stood still for a cut: what the step that was under way, or the next one, took beyond the
    usual."""
    ends = sorted(steps.ended_s.values())
    gaps = [(begin, end) for begin, end in pairwise(ends) if end >= at_s and begin <= at_s + usual_s]
    return max((end - begin - usual_s for begin, end in gaps), default=0.0)


# Suspensions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SuspensionCost:
    """What a suspension cost: ``tick_s`` from the other job's submission to the command, ``answer_s`` to the last step,
    ``save_s`` to the last rank's end, ``start_s`` until the other job makes steps; ``resume_s`` from that one's end
    until the suspended job makes steps again; ``lost``: steps of it that were made in vain."""

    at_s: float
    tick_s: float
    answer_s: float
    save_s: float
    start_s: float
    resume_s: float
    lost: int


def suspension_costs(events: Sequence[Event], lives: Mapping[int, LifeSteps]) -> list[SuspensionCost]:
    """Return what each suspension cost whose job went on."""
    found = []
    for told in (row for row in events if row["event"] == "suspend"):
        left = _first(events, told["life"], "left", told["at_s"])
        before = [row for row in events if row["event"] == "submitted" and row["at_s"] <= told["at_s"]]
        if left is None or not before:
            continue
        asked = before[-1]
        other = next((row for row in events if row["event"] == "started" and row["number"] == asked["number"]), None)
        ended = next((row for row in events if row["event"] == "finished" and row["number"] == asked["number"]), None)
        later = (row for row in events if row["event"] == "started" and row["life"] > told["life"])
        again = next((row for row in later if row["number"] == told["number"]), None)
        last = lives[told["life"]].last
        if other is None or ended is None or again is None or last is None:
            continue
        met_s, back_s = lives[other["life"]].began_s, lives[again["life"]].began_s
        if met_s is None or back_s is None:
            continue
        found.append(
            SuspensionCost(
                at_s=asked["at_s"],
                tick_s=told["at_s"] - asked["at_s"],
                answer_s=last[1] - told["at_s"],
                save_s=left["at_s"] - last[1],
                start_s=met_s - left["at_s"],
                resume_s=back_s - ended["at_s"],
                lost=last[0] - (step_of(left) or 0),
            )
        )
    return found
