"""When each life of a listed job had its nodes on the platform, by the platform's events and what rank 0 of each life
printed; and what suspending it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cluster.jobs.spans import End, LifeSpan
from cluster.platform.events import EndKind
from cluster.platform.state import STOPPED
from cluster.sharing.submissions import number_of
from fabric.records.packed import names_in

Event = Mapping[str, Any]
"""A row of the table of events: at_s, event, number, life, nodes, why."""


@dataclass(frozen=True)
class Printed:
    """What rank 0 of a life printed: when it began to make steps, and from which one on; its last one; when it answered
    the notice (None: it did not come so far), and whether it had saved then."""

    begins_s: float | None = None
    begins_step: int = 0
    last_step: int = 0
    answers_s: float | None = None
    saved: bool = False


def printed(lines: Iterable[str]) -> Printed:
    """Return what the lines of :mod:`cluster.sharing.listed_job` say; others say nothing."""
    found = Printed()
    for line in lines:
        words = line.split()
        if len(words) != 3 or words[0] not in ("begins", "step", "answers", "saved"):
            continue
        word, step, at_s = words[0], int(words[1]), float(words[2])
        if word == "begins":
            found = replace(found, begins_s=at_s, begins_step=step, last_step=step)
        elif word == "step":
            found = replace(found, last_step=step)
        elif word == "answers":
            found = replace(found, answers_s=at_s)
        else:
            found = replace(found, saved=True)
    return found


Log = Callable[[str, int], Iterable[str]]
"""The lines that rank 0 of a life printed: (its node, the life's number)."""


def lives_of(events: Sequence[Event], places: Mapping[str, int], log: Log, step_s: float) -> list[LifeSpan]:
    """Return the lives of all jobs in the order in which they ended; times are those of the events. Jobs have the
    numbers of their names (:func:`cluster.sharing.submissions.number_of`)."""
    jobs = {row["number"]: number_of(row["why"]) for row in events if row["event"] == "submitted"}
    queued = {row["number"]: float(row["at_s"]) for row in events if row["event"] == "submitted"}
    told: dict[int, Event] = {}
    begun: dict[int, Event] = {}
    found: list[LifeSpan] = []
    by_life: dict[int, Printed] = {}
    lives: dict[int, list[int]] = {}
    for row in events:
        life, number, at_s = row["life"], row["number"], float(row["at_s"])
        if row["event"] == "started":
            begun[life] = row
            by_life[life] = printed(log(names_in(row["nodes"])[0], life))
        elif row["event"] in list(EndKind):
            told[life] = row
        elif row["event"] in ("finished", "left") and life in begun:
            start = begun[life]
            said, how = by_life[life], told.get(life)
            lives.setdefault(number, []).append(len(found))
            found.append(
                LifeSpan(
                    job=jobs[number],
                    queued_s=queued[number],
                    began_s=float(start["at_s"]),
                    left_s=at_s,
                    nodes=tuple(places[node] for node in names_in(start["nodes"])),
                    end=_end_of(row, how, said),
                    told_s=None if how is None else float(how["at_s"]),
                    answered_s=said.answers_s,
                    first_step_s=said.begins_s,
                )
            )
            queued[number] = at_s
    order = list(begun.values())
    steps = {number: [by_life[row["life"]] for row in order if row["number"] == number] for number in lives}
    return _with_losses(found, lives, steps, step_s)


def _end_of(row: Event, how: Event | None, said: Printed) -> End:
    if row["event"] == "finished":
        return End.FINISHED
    ordered = None if how is None else EndKind(how["event"])
    if ordered in STOPPED:
        return End.STOPPED
    if ordered is not EndKind.SUSPEND:
        return End.LOST
    return End.SUSPENDED if said.saved else End.KILLED


def _with_losses(
    found: list[LifeSpan], lives: Mapping[int, list[int]], steps: Mapping[int, list[Printed]], step_s: float
) -> list[LifeSpan]:
    """Return lives with the steps that the next life of the job made once more."""
    for number, places in lives.items():
        said = steps[number]
        for place, mine, after in zip(places, said, said[1:], strict=False):
            if after.begins_s is not None and mine.begins_s is not None:
                found[place] = replace(found[place], lost_s=max(0, mine.last_step - after.begins_step) * step_s)
    return found


@dataclass(frozen=True)
class SuspendCost:
    """One suspend, in seconds. From the notice: until it was answered (None: it was not), until all ranks were gone,
    until the next life had some of the nodes, and until that one made steps (None: no other had them). ``away_s``: from
    the answer, or the end, until the job itself made steps again; ``again_s``: from when it had nodes again until then,
    None: it never did."""

    answered_s: float | None
    left_s: float
    others_start_s: float | None
    others_step_s: float | None
    away_s: float | None
    again_s: float | None
    lost_s: float


def suspend_costs(lives: Sequence[LifeSpan]) -> list[SuspendCost]:
    """Return what each suspend cost, by how the lives were."""
    found = []
    for life in lives:
        if life.end not in (End.SUSPENDED, End.KILLED) or life.told_s is None:
            continue
        told_s = life.told_s
        takers = [one for one in lives if one.began_s >= life.left_s and set(one.nodes) & set(life.nodes)]
        taker = min(takers, key=lambda one: one.began_s, default=None)
        later = [one for one in lives if one.job == life.job and one.began_s >= life.left_s]
        again = min(later, key=lambda one: one.began_s, default=None)
        first_s = None if again is None else again.first_step_s
        stood_s = life.answered_s if life.answered_s is not None else life.left_s
        found.append(
            SuspendCost(
                answered_s=None if life.answered_s is None else life.answered_s - told_s,
                left_s=life.left_s - told_s,
                others_start_s=None if taker is None else taker.began_s - told_s,
                others_step_s=None if taker is None or taker.first_step_s is None else taker.first_step_s - told_s,
                away_s=None if first_s is None else first_s - stood_s,
                again_s=None if again is None or first_s is None else first_s - again.began_s,
                lost_s=life.lost_s,
            )
        )
    return found


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of those that there are; None if there is none."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
