"""A measured run on a live fabric: phases of traffic, each sampled and counted, then a verdict and files."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pandas as pd

from controllers.routing import Routing
from fabric.errors import FabricError, TrafficError
from fabric.failures.report import Change, FaultReport
from fabric.failures.schedule import FailureSchedule
from fabric.measure.fidelity import PhaseEvidence, disturbance_checks, judge
from fabric.measure.frames import cores_frame, machine_frame, ports_frame, stalls_frame, waits_frame
from fabric.measure.live_file import LivePhase
from fabric.measure.port_rates import FullQueue
from fabric.measure.sampling import Series
from fabric.measure.verdict import Check, Verdict
from fabric.model.lanes import Acknowledgements, QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.marking import Marking
from fabric.model.network import Fabric
from fabric.records.calibration import LinkCalibration
from fabric.records.conservation import Conservation
from fabric.results import Phase
from fabric.tables import TABLES, Table
from fabric.world.engines import current_engine
from fabric.world.programs.agents import AgentPool
from runs.attempts import Attempts, SetAside
from runs.calibrating import calibrated
from runs.config import RunConfig
from runs.decided_jobs import Decider, Played
from runs.excuses import Excuses, troubles
from runs.failures import Injections, failing_hosts, rotten_hosts, stopped_on
from runs.load_evidence import LoadEvidence, load_evidence
from runs.phase_meter import Measured, PhaseMeter, TimeUse
from runs.phase_rows import carried_out_checks, controller_rows, ended_checks, failure_rows, job_row, timely_checks
from runs.run_tables import RunTables
from runs.timeline import DoneTo, JobWindow, Timeline
from runs.ways import Moved, WayFinder, moves_in
from traffic import congestion_control
from traffic.dcqcn import DcqcnConfig
from traffic.job import FiniteJob, Job, Records, Stage
from traffic.transport import queue_pairs
from traffic.transport.connection import SocketOptions, Transport
from traffic.transport.messages import MessageTransport, nic_of
from traffic.transport.queue_pairs import QueuePairConfig
from traffic.transport.reordering import TransportConfig, sysctls
from traffic.transport.tcp import TcpTransport
from traffic.transport.verbs import VerbsTransport

if TYPE_CHECKING:
    from runs.live import LiveFabric, Tell
    from traffic.stepped_job import SteppedJob  # Not every run has one, and each would load it.

_PROGRESS_S = 0.5
Progress = Callable[[str, float], None]
"""Callback for the progress of a phase: its title and the fraction done."""


def _nobody(*_: object) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Audience:
    """Whom a run tells: ``tell`` what it does, ``progress`` how far a phase is; by default nobody. ``live_file``: where
    samples go as they are taken, for whoever watches."""

    tell: Tell = _nobody
    progress: Progress = _nobody
    live_file: Path | None = None


@dataclass(frozen=True)
class RunSettings:
    """What of a run's config its session goes by, whatever the experiment."""

    queues: QueueConfig
    seed: int
    sample_period_s: float
    congestion_control: dict[ServiceLevel, str] = field(default_factory=dict)
    dcqcn: DcqcnConfig = field(default_factory=DcqcnConfig)
    receive_window_bytes: int | None = None
    transport: TransportConfig = field(default_factory=TransportConfig)
    phase_attempts: int = 1
    live_file: Path | None = None
    """Where samples go as they are taken, for whoever watches the run."""

    @classmethod
    def of(cls, config: RunConfig, fabric: Fabric, live_file: Path | None = None) -> RunSettings:
        """Return those of a config on a fabric."""
        return cls(
            queues=config.queues,
            seed=config.seed,
            sample_period_s=config.sampled_on(fabric),
            congestion_control=config.congestion_controls(),
            dcqcn=config.dcqcn,
            receive_window_bytes=config.receive_window,
            transport=config.transport,
            phase_attempts=config.phase_attempts,
            live_file=live_file,
        )

    def make_transport(self, fabric: Fabric, queueing: Queueing) -> Callable[[SocketOptions], Transport]:
        """Return the transport of jobs that start now on a fabric, by the options of their sockets."""
        if self.transport.kind == "messages":
            return partial(
                MessageTransport,
                config=self.transport.messages,
                nic=nic_of(fabric),
                reordering=self.transport.reordering,
                answers_ahead=queueing is Queueing.TRIMMED or self.queues.acknowledgements is Acknowledgements.CONTROL,
            )
        return partial(VerbsTransport, pairs=self.transport.queue_pairs) if self.transport.is_rdma else TcpTransport


@dataclass(frozen=True)
class PhaseOutcome:
    """The measurements of a phase."""

    phase: Phase
    records: Records
    """The rows of its jobs; times are still ``time.monotonic()``."""
    conservation: Conservation
    """The census of its packets."""
    machine: pd.DataFrame
    """Rows of ``machine``; the last covers the sample taken just after the phase ended. ``cores`` likewise."""
    faults: FaultReport = field(default_factory=FaultReport)
    """Its failures; times are still ``time.monotonic()``."""
    routing: Routing = field(default_factory=Routing)
    moves: tuple[Moved, ...] = ()
    """The moves of adaptive routing by its end, in seconds since the run's origin."""
    cores: pd.DataFrame = field(default_factory=lambda: TABLES["cores"].empty())
    full_queues: Sequence[FullQueue] = ()
    """Its full ports."""
    used: TimeUse = field(default_factory=TimeUse)
    """The time that its parts took."""
    controls: Mapping[str, str] = field(default_factory=dict)
    """The congestion control of each service level of data."""
    load: LoadEvidence = field(default_factory=LoadEvidence)
    """What its jobs did, and what failures did to their programs."""

    @property
    def began_s(self) -> float:
        """When in the run the jobs of the whole phase had all begun: its failures count from then."""
        return self.phase.load_s[0]

    @property
    def evidence(self) -> PhaseEvidence:
        """The evidence for the verdict."""
        seconds = self.phase.ended_s - self.phase.started_s
        return PhaseEvidence(
            self.phase.name,
            self.conservation,
            self.machine,
            seconds,
            self.cores,
            self.full_queues,
            self.used.cpu,
            self.used.spun,
            self.load.loads,
            self.load.failed,
            self.load.stopped,
        )


@dataclass(frozen=True)
class _PlayedPhase:
    """What the jobs of a phase did: when those of the whole phase all had begun and when the first was told to halt
    (``time.monotonic()``), their rows, when each played, and what failed."""

    begun: float
    halted: float
    records: Records
    played: list[Played]
    faults: FaultReport
    standing: tuple[Change, ...] = ()
    """What earlier phases left of failures."""


@dataclass(frozen=True)
class _Attempt:
    """A phase as it was played once: when that started (``time.monotonic()``), what was measured, what its jobs did."""

    started: float
    outcome: PhaseOutcome
    played: _PlayedPhase


@dataclass
class Session:
    """One run. ``failures`` happen in each phase that has no schedule of its own; ``checks`` are the experiment's own,
    in addition to those of all runs.
    """

    live: LiveFabric
    pool: AgentPool
    settings: RunSettings
    tell: Tell
    progress: Progress
    failures: FailureSchedule | None = None
    phases: list[PhaseOutcome] = field(default_factory=list)
    calibrations: dict[str, list[LinkCalibration]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    routing_label: str = field(init=False)
    _tables: RunTables = field(default_factory=RunTables)
    _meter: PhaseMeter = field(init=False)

    @classmethod
    def of(
        cls,
        config: RunConfig,
        live: LiveFabric,
        pool: AgentPool,
        audience: Audience = Audience(),  # noqa: B008 - frozen
        own_tables: Mapping[str, Table] = MappingProxyType({}),
    ) -> Session:
        """Return the run that a config asks for, on a fabric that is up; ``own_tables``: those of its experiment."""
        schedule, tables = config.failure_schedule(live.fabric), RunTables(own_tables)
        settings = RunSettings.of(config, live.fabric, audience.live_file)
        return cls(live, pool, settings, audience.tell, audience.progress, schedule, _tables=tables)

    def __post_init__(self) -> None:
        self._meter = PhaseMeter(self.live, self.pool, self.settings.sample_period_s, self.settings.live_file)
        self.routing_label = self.live.routing.name
        self._tables.attempts.most = self.settings.phase_attempts

    @property
    def origin(self) -> float:
        """The run's time zero (``time.monotonic()``)."""
        return self._tables.origin

    @property
    def attempts(self) -> Attempts:
        """The attempts at its phases."""
        return self._tables.attempts

    @property
    def aside(self) -> RunTables:
        """What jobs measured in attempts that do not count."""
        return self._tables.aside

    @property
    def queues(self) -> QueueConfig:
        """The queues that the run's config asks for."""
        return self.settings.queues

    @property
    def stage(self) -> Stage:
        """What this run's jobs need: the fabric, its hosts and the settings of sockets."""
        return Stage(
            fabric=self.live.fabric,
            pool=self.pool,
            namespace_of=self.live.emulation.namespace_of,
            seed=self.settings.seed,
            congestion_control=self.settings.congestion_control,
            receive_window_bytes=self.settings.receive_window_bytes,
            logs=self.live.logs,
            failing_hosts=failing_hosts(self.failures),
            rotten_hosts=rotten_hosts(self.failures),
            make_transport=self.settings.make_transport(self.live.fabric, self.queueing),
        )

    @property
    def controls(self) -> dict[str, str]:
        """The congestion control of each service level of data, for jobs that start now."""
        levels = self.settings.queues.data_levels
        return {level.label: self.stage.socket_options(level).congestion_control for level in levels}

    @property
    def queueing(self) -> Queueing:
        """The present queues."""
        return self.live.emulation.lane_plan.queueing

    def use_queues(self, queues: QueueConfig) -> None:
        """Let ports have other queues from the next :meth:`use_queueing` on."""
        self.settings = replace(self.settings, queues=queues)

    def use_queueing(self, queueing: Queueing) -> None:
        """Install the queues of a queueing, unless they are installed, and calibrate them once."""
        wanted = plan_lanes(self.queues, queueing)
        if wanted != self.live.emulation.lane_plan:
            current_engine().settle()
            self.live.emulation.set_lanes(wanted)
            self._meter.forget_census()
        if queueing.value not in self.calibrations:
            self.calibrations[queueing.value] = self._calibrated(queueing)
            self._meter.forget_census()

    def _calibrated(self, queueing: Queueing) -> list[LinkCalibration]:
        if current_engine().is_exact:
            return self.live.calibrate(self.tell)
        self.tell(f"calibrating every kind of link, {queueing.value} queueing")
        return calibrated(queueing, self.attempts, self.origin, self.live.measure_links, self.tell)

    def use_congestion_control(
        self, controls: Mapping[ServiceLevel, str], dcqcn: DcqcnConfig, marking: Marking | None
    ) -> None:
        """Let jobs that start from now on have other congestion controls, with DCQCN's parameters, and switches mark
        otherwise from the next :meth:`use_queueing` on.

        Jobs that have these controls already must be closed before. Raises EmulationError if one is still in use.
        """
        queues = self.queues.model_copy(update={"marking": marking})
        self.settings = replace(self.settings, queues=queues, congestion_control=dict(controls), dcqcn=dcqcn)
        fabric, parameters = self.live.fabric, dcqcn.parameters(self.live.fabric)
        congestion_control.provide(controls.values(), parameters, fabric.nic_rate_bps)
        congestion_control.admit(self.live.emulation.host_namespaces, parameters, fabric.nic_rate_bps)
        if self.settings.transport.is_rdma:
            congestion_control.control_queue_pairs(controls, parameters, fabric.nic_rate_bps)

    def use_routing(self, routing: Routing, label: str | None = None) -> None:
        """Route by another policy from now on, unless it is in use. Raises ControllerError.

        ``label`` is how phases call it, by default the names of its policies.
        """
        self.routing_label = label or routing.name
        if routing != self.live.routing:
            self.tell(f"routing: {self.routing_label}")
            current_engine().settle()
            self.live.use_routing(routing)
            self._meter.forget_census()

    def use_queue_pairs(self, config: QueuePairConfig) -> None:
        """Let queue pairs that are made from now on be so."""
        self.use_transport(self.settings.transport.model_copy(update={"queue_pairs": config}))

    def use_transport(self, transport: TransportConfig) -> None:
        """Let this carry the data of jobs that start from now on, RDMA only where the run's config has it. Connections
        that are made from now on, TCP's and queue pairs, take packets for lost as it says."""
        if transport.reordering != self.settings.transport.reordering:
            self.live.emulation.set_in_hosts(sysctls(transport.reordering))
        self.settings = replace(self.settings, transport=transport)
        if transport.is_rdma:
            queue_pairs.use(transport.queue_pairs, transport.reordering)

    def warm_up(self, job: SteppedJob) -> None:
        """Run one short step outside all phases, so that TCP's windows open. Its packets are not counted."""
        job.warm_up()
        self._meter.forget_census()

    def run_phase(
        self,
        name: str,
        title: str,
        jobs: Sequence[Job | JobWindow | Decider],
        duration_s: float,
        schedule: FailureSchedule | None = None,
    ) -> PhaseOutcome:
        """Play jobs together for a time, with samples and a census. A job plays the whole phase, or its windows of it.
        A decider, of which there may be one, brings further jobs while the phase plays, pauses and ends them.
        The time counts from when all of the former play. The first job is halted first.

        In real time a phase that the machine disturbed is played again (:mod:`runs.attempts`), unless something fails
        in it, a decider brings jobs or a job has a fixed amount to do.

        It lasts until jobs with a fixed amount to do have done it. ``schedule``: what fails meanwhile, from when all
        jobs play; by default the run's ``failures``. What is of a job that does not play is left out. At its end every
        link, disk and program that was not killed is restored before jobs are halted, so that data they wait for
        arrives.
        """
        schedule = self.failures if schedule is None else schedule
        while True:
            attempt = self._attempt(name, title, jobs, duration_s, schedule)
            checks = self._disturbance(attempt.outcome, jobs, schedule)
            if not self.attempts.is_to_be_repeated(name, checks):
                break
            self._set_aside(attempt, checks)
        self.attempts.count(attempt.outcome.evidence.seconds)
        self.phases.append(attempt.outcome)
        self._keep_happened(attempt, schedule)
        return attempt.outcome

    def _attempt(
        self,
        name: str,
        title: str,
        jobs: Sequence[Job | JobWindow | Decider],
        duration_s: float,
        schedule: FailureSchedule | None,
    ) -> _Attempt:
        """Play a phase once."""
        if schedule is not None:
            self._injector.prepare(schedule, list({id(one.job): one.job for one in _windows(jobs)}.values()))
        timeline = _timeline(name, jobs, self._done_to)
        told = LivePhase(name, title, self.queueing.value, self.routing_label, timeline.names, self.origin)
        self.progress(title, 0.0)  # Which reads the clock, so it comes before that settles.
        started = self._meter.begin(told)
        try:
            played = self._play(title, timeline, duration_s, schedule)
        except FabricError:
            self._meter.verify_no_deadlock()  # It would be the cause of whatever a job says.
            raise
        finally:
            timeline.abandon()
        measured = self._meter.end()
        self._keep_samples(measured.series)
        counted = self._meter.count(played.faults)
        if schedule is not None:
            self._injector.release()
        began, ended, begun, halted = (
            at - self.origin for at in (started, measured.ended, played.begun, played.halted)
        )
        phase = Phase(name, title, self.queueing.value, began, ended, self.routing_label, begun, halted)
        return _Attempt(started, self._outcome(phase, played, measured, counted), played)

    def _disturbance(
        self, outcome: PhaseOutcome, jobs: Sequence[Job | JobWindow | Decider], schedule: FailureSchedule | None
    ) -> list[Check]:
        """Return how far the machine kept up with a phase, if it may be played again; nothing of others: of time that
        jumps, and of phases that leave the fabric or a job otherwise than they found it."""
        engine = current_engine()
        played = [one.job if isinstance(one, JobWindow) else one for one in jobs]
        if engine.is_exact or schedule is not None or any(isinstance(one, Decider | FiniteJob) for one in played):
            return []
        return disturbance_checks(outcome.evidence, self.live.fabric.frame_time_s, engine, self.live.emulation.datapath)

    def _set_aside(self, attempt: _Attempt, checks: Sequence[Check]) -> None:
        """Keep an attempt that is repeated apart from those that count."""
        phase, reasons = attempt.outcome.phase, Verdict(tuple(checks)).reasons
        number = self.attempts.number(phase.name)
        self.attempts.set_aside.append(SetAside(phase.name, number, phase.started_s, phase.ended_s, tuple(reasons)))
        self.tell(f"phase {phase.name} is played again, since the machine disturbed it: {reasons[0]}")
        self.aside.keep_records(attempt.played.records)

    def empty_fabric(self) -> None:
        """After a DeadlockError of :meth:`run_phase`: forget the phase, make links whole, give every port new queues.

        What waited in the old ones is lost. Close the jobs before.
        """
        self._injector.abandon()
        self._meter.abandon()
        current_engine().settle()
        self.live.emulation.set_lanes(self.live.emulation.lane_plan)

    def _keep_happened(self, attempt: _Attempt, schedule: FailureSchedule | None) -> None:
        """Keep the rows of jobs, and with a schedule, those of failures and of what the controller did meanwhile."""
        phase, played, started = attempt.outcome.phase.name, attempt.played, attempt.started
        self._tables.keep_records(played.records)
        self._tables.keep_rows("jobs", [job_row(phase, one) for one in played.played])
        if schedule is not None:
            events = [event for event in self.live.controller.events() if event.at_s >= started]
            self._tables.keep_rows("failures", failure_rows(phase, played.faults))
            self._tables.keep_rows("controller", controller_rows(phase, events))
        else:  # With one, moves are among the controller's events.
            moves = [move for move in attempt.outcome.moves if move.at_s >= attempt.outcome.phase.started_s]
            self._tables.keep_moves(phase, moves)

    def _outcome(self, phase: Phase, played: _PlayedPhase, measured: Measured, counted: Conservation) -> PhaseOutcome:
        """Return the outcome of a phase, and keep its samples of the machine."""
        series = measured.series
        machine = machine_frame(series, self.origin, self.live.fabric.frame_bytes, self.live.emulation.datapath)
        cores = cores_frame(series, self.origin)
        self.keep_frame("machine", machine)
        self.keep_frame("cores", cores)
        moves, changes = self._moves(), (*played.standing, *played.faults.changes)
        excuses = self._excuses(changes, played.records, moves)
        return PhaseOutcome(
            phase=phase,
            records=played.records,
            conservation=counted,
            machine=machine,
            faults=played.faults,
            routing=self.live.routing,
            moves=moves,
            cores=cores,
            full_queues=self._meter.full_queues(series, played.faults),
            used=measured.used,
            controls=self.controls,
            load=load_evidence(played.played, played.records, excuses, stopped_on(changes)),
        )

    def _excuses(self, changes: Sequence[Change], records: Records, moves: tuple[Moved, ...]) -> Excuses:
        """Return what failures could touch of the jobs with these rows, by the present routes."""
        finder = WayFinder(self.live.fabric, self.live.emulation.lane_plan, self.live.routing, moves)
        return Excuses(
            troubles(changes),
            records,
            lambda flow, from_s, until_s: finder.links(flow, from_s - self.origin, until_s - self.origin),
            self.queueing.is_lossless,
        )

    def _play(
        self, title: str, timeline: Timeline, duration_s: float, schedule: FailureSchedule | None
    ) -> _PlayedPhase:
        """Play jobs to their end.

        An exception here ends the run: the creator of the jobs closes them, and no incomplete phase is kept.
        """
        standing = self._injector.standing if "_injector" in vars(self) else ()
        begun = timeline.begin()
        if schedule is not None:
            self._injector.play(begun)
        self._wait(title, begun, duration_s, timeline)
        self._meter.unless_deadlocked(timeline.finish)
        faults = FaultReport() if schedule is None else self._injector.restore()
        ended = self._meter.unless_deadlocked(timeline.end)
        self.progress(title, 1.0)
        return _PlayedPhase(begun, ended.halted, ended.records, ended.played, faults, standing)

    def _moves(self) -> tuple[Moved, ...]:
        """Return the moves of adaptive routing since it was installed."""
        if not self.live.routing.policy.moves:
            return ()
        return moves_in(self.live.controller.events(), self.origin)

    @cached_property
    def _injector(self) -> Injections:
        return Injections(self.pool, self.live.emulation, self.settings.seed, self._watching)

    @property
    def _watching(self) -> Callable[[Change], None] | None:
        """Who hears of each change of what fails at once; None: nobody watches."""
        return None

    def _done_to(self, job: str) -> str:
        """Return what failures have done to a job so far; nothing in a run that has had none."""
        return self._injector.done_to(job) if "_injector" in vars(self) else ""

    def _wait(self, title: str, started: float, duration_s: float, timeline: Timeline) -> None:
        while (elapsed := time.monotonic() - started) < duration_s:
            self.progress(title, elapsed / duration_s)
            self._meter.verify_no_deadlock()
            timeline.verify()
            time.sleep(min(_PROGRESS_S, duration_s - elapsed))

    def _keep_samples(self, series: Series) -> None:
        ports, plan = self._meter.sampled_ports, self.live.emulation.lane_plan
        self.keep_frame("ports", ports_frame(series, ports, plan, self.origin))
        self.keep_frame("stalls", stalls_frame(series, ports, plan, self.origin))
        self.keep_frame("waits", waits_frame(series, ports, plan, self.origin))

    def keep_frame(self, name: str, frame: pd.DataFrame) -> None:
        """Add rows to a table; times are already seconds of the run. Raises ResultError if there is no such table."""
        self._tables.keep_frame(name, frame)

    def table(self, name: str) -> pd.DataFrame:
        """Return all rows of a table so far."""
        return self._tables.table(name)

    def judge(self) -> Verdict:
        """Return the verdict on the run so far."""
        verdict = judge(
            calibrations=[one for found in self.calibrations.values() for one in found],
            phases=[outcome.evidence for outcome in self.phases],
            frame_time_s=self.live.fabric.frame_time_s,
            engine=current_engine(),
            datapath=self.live.emulation.datapath,
        )
        failures = self.table("failures")
        longest_s = max((end_s - from_s for from_s, end_s in (one.phase.load_s for one in self.phases)), default=0.0)
        asked = [*carried_out_checks(self.failures, failures, longest_s), *timely_checks(failures)]
        return Verdict((*verdict.checks, *asked, *ended_checks(self.table("jobs")), *self.checks))


def _timeline(phase: str, jobs: Sequence[Job | JobWindow | Decider], done_to: DoneTo = lambda job: "") -> Timeline:
    """Return the timeline of a phase. Raises TrafficError for two deciders."""
    deciders = [one for one in jobs if isinstance(one, Decider)]
    if len(deciders) > 1:
        raise TrafficError(f"phase {phase}: {len(deciders)} deciders; one decides for all jobs, so give it one")
    return Timeline(phase, _windows(jobs), deciders[0] if deciders else None, done_to)


def _windows(jobs: Sequence[Job | JobWindow | Decider]) -> list[JobWindow]:
    """Return when each job plays that is known beforehand."""
    return [one if isinstance(one, JobWindow) else JobWindow(one) for one in jobs if not isinstance(one, Decider)]
