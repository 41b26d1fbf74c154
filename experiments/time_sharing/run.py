"""How long do jobs that share a cluster wait under each policy, and what does a suspend cost?

One list of jobs is played under each policy by the platform, over packets: a scheduler, an agent on every node, and
each rank of each job a process. What starts, suspends and restarts cost is measured there. The same list is then played
by the simulation with these costs and the same scheduler, which says whether processes and messages add anything to its
turns; and longer lists on more nodes are, which are composed of measured costs, and not played with packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from cluster.jobs.spans import LifeSpan
from cluster.nodes import Nodes
from cluster.platform.event_rows import EVENTS
from cluster.platform.kinds import PLATFORM
from cluster.sharing.bounds import bounded_waits
from cluster.sharing.composed import Cluster, Played, Point, grid_of, play_list, sweep
from cluster.sharing.measured_costs import measured_costs
from cluster.sharing.measures import measure
from cluster.sharing.packets import lives_of, suspend_costs
from cluster.simulation.costs import Costs
from cluster.simulation.lives import Job
from experiments.time_sharing.config import TimeSharingConfig
from experiments.time_sharing.summary import Found, summarize
from experiments.time_sharing.tables import TABLES
from fabric.errors import TrafficError
from runs.jobs import started
from runs.session import Session


def run_time_sharing(session: Session, config: TimeSharingConfig) -> dict[str, Any]:
    """Play the list under each policy, then what is composed; return the summary."""
    session.use_queueing(config.queueing)
    nodes, jobs = config.cluster_nodes(session.live.fabric), config.listed.jobs
    users = config.users_of
    given = Cluster(nodes, config.given_costs(), users, config.timers.tick)
    session.tell(
        f"{len(jobs)} jobs {config.listed.what} on {len(nodes)} nodes; {config.listed.said() or 'none left out'}"
    )
    packets = []
    for name in config.policies:
        expected = play_list(jobs, config.policy(name), given, config.seed)
        packets.append(_with_packets(session, config, name, expected))
    own = [one for one in packets if one.policy in config.own_policies]
    costs = measured_costs(own, config.given_costs())
    measured = Cluster(nodes, costs, users, config.timers.tick, reorder_s=config.timers.tick)
    composed = [play_list(jobs, config.policy(name), measured, config.seed) for name in config.own_policies]
    for part, found in (("packets", packets), ("composed", composed)):
        session.keep_frame("sharing_lives", _frame(part, found, nodes.names))
    bounds = {
        one.policy: bounded_waits(jobs, one.lives, users, nodes, config.timers.tick)
        for one in packets
        if config.policy(one.policy).preempts and one in own
    }
    seeds = []
    if len(config.seeds) > 1:
        policies = [config.policy(name) for name in config.own_policies]
        seeds = sweep(config.job_list, measured, policies, [config.job_list.load], config.seeds, session.tell)
    suspends = {one.policy: suspend_costs(one.lives) for one in packets}
    larger = None if config.composed is None else grid_of(config.composed.nodes)
    points = _points(session, config, costs, larger)
    on_nodes = 0 if larger is None else len(larger)
    return summarize(config, Found(packets, suspends, costs, composed, points, bounds, seeds, on_nodes))


def _with_packets(session: Session, config: TimeSharingConfig, name: str, expected: Played) -> Played:
    """Play the list under a policy over packets. The phase is as long as the simulation expects it to take, and ends
    when the last job has ended."""
    jobs = config.listed.jobs
    hosts = config.hosts(session.live.fabric)
    job = PLATFORM.make(session.stage, config.platform(name), hosts, level=PLATFORM.level, name=name)
    with started(session, [job]):
        length_s = max(life.left_s for life in expected.lives)
        outcome = session.run_phase(name, f"{len(jobs)} jobs under {name}", [job], length_s)
    events: list[dict[str, Any]] = outcome.records.rows(EVENTS)
    places = {node: place for place, node in enumerate(config.cluster_nodes(session.live.fabric).names)}
    lives = list_lives(events, jobs, places, session.stage.logs / name, config.step_s)
    return Played(name, jobs, tuple(lives), measure(jobs, lives, config.nodes))


def list_lives(
    events: Sequence[Mapping[str, Any]], jobs: Sequence[Job], places: Mapping[str, int], logs: Path, step_s: float
) -> list[LifeSpan]:
    """Return the lives of the list's jobs, in seconds of the list. Raises TrafficError if jobs are missing, or ended
    otherwise than by themselves."""
    first = min((row for row in events if row["event"] == "submitted"), key=lambda row: row["at_s"], default=None)
    if first is None:
        raise TrafficError("the platform took no job of the list")
    origin_s = float(first["at_s"]) - min(job.submitted_s for job in jobs)

    def log(node: str, life: int) -> Iterable[str]:
        path = logs / node / f"{life}-0" / "log"
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    lives = [_moved(life, origin_s) for life in lives_of(events, places, log, step_s)]
    done = {life.job for life in lives if life.end == "finished"}
    if missing := [job.number for job in jobs if job.number not in done]:
        raise TrafficError(
            f"jobs {missing[:10]} of the list did not finish by themselves; see what their ranks printed in {logs}"
        )
    return lives


def _moved(life: LifeSpan, origin_s: float) -> LifeSpan:
    times = ("queued_s", "began_s", "left_s", "told_s", "answered_s", "first_step_s")
    values = {name: getattr(life, name) for name in times}
    return LifeSpan(
        **{**vars(life), **{name: None if value is None else value - origin_s for name, value in values.items()}}
    )


def _points(session: Session, config: TimeSharingConfig, costs: Costs, nodes: Nodes | None) -> list[Point]:
    composed = config.composed
    if composed is None or nodes is None:
        return []
    policies = [config.policy(name) for name in config.own_policies]
    seeds = range(config.seed, config.seed + composed.repeat)
    cluster = Cluster(nodes, costs)
    return sweep(composed.jobs, cluster, policies, composed.loads, seeds, session.tell)


def _frame(part: str, found: Sequence[Played], names: Sequence[str]) -> pd.DataFrame:
    """Return the rows of lives."""
    rows = []
    for one in found:
        jobs = {job.number: job for job in one.jobs}
        for life in one.lives:
            job = jobs[life.job]
            rows.append(
                (one.policy, part, one.policy, life.job, job.user, job.priority.name,
                 " ".join(names[place] for place in life.nodes), life.queued_s, life.began_s, life.left_s,
                 life.end.value, life.lost_s)
            )  # fmt: skip
    return pd.DataFrame(rows, columns=list(TABLES["sharing_lives"].columns))
