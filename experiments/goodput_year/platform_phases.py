"""The phases of the platform: a job on all of its nodes but one, hit by failures, and suspended for others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from cluster.platform.config import PlatformConfig, SubmittedJob
from cluster.platform.job import PlatformJob
from cluster.platform.programs import EVENTS
from cluster.platform.supervision import SupervisedPrograms
from experiments.goodput_year.config import GoodputYearConfig, Kind, ProgramConfig
from experiments.goodput_year.draws import Place, Planned, drawn_failures, ends_s, submissions_s
from experiments.goodput_year.failure_costs import (
    Failed,
    FailureCost,
    LifeSteps,
    SuspensionCost,
    failure_costs,
    life_steps,
    stalled_s,
    suspension_costs,
)
from experiments.goodput_year.places import first_nodes, leaf_names, listed
from fabric.errors import TrafficError
from fabric.failures.config import schedule_failures
from fabric.model.lanes import ServiceLevel
from fabric.units import format_time
from runs.jobs import started
from runs.session import PhaseOutcome, Session
from traffic.job import Records

FAILURES, SUSPENSIONS = "failures", "suspensions"
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
    costs = failure_costs([one for one in failed if Kind(one.kind).restarts], rows, lives)
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
    nodes = [session.live.fabric.host_named(node) for node in config.events.nodes]
    stage = replace(session.stage, failing_hosts=hit)
    asked = PlatformConfig(timers=config.events.timers, jobs=tuple(jobs))
    return OpenPlatform(PlatformJob(stage, asked, nodes, ServiceLevel.CONTROL, name))


def seen(session: Session, name: str, outcome: PhaseOutcome) -> tuple[list[dict[str, Any]], dict[int, LifeSteps]]:
    """Return the events of a phase in their order, and the steps of each life, with times in seconds of the run."""
    events: pd.DataFrame = session.table(EVENTS)
    events = events[(events["phase"] == outcome.phase.name) & (events["job"] == name)]
    rows: list[dict[str, Any]] = events.astype({"event": str, "nodes": str, "why": str}).to_dict("records")  # type: ignore[assignment]
    lives = {}
    for row in rows:
        if row["event"] == "started":
            log = session.live.logs / name / row["nodes"].split()[0] / f"{row['life']}-0" / "log"
            text = log.read_text() if log.exists() else ""
            lives[int(row["life"])] = life_steps(int(row["life"]), text, session.origin)
    return rows, lives
