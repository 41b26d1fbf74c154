"""What a kind of job is: one value in the folder of its programs, which :data:`traffic.kinds.TRAFFIC_KINDS` lists.

Who plays jobs asks the value, never which kind it is: configs are made of its keys, jobs by its ``make``, nodes and
routes are chosen by its ``data``, and an experiment reports its ``measures``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fabric.config import Strict
from fabric.measures import Measure, heads
from fabric.metrics import verify_unit
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from traffic.job import Job, Stage

if TYPE_CHECKING:
    from fabric.tables import Table
    from traffic.measures import JobRows

DataFlow = tuple[NodeId, NodeId, float]
"""From node, to node, and which part of a job's data goes there (1: all of it once)."""
Nodes = Sequence[NodeId]


def _none(*_: Any) -> tuple[Any, ...]:
    return ()


ALL_NICS: tuple[int, ...] = ()
"""The numbers of no NICs: flows are divided over all that hosts have in common."""


def _by_all_nics(*_: Any) -> tuple[int, ...]:
    return ALL_NICS


def _no_words(*_: Any) -> str:
    return ""


def _any_number(*_: Any) -> None:
    return None


@dataclass(frozen=True)
class DataOfJob:
    """Where the data of a kind of job goes, by its config, on the nodes that a job has. Loads of ports and the order of
    ranks follow from it.

    ``rails``: the numbers of the NICs over which each flow is divided evenly; :data:`ALL_NICS`: all that two hosts have
    in common; None: the first of these.
    ``orders_ranks``: whether flows are between the job's own nodes and it does not matter to it which node is which
    rank, so that the order may be chosen for the routes; users then have the key ``rank_order``.
    ``serving``: (fabric) -> the hosts besides a job's nodes that programs of it are on.
    ``fixed_nodes``: (config, fabric) -> how many nodes a job takes, not one more or less, and why, as a clause; None:
    as many as it gets. ``one_nic``: why its jobs use one NIC of each host, as a clause; empty: they use all that hosts
    have in common (:func:`fabric.model.rails.rails_in_common`).
    """

    flows: Callable[[Any, Fabric, Nodes], Sequence[DataFlow]] = _none
    rails: Callable[[Any, Fabric, Nodes], Sequence[int | None]] = _by_all_nics
    orders_ranks: bool = False
    serving: Callable[[Fabric], Sequence[NodeId]] = _none
    fixed_nodes: Callable[[Any, Fabric], tuple[int, str] | None] = _any_number
    one_nic: str = ""


@dataclass(frozen=True)
class Measures:
    """What experiments report of a job.

    ``of``: its numbers by name, from its rows in a phase; what cannot be said is missing. ``declared``: what each of
    them is; those with a head are told in a table of the kind's jobs. ``speeds``: the names of those that say how fast
    it was, in bytes (``_Bps``) or operations per second (``_per_s``); what it is measured by is the first of them that
    it has. ``account``: what came to pass, in words, for those of which no speed says it.

    A name ends in a unit of :data:`fabric.metrics.UNITS` or in none; ValueError is raised for any other unit.
    """

    of: Callable[[JobRows], Mapping[str, float]]
    speeds: tuple[str, ...]
    declared: tuple[Measure, ...] = ()
    account: Callable[[JobRows], str] = _no_words

    def __post_init__(self) -> None:
        for name in (*self.speeds, *(one.name for one in self.declared)):
            verify_unit(name)

    @property
    def told(self) -> Mapping[str, str]:
        """The numbers that reports tell in a table of the kind's jobs, by name, each with its head."""
        return heads(self.declared)


class MakeJob(Protocol):
    """Makes a job."""

    def __call__(self, stage: Stage, config: Any, nodes: Nodes, /, *, level: ServiceLevel, name: str) -> Job:
        """Return the job, not started; ``nodes`` are in the order of its ranks."""


@dataclass(frozen=True)
class JobKind:
    """A kind of job: what users configure, the job that comes of it, and what is known of that beforehand.

    - ``meaning``: what its jobs do, for the reference of config keys;
    - ``config``: its own keys, apart from those that all jobs have (:class:`runs.job_config.JobConfig`). Programs get
      no more of a job's config than these. Its ``has_end``, if it has that, says whether a phase lasts until a job has
      done all;
    - ``level``: the Service Level of its packets, unless its config names another;
    - ``least_nodes``: how many compute nodes a job needs at least;
    - ``make``: makes a job, as a rule its class;
    - ``faults``: (config, fabric) -> what of a job cannot be on a fabric, besides what holds for all jobs;
    - ``commands``: what of its config is a command of the user's, which may choose how its sockets behave;
    - ``tables``: those that only its jobs write, by name. Columns of times have one of the names in
      :data:`fabric.results.TIME_COLUMNS`; the run fills a column ``job``;
    - ``preload``: modules that the process that forks programs imports once: those that its programs are in.

    The line is drawn between what a job does and what others must know before it does it: configs, placement, the
    verdict and reports ask this value alone, so none of them changes for a new kind.

    Example: a kind of the job of :class:`traffic.job.Job`::

        class PausesConfig(Strict):
            length: TimeS = Field(default=1.0, description="How long a pause is.")

        PAUSES = JobKind(
            name="pauses",
            meaning="Pauses, in which nothing is sent.",
            config=PausesConfig,
            level=ServiceLevel.OTHER,
            least_nodes=1,
            make=Pauses,
            measures=Measures(lambda rows: {"pauses": float(len(rows.table("pauses")))}, speeds=()),
        )
    """

    name: str
    meaning: str
    config: type[Strict]
    level: ServiceLevel
    least_nodes: int
    make: MakeJob
    measures: Measures
    data: DataOfJob = field(default_factory=DataOfJob)
    faults: Callable[[Any, Fabric], Iterable[str]] = _none
    commands: Callable[[Any], Sequence[str]] = _none
    tables: Mapping[str, Table] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
