"""A list of jobs played by the simulation: composed of costs that are given, or that runs with packets measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cluster.jobs.spans import LifeSpan
from cluster.nodes import Nodes
from cluster.policies import Policy
from cluster.sharing.lists import FittedList, ListConfig, fitted_list
from cluster.sharing.measures import Measures, measure
from cluster.simulation.costs import Costs
from cluster.simulation.lives import Job
from cluster.simulation.play import Setup, simulate
from cluster.tasks import Users
from fabric.estimates import Estimate, estimate
from fabric.metrics import is_fraction
from fabric.records.cells import Row, estimated

NODES_PER_LEAF = 16
ZONES = 2


@dataclass(frozen=True)
class Played:
    """A list as it was played: ``lives`` in the order in which they ended."""

    policy: str
    jobs: tuple[Job, ...]
    lives: tuple[LifeSpan, ...]
    measures: Measures


@dataclass(frozen=True)
class Cluster:
    """What a list is played on. ``tick_s``: how often the scheduler decides; ``reorder_s``: how often it does though
    nothing has happened, which matters where usage orders tasks, and costs (None: never)."""

    nodes: Nodes
    costs: Costs
    users: Users = Users()  # noqa: RUF009 - frozen
    tick_s: float = 1.0
    reorder_s: float | None = None


def grid_of(nodes: int, zones: int = ZONES) -> Nodes:
    """Return a cluster of two zones and leaves of 16 nodes, of at least so many nodes: whole leaves, as many in each
    zone. State how many it has, see :func:`nodes_words`."""
    if nodes < zones * NODES_PER_LEAF:
        return Nodes.grid(zones, 1, -(-nodes // zones))
    return Nodes.grid(zones, -(-nodes // (zones * NODES_PER_LEAF)), NODES_PER_LEAF)


def nodes_words(played: int, asked: int) -> str:
    """Return how many nodes a list was played on, and how many were asked for, if :func:`grid_of` made more of them."""
    return f"{played} nodes" if played == asked else f"{played} nodes (whole leaves in two zones; {asked} asked for)"


def play_list(jobs: Sequence[Job], policy: Policy, cluster: Cluster, seed: int) -> Played:
    """Play a list until all of it has ended. Raises ConfigError for a job that could never start."""
    setup = Setup(cluster.nodes, cluster.users, policy, cluster.costs, cluster.tick_s, seed, cluster.reorder_s)
    found = simulate(setup, jobs)
    return Played(policy.name, tuple(jobs), found.lives, measure(jobs, found.lives, len(cluster.nodes)))


@dataclass(frozen=True)
class Point:
    """A list of a load and a seed under a policy."""

    policy: str
    load: float
    seed: int
    measures: Measures


def sweep(
    config: ListConfig,
    cluster: Cluster,
    policies: Sequence[Policy],
    loads: Sequence[float],
    seeds: Sequence[int],
    tell: Callable[[str], None],
) -> list[Point]:
    """Play a list for each load and seed under each policy: all policies play the same ones."""
    found = []
    for load in loads:
        for seed in seeds:
            listed = _at(config, cluster, load, seed)
            tell(f"load {load:g}, seed {seed}: {len(listed.jobs)} jobs on {len(cluster.nodes)} nodes")
            for policy in policies:
                measures = play_list(listed.jobs, policy, cluster, seed).measures
                found.append(Point(policy.name, load, seed, measures))
    return found


def _at(config: ListConfig, cluster: Cluster, load: float, seed: int) -> FittedList:
    return fitted_list(config.model_copy(update={"load": load}), len(cluster.nodes), cluster.costs, seed)


def over_seeds(points: Iterable[Point], policy: str, load: float, name: str) -> Estimate | None:
    """Return the median of a number over seeds, with its interval; None if no seed has it."""
    values = [
        one.measures.numbers()[name]
        for one in points
        if (one.policy, one.load) == (policy, load) and name in one.measures.numbers()
    ]
    return estimate(values) if values else None


COLUMNS = (
    "waits, mean s", "median", "95 %", "high, mean", "normal, mean", "used, all", "while jobs come", "while one waits",
    "one waits", "suspends", "kills", "lost node-s", "fairness", "ends h",
)  # fmt: skip
"""What a row of :func:`row_of` is."""
_NAMES = (
    "wait_mean_s", "wait_median_s", "wait_p95_s", "priority_high.wait_mean_s", "priority_normal.wait_mean_s",
    "used_fraction", "used_arriving_fraction", "used_waiting_fraction", "waited_fraction", "suspends", "kills",
    "lost_node_s", "fairness", "makespan_s",
)  # fmt: skip


_FORMS = {"fairness": ".3f", "makespan_s": ",.1f in h", "suspends": ",.0f", "kills": ",.0f"}


def row_of(points: Sequence[Point], policy: str, load: float) -> Row:
    """Return a policy's row at a load: medians over seeds, with 95 % intervals where there are several."""
    return [estimated(over_seeds(points, policy, load, name), form_of(name)) for name in _NAMES]


def form_of(name: str) -> str:
    """Return how a number of a policy is written: fractions in percent, times in seconds."""
    return ".1%" if is_fraction(name) else _FORMS.get(name, ",.0f in s")
