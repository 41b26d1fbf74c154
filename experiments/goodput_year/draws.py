"""What fails when, drawn by a seed: kinds in random order, moments evenly over an interval between checkpoints. Pure.

Each failure comes once the job makes steps again. With one node more than the job has it is known which ones it has:
all but the one that is away; and the first ones, if all are there.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.goodput_year.config import START_S, EventsConfig, Kind
from fabric.failures.config import failure_line
from fabric.failures.line import FailureConfig


@dataclass(frozen=True)
class Planned:
    """A failure: of what kind, when in its phase, at which node, and as a line of ``failures``."""

    kind: Kind
    at_s: float
    node: str
    line: FailureConfig


@dataclass(frozen=True)
class Place:
    """Where the job is: its ``first`` nodes, as long as all are there; ``every`` one that it may have; the leaves that
    one node has alone."""

    first: tuple[str, ...]
    every: tuple[str, ...]
    leaves: Mapping[str, str]


def drawn_failures(config: EventsConfig, place: Place, job: str, seed: int) -> list[Planned]:
    """Return all failures in order of time; ``job``: the name of the job of the run that the agents are of."""
    rng = random.Random(f"{seed}/goodput_year")
    kinds = [kind for kind, count in config.draws.counts.items() for _ in range(count)]
    rng.shuffle(kinds)
    found: list[Planned] = []
    held, from_s = place.first, START_S
    for kind in kinds:
        at_s = round(from_s + rng.uniform(0, config.program.interval), 6)
        eligible = [node for node in held if kind is not Kind.LEAF or node in place.leaves]
        if not eligible:  # The one node with a leaf for itself is away: the job has it next time.
            eligible, kind = list(held), Kind.SILENT
        node = rng.choice(sorted(eligible))
        found.append(Planned(kind, at_s, node, _line(config, kind, at_s, node, place, job)))
        if kind in (Kind.SILENT, Kind.LEAF):
            held = tuple(other for other in place.every if other != node)
        elif kind is Kind.KILLED:
            held = place.first
        from_s = at_s + _settled_s(config, kind)
    return found


def ends_s(config: EventsConfig, planned: list[Planned]) -> float:
    """Return when all is over: the job makes steps again after the last failure."""
    return planned[-1].at_s + _settled_s(config, planned[-1].kind) if planned else 0.0


def _settled_s(config: EventsConfig, kind: Kind) -> float:
    """Return how long a failure is waited for until the next one may come."""
    lasts = {Kind.KILLED: config.again + 2 * config.timers.beat, Kind.CUT: 3 * config.cut}
    return lasts.get(kind, config.away) + START_S


def _line(config: EventsConfig, kind: Kind, at_s: float, node: str, place: Place, job: str) -> FailureConfig:
    keys: dict[Kind, dict[str, object]] = {
        Kind.KILLED: {"process": node, "job": job, "effect": "restart", "for": config.again},
        Kind.SILENT: {"silent": node, "for": config.away},
        Kind.LEAF: {"switch": place.leaves.get(node, ""), "for": config.away},
        Kind.CUT: {"nic": f"{node}:0", "for": config.cut},
    }
    return failure_line({**keys[kind], "at": at_s})


def submissions_s(config: EventsConfig, seed: int) -> list[float]:
    """Return when jobs of higher priority are submitted: at random moments, each once the job makes steps again."""
    rng = random.Random(f"{seed}/goodput_year/suspensions")
    times, from_s = list[float](), START_S
    for _ in range(config.suspensions):
        times.append(round(from_s + rng.uniform(0, 2 * SUSPENDED_S), 6))
        from_s = times[-1] + 2 * SUSPENDED_S
    return times


def leaf_moment_s(seed: int, number: int, beat_s: float) -> float:
    """Return when a leaf fails, from when its job makes steps on: anywhere in three heartbeats, since that decides how
    late it is noticed."""
    return round(random.Random(f"{seed}/goodput_year/leaf/{number}").uniform(0, 3 * beat_s), 6)


SUSPENDED_S = 30.0
"""About how long a suspension takes, with the other job's steps and the return."""
