"""A study as a value: the cases of a grid, how one is played and measured, and what is said of all of them.

``Study`` is the ``run`` of an experiment that plays a phase per case. One whose phases depend on what happens in them
plays by itself, and calls :meth:`Study.summarize`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Generic, TypeVar

import pandas as pd

from fabric.failures.config import schedule_failures
from fabric.failures.schedule import FailureSchedule
from fabric.measure.verdict import Check
from fabric.measures import Measure
from fabric.metrics import Metric, Numbers, metric_path, metrics_of, theory_name
from fabric.model.network import Fabric, Port
from fabric.records.cells import Quantity, ratio
from fabric.records.figure_forms import CASES, Form
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from runs.case_tables import ALONE, CaseTable
from runs.cases import Case, OneCase
from runs.cases import Point as Point
from runs.counted_operations import counted_s, operation_metrics
from runs.job_config import JobConfig
from runs.jobs import announce, started
from runs.phase_rows import carried_out_checks
from runs.session import PhaseOutcome, Session
from runs.side_by_side import SideBySide
from runs.stall_metrics import stall_metrics
from runs.timeline import JobWindow
from traffic.job import Job, Records
from traffic.measures import JobRows, windows_of
from traffic.stepped_job import FiniteSteps, SteppedJob

Config = TypeVar("Config")


@dataclass(frozen=True)
class Played(Generic[OneCase, Config]):
    """A case that was played, to be measured. ``counted``: what playing it returned; ``phase_outcome``: None of a case
    that is put together of other phases, and is none itself."""

    session: Session
    config: Config
    case: OneCase
    phase_outcome: PhaseOutcome | None
    counted: Mapping[str, float]

    @property
    def outcome(self) -> PhaseOutcome:
        """What came of its phase."""
        assert self.phase_outcome is not None, f"{self.case.name} is not a phase"
        return self.phase_outcome

    @property
    def fabric(self) -> Fabric:
        """The fabric that it was played on."""
        return self.session.live.fabric

    @property
    def phase(self) -> Phase:
        """Its phase."""
        return self.outcome.phase

    def rows(self, table: str, job: str | None = None) -> pd.DataFrame:
        """Return the rows of its phase in a table, of one job or of all."""
        found = self.session.table(table)
        return found[(found["phase"] == self.case.name) & (True if job is None else found["job"] == job)]

    @property
    def counted_s(self) -> tuple[float, float]:
        """From when to when it counts: after the config's ``warm_up``, if it has that, while all of its load plays."""
        return counted_s(self.phase, getattr(self.config, "warm_up", 0.0))

    def numbers_of(self, job: JobConfig, phase: str = "") -> Mapping[str, float]:
        """Return what the kind of a job reports of it in the phase, or in another one."""

        def mine(name: str) -> pd.DataFrame:
            rows = self.session.table(name)
            return rows[(rows["phase"] == (phase or self.case.name)) & (rows["job"] == job.name)]

        return job.of_kind.measures.of(JobRows(mine, windows_of(mine("jobs"))))

    def packets(self, *names: str) -> dict[str, float]:
        """Return counts of its packets, see :func:`packet_numbers`."""
        return packet_numbers(self.outcome, *names)

    def operations(self, kind: str, name: str | None = None, job: str | None = None) -> dict[str, float]:
        """Return the numbers of a kind of operation in the time that counts, see
        :func:`runs.counted_operations.operation_metrics`."""
        return operation_metrics(self.rows("operations", job), kind, self.counted_s, name)

    def reads(self, job: str | None = None) -> dict[str, float]:
        """Return those of reads; a bandwidth of nothing if none began."""
        return self.operations("read", job=job) or {"read.bandwidth_Bps": 0.0, "read.operations": 0.0}

    def stalls(self, played_s: float | None = None, port: Port | None = None) -> dict[str, float]:
        """Return the numbers of its lossless lanes, of all ports or of one, see
        :func:`runs.stall_metrics.stall_metrics`."""
        stalls = self.session.table("stalls")
        return stall_metrics(stalls if port is None else stalls[stalls["port"] == str(port)], self.outcome, played_s)


_COUNTS = {
    "sent_packets": "sent_packets",
    "drops_packets": "dropped_by_queues",
    "retransmissions": "retransmissions",
    "timeouts": "timeouts",
    "sent_twice": "sent_twice",
    "overtaking": "overtook",
    "naks": "naks",
    "cnps": "cnps",
}


def packet_numbers(outcome: PhaseOutcome, *names: str) -> dict[str, float]:
    """Return counts of a phase's packets by the names of :data:`runs.measures.PACKETS`; by default those that queues
    dropped and those that were sent again."""
    chosen = names or ("drops_packets", "retransmissions")
    return {name: float(getattr(outcome.conservation, _COUNTS[name])) for name in chosen}


@dataclass(frozen=True)
class Outcome(Generic[OneCase]):
    """The outcome of a case. ``aside``: numbers of it that are not metrics; ``settings``: of a part of it, its own;
    ``others``: the outcomes of all cases by their names."""

    case: OneCase
    metrics: Sequence[Metric]
    aside: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Outcome[OneCase]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def values(self) -> Numbers:
        """Its numbers by their names in the phase; NaN for one that nothing measured."""
        return Numbers({**self.aside, **{one.name_in_phase: one.value for one in self.metrics}})

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def at(self, point: Point) -> Outcome[OneCase]:
        """Return a part of it."""
        return replace(self, aside={**self.aside, **point.numbers}, settings=point.settings)

    def alone(self, number: str = "") -> Numbers:
        """Return the numbers of the case in which the job, or part, with a number of this name plays alone."""
        other = self.others.get(self.case.alone(number))
        return Numbers() if other is None else other.values

    def times(self, number: str, form: str = ".2f x") -> Quantity:
        """Return how many times that alone a number is, with a bound where one of the two has one; NaN if unknown."""
        return ratio(self.values, self.alone(number), number, form)


@dataclass(frozen=True)
class Found(Generic[OneCase, Config]):
    """The outcomes of all cases, in their order."""

    session: Session
    config: Config
    outcomes: Sequence[Outcome[OneCase]]

    @property
    def fabric(self) -> Fabric:
        """The fabric that they were played on."""
        return self.session.live.fabric

    def played(self, one: Outcome[OneCase]) -> Played[OneCase, Config]:
        """Return the case of an outcome with its phase."""
        phases = {played.phase.name: played for played in self.session.phases}
        return Played(self.session, self.config, one.case, phases.get(one.case.name), {})

    def of(self, name: str) -> Outcome[OneCase]:
        """Return the outcome of the case of this name, such as one in which something plays alone."""
        return next(one for one in self.outcomes if one.case.name == name)


@dataclass(frozen=True)
class Repeats(Generic[OneCase]):
    """The outcomes of cases that repeat each other: its numbers are their medians."""

    outcomes: Sequence[Outcome[OneCase]]

    @property
    def case(self) -> OneCase:
        """The first of them."""
        return self.outcomes[0].case

    @cached_property
    def values(self) -> Numbers:
        """The medians over repeats; NaN for a number that none has."""
        names = dict.fromkeys(name for one in self.outcomes for name in one.values)
        return Numbers({name: float(pd.Series(self.each(name)).median()) for name in names})

    def each(self, name: str) -> list[float]:
        """Return a number of each repeat."""
        return [one[name] for one in self.outcomes]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def over_repeats(outcomes: Sequence[Outcome[OneCase]], text: str) -> list[Repeats[OneCase]]:
    """Return outcomes, group by group: cases are repeats of each other if ``text``, with settings in braces, reads the
    same."""
    groups: dict[str, list[Outcome[OneCase]]] = {}
    for one in outcomes:
        groups.setdefault(one.case.format(text), []).append(one)
    return [Repeats(group) for group in groups.values()]


def medians(text: str) -> Callable[[Found[OneCase, Any]], list[Repeats[OneCase]]]:
    """Return the rows of a table or an answer that has a row per group of repeats, see :func:`over_repeats`."""
    return lambda found: over_repeats(found.outcomes, text)


@dataclass(frozen=True)
class Part(Generic[OneCase]):
    """A part of a case, such as one of its jobs. Its numbers are named without the part; without a name it is all.
    Numbers of the case in which it plays alone are named after ``alone.``."""

    part: str
    outcome: Outcome[OneCase]

    @property
    def case(self) -> OneCase:
        """The case."""
        return self.outcome.case

    @property
    def settings(self) -> dict[str, str]:
        """The name of the part, which tables have as ``{part}``."""
        return {"part": self.part}

    @cached_property
    def values(self) -> Numbers:
        """Its numbers, and those alone."""
        alone = self.outcome.alone(self.part).of(self.part)
        mine = self.outcome.values.of(self.part)
        return Numbers({**{metric_path(ALONE, name): value for name, value in alone.items()}, **mine})

    @property
    def is_measured(self) -> bool:
        """Whether the case has any number of the part."""
        return bool(self.outcome.values.of(self.part))

    def times(self, name: str, form: str = ".2f x") -> Quantity:
        """Return how many times that alone a number is, see :meth:`Outcome.times`."""
        return self.outcome.times(metric_path(self.part, name), form)

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def _nothing(*_: Any) -> Mapping[str, Any]:
    return {}


def _in_no_words(_: Any) -> str:
    return ""


def _as_a_whole(*_: Any) -> Sequence[Point]:
    return (Point(),)


@dataclass(frozen=True)
class Jobs:
    """How a study plays a case whose jobs are all that there is to say: ``make`` returns them, made of the config that
    is the case's own (:meth:`runs.cases.Case.in_config`). They play together for the time at its key ``lasts``, by
    default until all is done. The queueing is the case's, or the config's; ``prepare`` makes ready what else
    differs, such as routes; ``counts``: by name, functions of nothing that grow while cases play, each of which is
    measured by its growth. A case may have a routing ``policy``, and ``failures``, lines of the config that it has at
    the key ``fails``, a text with settings in braces."""

    make: Callable[[Session, Any, Any], Sequence[Job | JobWindow]]
    lasts: str = ""
    prepare: Callable[[Session, Any, Any], object] = _nothing
    counts: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    fails: str = ""

    def __call__(self, session: Session, config: Any, case: Any) -> dict[str, float]:
        """Play a case, and return what was counted meanwhile."""
        own = case.in_config(config)
        before = {name: count() for name, count in self.counts.items()}
        self.prepare(session, own, case)
        use_settings(session, own, case)
        lasts_s = attrgetter(self.lasts)(own) if self.lasts else 0.0
        failing = schedule_failures(case.failures, session.live.fabric, config.seed) if self.fails else None
        schedule = failing if failing and failing.events else None
        play_case(session, case, self.make(session, own, case), lasts_s, schedule, case.format(self.fails))
        return {name: count() - before[name] for name, count in self.counts.items()}


def use_settings(session: Session, config: Any, case: Any) -> None:
    """Let the fabric have the routing policy of a case, if it has one, and its queueing, or else that of the config."""
    if hasattr(case, "policy"):
        session.use_routing(config.routing.model_copy(update={"policy": case.policy}), case.policy.name)
    session.use_queueing(case.queueing if hasattr(case, "queueing") else config.queueing)


@dataclass(frozen=True)
class SameJobs:
    """How a study plays all cases with the same jobs: ``make`` returns them, in the order in which they start; ``play``
    plays a case with them, and returns what only it can count, by default all of them in the case's queueing for the
    time at the config's key ``lasts``. ``behind``: what is done once all cases have played, while jobs are still there;
    it returns further parts of the summary."""

    make: Callable[[Session, Any], Sequence[Job]]
    play: Callable[[Session, Any, Any, Sequence[Any]], Mapping[str, float] | None] | None = None
    lasts: str = ""
    behind: Callable[[Session, Any, Sequence[Any]], Mapping[str, Any]] = _nothing

    def __call__(
        self, session: Session, config: Any, cases: Sequence[Case]
    ) -> tuple[dict[str, Mapping[str, float]], Mapping[str, Any]]:
        """Play cases; return what was counted, by their names, and the further parts."""
        jobs, play = self.make(session, config), self.play or self._play
        with started(session, jobs):
            counted = {case.name: play(session, config, case, jobs) or {} for case in cases}
            return counted, self.behind(session, config, jobs)

    def _play(self, session: Session, config: Any, case: Any, jobs: Sequence[Job]) -> None:
        use_settings(session, config, case)
        session.run_phase(case.name, case.title, jobs, attrgetter(self.lasts)(config))


def of_job(
    job: str, numbers: Callable[[Played[OneCase, Config]], Mapping[str, float]], is_named_by_job: bool = False
) -> Callable[[Played[OneCase, Config]], list[Metric]]:
    """Return a ``measure`` of a job of a case, whose name paths of metrics do not need."""
    return lambda played: metrics_of(played.case.name, job, numbers(played), is_named_by_job)


Measuring = Callable[[Played[OneCase, Config]], Iterable[Metric] | Mapping[str, float]]
"""Measures a case that was played: its metrics, or numbers of all of it by name."""


@dataclass(frozen=True, kw_only=True)
class Question(Generic[OneCase, Config]):
    """What is asked of cases, of the classes ``kinds`` alone, which are then all that it sees:

    - ``measure``: the metrics of one that was played, or numbers of all of it by name, or several functions of such,
      those of a job by :func:`of_job`; ``measures``: what those mean that only this study reports;
    - ``theory``: what closed forms say of one, by the names of the numbers that they are beside, as tables and figures
      have it by :func:`fabric.metrics.theory_name`; ``aside``: what else these show of one beside its metrics;
    - ``over_cases``: metrics for which one case is not enough, behind those of all cases;
    - ``points``: the parts of one that figures show each by itself; by default it is one;
    - ``answer``: the finding in words; ``tables``: of what was found; ``more``: further parts of the summary;
    - ``figures``: by their form.
    """

    kinds: type[Case] | tuple[type[Case], ...] = Case
    measure: Measuring[OneCase, Config] | Sequence[Measuring[OneCase, Config]] = _nothing
    answer: Callable[[Found[OneCase, Config]], str] = _in_no_words
    tables: Sequence[CaseTable] | Callable[[Found[OneCase, Config]], Iterable[SummaryTable]] = ()
    theory: Callable[[Found[OneCase, Config], Outcome[OneCase]], Mapping[str, float]] = _nothing
    aside: Callable[[Found[OneCase, Config], Outcome[OneCase]], Mapping[str, float]] = _nothing
    over_cases: Callable[[Found[OneCase, Config]], Iterable[Metric]] = lambda _: ()
    points: Callable[[Found[OneCase, Config], Outcome[OneCase]], Sequence[Point]] = _as_a_whole
    more: Callable[[Found[OneCase, Config]], Mapping[str, Any]] = _nothing
    measures: Sequence[Measure] = ()
    figures: Sequence[Form] = ()

    def metrics_of(self, played: Played[OneCase, Config]) -> Sequence[Metric]:
        """Return the metrics of a case that was played; none of one that it does not ask of."""
        measuring = (self.measure,) if callable(self.measure) else self.measure
        found = [measure(played) for measure in measuring] if isinstance(played.case, self.kinds) else []
        by_job = (metrics_of(played.case.name, "", one) if isinstance(one, Mapping) else one for one in found)
        return [metric for metrics in by_job for metric in metrics]

    def aside_of(self, found: Found[OneCase, Config], one: Outcome[OneCase]) -> dict[str, float]:
        """Numbers of a case beside its metrics, closed forms among them; none of a case that it does not ask of."""
        if not isinstance(one.case, self.kinds):
            return {}
        mine = self.seen(found)
        return {**{theory_name(name): value for name, value in self.theory(mine, one).items()}, **self.aside(mine, one)}

    def seen(self, found: Found[OneCase, Config]) -> Found[OneCase, Config]:
        """The outcomes of the cases that it asks of."""
        return replace(found, outcomes=[one for one in found.outcomes if isinstance(one.case, self.kinds)])

    def tables_of(self, found: Found[OneCase, Config]) -> list[SummaryTable]:
        """Return its tables that have rows."""
        made = self.tables(found) if callable(self.tables) else (table.of(found) for table in self.tables)
        return [table for table in made if table.rows]


@dataclass(frozen=True, kw_only=True)
class Study(Question[OneCase, Config]):
    """A question that a grid of cases answers, or several.

    - ``cases``: those of a config: a function of it, or grids, one after the other; they play in this order, or
      sorted by ``order``, a function of the config and a case;
    - ``play``: plays one, a phase of its name, and returns what only it can count, if that is something; :class:`Jobs`
      where naming its jobs says it, :class:`SameJobs` where all cases have the same ones;
    - ``further``: what else is asked of the same cases; ``side_by_side``: the figure of all queueings side by side.
    """

    title: str | Callable[[Found[OneCase, Config]], str]
    cases: Callable[[Config], Sequence[OneCase]] | Sequence[type[OneCase]]
    play: Callable[[Session, Config, OneCase], Mapping[str, float] | None] | SameJobs | None = None
    order: Callable[[Config, OneCase], Any] | None = None
    further: Sequence[Question[OneCase, Config]] = ()
    side_by_side: SideBySide | None = None

    @property
    def questions(self) -> tuple[Question[OneCase, Config], ...]:
        """All that it asks."""
        return (self, *self.further)

    def cases_of(self, config: Config) -> Sequence[OneCase]:
        """Return the cases of a config."""
        return self.cases(config) if callable(self.cases) else [one for grid in self.cases for one in grid.grid(config)]

    def __call__(self, session: Session, config: Config) -> dict[str, Any]:
        """Play every case and return the summary."""
        assert self.play is not None, "a study without it has a run of its own"
        cases = self.cases_of(config)
        more: Mapping[str, Any] = {}
        playing = sorted(cases, key=partial(self.order, config)) if self.order else cases
        if isinstance(self.play, SameJobs):
            counted, more = self.play(session, config, playing)
        else:
            counted = {case.name: self.play(session, config, case) or {} for case in playing}
        return {**self.summarize(session, config, cases, counted), **more}

    def summarize(
        self,
        session: Session,
        config: Config,
        cases: Sequence[OneCase],
        counted: Mapping[str, Mapping[str, float]] | None = None,
    ) -> dict[str, Any]:
        """Return the summary of cases that were played, each a phase or put together of phases. ``counted``: what
        playing counted, by their names."""
        phases = {one.phase.name: one for one in session.phases}
        measured: list[Outcome[OneCase]] = []
        others: dict[str, Outcome[OneCase]] = {}
        for case in cases:
            played = Played(session, config, case, phases.get(case.name), (counted or {}).get(case.name, {}))
            metrics = [metric for asked in self.questions for metric in asked.metrics_of(played)]
            measured.append(Outcome(case, metrics, played.counted, others=others))
        others |= {one.case.name: one for one in measured}
        before = Found(session, config, measured)
        asides = [{name: value for asked in self.questions for name, value in asked.aside_of(before, one).items()}
                  for one in measured]  # fmt: skip
        outcomes = [replace(one, aside={**one.aside, **more}) for one, more in zip(measured, asides, strict=True)]
        others |= {one.case.name: one for one in outcomes}
        found = replace(before, outcomes=outcomes)
        answered = [(asked, seen) for asked in self.questions if (seen := asked.seen(found)).outcomes or asked is self]
        showing = [asked for asked in self.questions if asked.points is not _as_a_whole] or [self]
        parts = [(one, asked.points(found, one)) for one in outcomes for asked in showing
                 if isinstance(one.case, asked.kinds)]  # fmt: skip
        side_by_side = {"side_by_side": self.side_by_side.of(found)} if self.side_by_side else {}
        return {
            "title": self.title if isinstance(self.title, str) else self.title(found),
            "answer": " ".join(filter(None, (asked.answer(seen) for asked, seen in answered))),
            "metrics": [
                *(metric for one in outcomes for metric in one.metrics),
                *(metric for asked, seen in answered for metric in asked.over_cases(seen)),
            ],
            "tables": [table for asked, seen in answered for table in asked.tables_of(seen)],
            CASES: [_shown(one, point) for one, points in parts for point in points],
            **side_by_side,
            **{name: part for asked, seen in answered for name, part in asked.more(seen).items()},
        }


def _shown(one: Outcome[Any], point: Point) -> dict[str, Any]:
    """Return what figures need of a part of a case beside its metrics."""
    settings, aside = {**one.case.settings, **point.settings}, {**one.aside, **point.numbers}
    return {"phase": one.case.name, "title": one.case.title, "settings": settings, "aside": aside}


def play_case(
    session: Session,
    case: Case,
    jobs: Sequence[Job | JobWindow],
    duration_s: float = 0.0,
    schedule: FailureSchedule | None = None,
    key: str = "",
) -> None:
    """Start jobs, play them together in the phase of a case, and close them. By default they play until they have done
    what they have to do. ``schedule``: what fails meanwhile, by default the run's ``failures``; ``key``: of the config,
    which lists it, if a failure that never happened counts as a check."""
    made = [one.job if isinstance(one, JobWindow) else one for one in jobs]
    with started(session, list({id(job): job for job in made}.values())):
        outcome = session.run_phase(case.name, case.title, jobs, duration_s, schedule)
    if schedule is not None and key:
        session.checks += _missed(session.table("failures"), outcome.phase, schedule, key)


def _missed(failures: pd.DataFrame, phase: Phase, schedule: FailureSchedule, key: str) -> list[Check]:
    """Return the checks of failures that never happened, as those that are due after a phase has ended."""
    from_s, end_s = phase.load_s
    rows = failures[failures["phase"] == phase.name]
    return [one for one in carried_out_checks(schedule, rows, end_s - from_s, key) if one.value]


def play_steps(
    session: Session,
    phase: str,
    title: str,
    job: SteppedJob,
    after_s: float = 0.0,
    schedule: FailureSchedule | None = None,
) -> None:
    """Start a job of steps, let it open its windows, play a step of it as a phase, and close it. ``after_s``: when the
    step begins; ``schedule``: what fails meanwhile, by default the run's ``failures``; with one, packets that open the
    windows are not counted."""

    def played(phase: str) -> Records:
        if after_s:
            time.sleep(after_s)
        return job.run_steps(1, phase)

    announce(session, title)
    with closing(job):
        job.start()
        job.warm_up() if schedule is None else session.warm_up(job)
        session.run_phase(phase, title, [FiniteSteps(job, played)], 0.0, schedule)
