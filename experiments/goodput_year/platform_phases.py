"""The phases of the platform: a job on all of its nodes but one, hit by failures, and suspended for others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from cluster.placement import Placement
from cluster.platform.config import PlatformConfig, SubmittedJob
from cluster.platform.event_rows import EVENTS
from cluster.platform.job import PlatformJob
from cluster.platform.programs import HEALTH
from cluster.platform.supervision import SupervisedPrograms
from experiments.goodput_year.config import START_S, GoodputYearConfig, Kind, LeafConfig, ProgramConfig
from experiments.goodput_year.costs_by_steps import (
    Failed,
    FailureCost,
    LifeSteps,
    SuspensionCost,
    costs_by_steps,
    life_steps,
    stalled_s,
    suspension_costs,
)
from experiments.goodput_year.draws import (
    Place,
    Planned,
    drawn_failures,
    ends_s,
    leaf_moment_s,
    submissions_s,
)
from experiments.goodput_year.places import by_leaf, first_nodes, leaf_names, listed
from fabric.errors import TrafficError
from fabric.failures.config import failure_line, schedule_failures
from fabric.model.lanes import ServiceLevel
from fabric.records.packed import names_in
from fabric.units import format_time
from runs.jobs import started
from runs.session import PhaseOutcome, Session
from traffic.job import Records

FAILURES, SUSPENSIONS, LEAVES, VALIDATION = "failures", "suspensions", "leaf", "validation"
"""The phases, and the names of the jobs of the run that play in them."""
_FOR_EVER = 10**9
_URGENT_STEPS = 5


class OpenPlatform:
    """A platform whose phase ends when the run says so, and not once all of its users' jobs have ended."""

    def __init__(self, platform: PlatformJob) -> None:
        self._platform = platform
        self.name, self.level = platform.name, platform.level

    @property
    def failing_programs(self) -> Sequence[SupervisedPrograms]:
        """Its programs, for failures."""
        return self._platform.failing_programs

    def start(self) -> None:
        """Start it."""
        self._platform.start()

    def play(self, phase: str) -> None:
        """Let it decide."""
        self._platform.play(phase)

    def halt(self) -> Records:
        """Stop its users' jobs, and return what has happened."""
        return self._platform.halt()

    def close(self) -> None:
        """End its programs."""
        self._platform.close()


@dataclass(frozen=True)
class CutCost:
    """A link that was cut: when, whose, and how long steps stood still."""

    node: str
    at_s: float
    stalled_s: float


@dataclass(frozen=True)
class Failures:
    """What the failures of a run cost. ``planned``: how many were drawn."""

    planned: int
    costs: list[FailureCost]
    cuts: list[CutCost]


def play_failures(session: Session, config: GoodputYearConfig) -> Failures:
    """Play the phase of failures; return what they cost."""
    events, fabric = config.events, session.live.fabric
    nodes = listed(fabric, events.nodes[1:])
    place = Place(first_nodes(nodes, len(nodes) - 1), nodes.names, leaf_names(fabric, events.nodes))
    planned = drawn_failures(events, place, FAILURES, config.seed)
    if not planned:
        return Failures(0, [], [])
    schedule = schedule_failures([one.line for one in planned], fabric, config.seed)
    asked = SubmittedJob(name="training", user="ada", nodes=len(nodes) - 1, command=command(events.program, _FOR_EVER))
    hit = frozenset(one.node for one in planned)
    job = _platform(session, config, FAILURES, [asked], hit)
    length_s = ends_s(events, planned)
    title = f"{len(planned)} failures of a job on {asked.nodes} nodes, {format_time(length_s)}"
    with started(session, [job]):
        outcome = session.run_phase(FAILURES, title, [job], length_s, schedule)
    rows, lives = seen(session, FAILURES, outcome)
    require_running(rows)
    failed = [
        Failed(one.kind.value, one.node, _came_s(session, number, one, outcome)) for number, one in enumerate(planned)
    ]
    costs = costs_by_steps([one for one in failed if Kind(one.kind).restarts], rows, lives)
    cuts = [_cut(one, rows, lives, config) for one in failed if not Kind(one.kind).restarts]
    return Failures(len(planned), costs, cuts)


def require_running(rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise TrafficError if the job ended by itself, so that nothing was there to be hit: its program has a fault."""
    for row in rows:
        if row["event"] in ("fail", "finished"):
            raise TrafficError(
                f"{FAILURES}: the job ended at {row['at_s']:.1f} s ({row['event']}: {row['why']}), and failures after "
                f"that hit nothing; see logs/{FAILURES}/NODE/{row['life']}-RANK/log"
            )


def _came_s(session: Session, number: int, planned: Planned, outcome: PhaseOutcome) -> float:
    """Return when a failure came, in seconds of the run: when the first change that it asks for was made."""
    made = [change.done_s for change in outcome.faults.changes if number in change.causes]
    return min(made) - session.origin if made else outcome.began_s + planned.at_s


def _cut(
    one: Failed, rows: Sequence[Mapping[str, Any]], lives: Mapping[int, LifeSteps], config: GoodputYearConfig
) -> CutCost:
    program = config.events.program
    running = [row for row in rows if row["event"] == "started" and row["at_s"] <= one.at_s]
    steps = lives[running[-1]["life"]] if running else LifeSteps(0)
    stalled = stalled_s(one.at_s, steps, program.step)
    has_checkpoint = any(
        number % program.every == 0 and one.at_s - program.step <= at_s <= one.at_s + program.step
        for number, at_s in steps.ended_s.items()
    )
    return CutCost(one.node, one.at_s, max(0.0, stalled - (program.stall if has_checkpoint else 0.0)))


def play_suspensions(session: Session, config: GoodputYearConfig) -> list[SuspensionCost]:
    """Play the phase of suspensions; return what they cost."""
    events = config.events
    times = submissions_s(events, config.seed)
    if not times:
        return []
    count, program = len(events.nodes) - 2, events.program
    long = SubmittedJob(name="training", user="ada", nodes=count, command=command(program, _FOR_EVER))
    urgent = [
        SubmittedJob(
            name=f"urgent_{number}",
            user="bo",
            nodes=count,
            command=command(program, _URGENT_STEPS),
            priority="HIGH",
            at=at_s,
        )
        for number, at_s in enumerate(times)
    ]
    job = _platform(session, config, SUSPENSIONS, [long, *urgent])
    title = f"{len(times)} times a job of higher priority takes its nodes"
    with started(session, [job]):
        outcome = session.run_phase(SUSPENSIONS, title, [job], times[-1] + 90.0)
    rows, lives = seen(session, SUSPENSIONS, outcome)
    return suspension_costs(rows, lives)


def play_leaves(session: Session, config: GoodputYearConfig) -> list[FailureCost]:
    """Play leaf switches that fail with several nodes of a job, each in a phase of its own; return what each cost. What
    steps that loses is a matter of the moment, which is drawn for :func:`play_failures`."""
    if config.leaves is None:
        return []
    return [_leaf_lost(session, config, config.leaves, number) for number in range(config.leaves.draws)]


def _leaf_lost(session: Session, config: GoodputYearConfig, leaves: LeafConfig, number: int) -> FailureCost:
    fabric, events, name = session.live.fabric, config.events, f"{LEAVES}_{number + 1}"
    placed = first_nodes(listed(fabric, leaves.nodes[1:]), leaves.job, Placement.LEAVES)
    below = by_leaf(fabric, placed)
    leaf = max(below, key=lambda one: len(below[one]))
    at_s = START_S + leaf_moment_s(config.seed, number, events.timers.beat)
    line = failure_line({"switch": leaf, "at": at_s, "for": events.away})
    schedule = schedule_failures([line], fabric, config.seed)
    job = SubmittedJob(name="training", user="ada", nodes=leaves.job, command=command(events.program, _FOR_EVER))
    asked = PlatformConfig(timers=events.timers, placement=Placement.LEAVES, jobs=(job,))
    platform = _opened(session, asked, leaves.nodes, name, frozenset(below[leaf]))
    title = f"leaf {leaf} fails, with {len(below[leaf])} of the {leaves.job} nodes of a job"
    with started(session, [platform]):
        outcome = session.run_phase(name, title, [platform], at_s + events.away + START_S, schedule)
    rows, lives = seen(session, name, outcome)
    require_running(rows)
    made = [change.done_s for change in outcome.faults.changes]
    failed = Failed(f"leaf of {len(below[leaf])}", below[leaf][0], min(made) - session.origin)
    found = costs_by_steps([failed], rows, lives)
    if not found:
        raise TrafficError(
            f"{name}: the job did not begin again within {events.away + START_S:g} s; raise events.away, or name more "
            "nodes in leaves.nodes"
        )
    return found[0]


def play_validation(session: Session, config: GoodputYearConfig) -> float:
    """Let all nodes of a platform but the scheduler's be validated before a job that has them all; return how long that
    took, from when they had said that they take it: 0 if it is not played. Raises TrafficError if one fails."""
    one = config.validation
    if one is None:
        return 0.0
    names = [node.name for node in session.live.fabric.computes]
    job = SubmittedJob(name="all", user="ada", nodes=len(names) - 1, command=command(config.events.program, _FOR_EVER))
    asked = PlatformConfig(timers=config.events.timers, health=one.health, jobs=(job,))
    platform = _opened(session, asked, names, VALIDATION)
    with started(session, [platform]):
        title = f"{len(names) - 1} nodes are validated before a job"
        outcome = session.run_phase(VALIDATION, title, [platform], one.time)
    rows, lives = seen(session, VALIDATION, outcome)
    checks = session.table(HEALTH)
    checks = checks[(checks["phase"] == VALIDATION) & (checks["job"] == VALIDATION)]
    bad = checks[checks["verdict"].astype(str) == "failed"]
    if not bad.empty:
        first = bad.iloc[0]
        raise TrafficError(f"{VALIDATION}: {first['node']} failed {first['check']}: {first['reason']}")
    asked_s = next((row["at_s"] for row in rows if row["event"] == "asked"), None)
    began_s = next((life.began_s for life in lives.values() if life.began_s is not None), None)
    if asked_s is None or began_s is None:
        raise TrafficError(f"{VALIDATION}: no rank started within {one.time:g} s; raise validation.time")
    return float(began_s) - float(asked_s)


def command(program: ProgramConfig, steps: int) -> tuple[str, ...]:
    """Return the command of a job of so many steps."""
    keys = {"step": program.step, "every": program.every, "stall": program.stall, "durable": program.durable}
    options = [word for key, value in {**keys, "save": program.save}.items() for word in (f"--{key}", f"{value:g}")]
    return (sys.executable, "-m", "cluster.platform.lockstep", str(steps), *options)


def _platform(
    session: Session,
    config: GoodputYearConfig,
    name: str,
    jobs: Sequence[SubmittedJob],
    hit: frozenset[str] = frozenset(),
) -> OpenPlatform:
    asked = PlatformConfig(timers=config.events.timers, jobs=tuple(jobs))
    return _opened(session, asked, config.events.nodes, name, hit)


def _opened(
    session: Session, asked: PlatformConfig, names: Sequence[str], name: str, hit: frozenset[str] = frozenset()
) -> OpenPlatform:
    nodes = [session.live.fabric.host_named(node) for node in names]
    stage = replace(session.stage, failing_hosts=hit)
    return OpenPlatform(PlatformJob(stage, asked, nodes, ServiceLevel.CONTROL, name))


def seen(session: Session, name: str, outcome: PhaseOutcome) -> tuple[list[dict[str, Any]], dict[int, LifeSteps]]:
    """Return the events of a phase in their order, and the steps of each life, with times in seconds of the run."""
    events: pd.DataFrame = session.table(EVENTS)
    events = events[(events["phase"] == outcome.phase.name) & (events["job"] == name)]
    rows: list[dict[str, Any]] = events.astype({"event": str, "nodes": str, "why": str}).to_dict("records")  # type: ignore[assignment]
    lives = {}
    for row in rows:
        if row["event"] == "started":
            log = session.live.logs / name / names_in(row["nodes"])[0] / f"{row['life']}-0" / "log"
            text = log.read_text() if log.exists() else ""
            lives[int(row["life"])] = life_steps(int(row["life"]), text, session.origin)
    return rows, lives
