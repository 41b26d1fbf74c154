"""A measured run on a live fabric: phases of traffic, each sampled and counted, then a verdict and files."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from types import MappingProxyType
from typing import Any

import pandas as pd

from controllers.routing import Policy, Routing
from experiments.run.config import RunConfig
from experiments.run.live import LiveFabric, Tell
from experiments.run.timeline import JobWindow, Played, Timeline
from experiments.run.ways import Moved, moves_in
from fabric.errors import FabricError, ResultError
from fabric.failures.injector import FaultInjector, FaultReport, LinkChange
from fabric.failures.schedule import Schedule
from fabric.measure.calibration import LinkCalibration, calibrate
from fabric.measure.census import Census, Conservation, conservation, take_census
from fabric.measure.cores import CoreReader, CpuSnapshot, CpuUse, cpu_use, take_snapshot, usable_cores
from fabric.measure.fidelity import Check, PhaseEvidence, Verdict, judge
from fabric.measure.frames import cores_frame, machine_frame, ports_frame, stalls_frame, waits_frame
from fabric.measure.port_rates import FullQueue, full_queues
from fabric.measure.sampling import Sampler, SamplerSetup, Series
from fabric.metrics import metrics_frame
from fabric.model.encoding import fabric_as_json
from fabric.model.lanes import DATA_LEVELS, QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Port
from fabric.results import FORMAT_VERSION, TIME_COLUMNS, Phase, ResultWriter
from fabric.stalls.deadlock_watch import LONGEST_STALL_FRAMES, switch_ports
from fabric.tables import TABLES, Table
from fabric.world.agents import AgentPool
from fabric.world.datapath import Datapath
from fabric.world.engine import started_at
from fabric.world.engines import current_engine
from traffic.job import Job, Records, Stage

_PROGRESS_S = 0.5
_LIBRARIES = ("mininet", "ryu", "eventlet", "numpy", "scapy", "pandas")
Progress = Callable[[str, float], None]
"""Callback for the progress of a phase: its title and the fraction done."""


@dataclass(frozen=True)
class PhaseOutcome:
    """The measurements of a phase: rows and failures (times still ``time.monotonic()``), the census of its packets, its
    rows of ``machine`` and ``cores`` (the last row covers the sample taken just after the phase ended), its routing,
    the moves of adaptive routing by its end (in seconds since the run's origin), its full ports, its CPU time (None in
    virtual time, where nothing computes), and when in the run the jobs of the whole phase had all begun: its failures
    count from then."""

    phase: Phase
    records: Records
    conservation: Conservation
    machine: pd.DataFrame
    faults: FaultReport = field(default_factory=FaultReport)
    routing: Routing = field(default_factory=Routing)
    moves: tuple[Moved, ...] = ()
    cores: pd.DataFrame = field(default_factory=lambda: TABLES["cores"].empty())
    full_queues: Sequence[FullQueue] = ()
    cpu: CpuUse | None = None
    began_s: float = 0.0

    @property
    def evidence(self) -> PhaseEvidence:
        """The evidence for the verdict."""
        seconds = self.phase.ended_s - self.phase.started_s
        return PhaseEvidence(
            self.phase.name, self.conservation, self.machine, seconds, self.cores, self.full_queues, self.cpu
        )


@dataclass
class Session:
    """One run. ``origin`` is its time zero (``time.monotonic()``); ``failures`` happen in each phase that has no
    schedule of its own; ``checks`` and ``own_tables`` are those of the experiment itself, in addition to those of all
    runs.
    """

    live: LiveFabric
    pool: AgentPool
    queues: QueueConfig
    seed: int
    sample_period_s: float
    congestion_control: dict[ServiceLevel, str]
    receive_window_bytes: int | None
    tell: Tell
    progress: Progress
    failures: Schedule | None = None
    own_tables: Mapping[str, Table] = field(default_factory=dict)
    origin: float = field(default_factory=time.monotonic)
    phases: list[PhaseOutcome] = field(default_factory=list)
    calibrations: dict[str, list[LinkCalibration]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    _frames: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    _sampler: Sampler = field(init=False)
    routing_label: str = field(init=False)
    _census: Census | None = None

    @classmethod
    def of(
        cls,
        config: RunConfig,
        live: LiveFabric,
        pool: AgentPool,
        tell: Tell,
        progress: Progress,
        own_tables: Mapping[str, Table] = MappingProxyType({}),
    ) -> Session:
        """Return the run that a config asks for, on a fabric that is up."""
        return cls(
            live=live,
            pool=pool,
            queues=config.queues,
            seed=config.seed,
            sample_period_s=config.sampled_every_s,
            congestion_control=config.congestion_controls(),
            receive_window_bytes=config.receive_window,
            tell=tell,
            progress=progress,
            failures=config.failure_schedule(live.fabric),
            own_tables=own_tables,
        )

    def __post_init__(self) -> None:
        emulation = self.live.emulation
        # Namespace 0 is the world's own, with the switches' ports; then each host's, in the fabric's order.
        namespaces = (None, *(emulation.namespace_of(host) for host in self.live.fabric.hosts))
        setup = SamplerSetup(
            namespaces=namespaces,
            switch_pid=emulation.switches.switch_pid,
            has_input_queues=emulation.datapath is Datapath.USERSPACE,
            period_s=self.sample_period_s,
            watched=switch_ports(self.live.fabric, emulation.indices),
            longest_stall_s=LONGEST_STALL_FRAMES * self.live.fabric.frame_time_s,
        )
        self._sampler = Sampler(self.pool, setup)
        self.routing_label = self.live.routing.name

    @property
    def stage(self) -> Stage:
        """What this run's jobs need: the fabric, its hosts and the settings of sockets."""
        return Stage(
            fabric=self.live.fabric,
            pool=self.pool,
            namespace_of=self.live.emulation.namespace_of,
            seed=self.seed,
            congestion_control=self.congestion_control,
            receive_window_bytes=self.receive_window_bytes,
        )

    @property
    def queueing(self) -> Queueing:
        """The present queues."""
        return self.live.emulation.lane_plan.queueing

    def use_queueing(self, queueing: Queueing) -> None:
        """Install the queues of a queueing, unless they are installed, and calibrate them once."""
        if queueing is not self.queueing:
            self.live.emulation.set_lanes(plan_lanes(self.queues, queueing))
            self._census = None
        if queueing.value not in self.calibrations:
            self.tell(f"calibrating every kind of link, {queueing.value} queueing")
            current_engine().settle()
            self.calibrations[queueing.value] = calibrate(self.live.emulation)
            self._census = None

    def use_routing(self, routing: Routing, label: str | None = None) -> None:
        """Route by another policy from now on, unless it is in use. Raises ControllerError.

        ``label`` is how phases call it, by default the names of its policies.
        """
        self.routing_label = label or routing.name
        if routing != self.live.routing:
            self.tell(f"routing: {self.routing_label}")
            current_engine().settle()
            self.live.use_routing(routing)
            self._census = None

    def run_phase(
        self,
        name: str,
        title: str,
        jobs: Sequence[Job | JobWindow],
        duration_s: float,
        schedule: Schedule | None = None,
    ) -> PhaseOutcome:
        """Play jobs together for a time, with samples and a census. A job plays the whole phase, or its windows of it.
        The first job is halted first.

        ``schedule``: what happens to links meanwhile, from when all jobs play; by default the run's ``failures``. At
        its end every link is restored before jobs are halted, so that data they wait for arrives.
        """
        schedule = self.failures if schedule is None else schedule
        if schedule is not None:
            self._injector.prepare(schedule)
        before = self._census or self._take_census()
        cpu_before = self._take_cpu()
        current_engine().settle()
        self._sampler.begin()
        started = time.monotonic()
        timeline = Timeline(name, [job if isinstance(job, JobWindow) else JobWindow(job) for job in jobs])
        try:
            begun, records, played, faults = self._play(title, timeline, duration_s, schedule)
        except FabricError:
            self._sampler.verify_no_deadlock()  # It would be the cause of whatever a job says.
            raise
        self._sampler.verify_no_deadlock()
        ended = time.monotonic()
        series = self._sampler.end()
        cpu_after = self._take_cpu()
        self._keep_samples(series)
        after = self._census = self._take_census()
        if schedule is not None:
            self._injector.release()
        phase = Phase(name, title, self.queueing.value, started - self.origin, ended - self.origin, self.routing_label)
        counted = conservation(self.live.fabric, before, after, faults)
        cpu = cpu_use(cpu_before, cpu_after) if cpu_before and cpu_after else None
        outcome = self._outcome(phase, records, counted, faults, series, cpu, begun - self.origin)
        self.phases.append(outcome)
        self._keep_records(records)
        self._keep_rows("jobs", [_job_row(name, one) for one in played])
        if schedule is not None:
            self._keep_rows("failures", [_failure_row(name, change) for change in faults.changes])
            self._keep_rows("controller", self._controller_rows(name, started))
        return outcome

    def _outcome(
        self,
        phase: Phase,
        records: Records,
        counted: Conservation,
        faults: FaultReport,
        series: Series,
        cpu: CpuUse | None,
        began_s: float,
    ) -> PhaseOutcome:
        """Return the outcome of a phase, and keep its samples of the machine."""
        machine = machine_frame(series, self.origin, self.live.fabric.frame_bytes)
        cores = cores_frame(series, self.origin)
        self.keep_frame("machine", machine)
        self.keep_frame("cores", cores)
        moves, full = self._moves(), self._full_queues(series, faults)
        return PhaseOutcome(
            phase, records, counted, machine, faults, self.live.routing, moves, cores, full, cpu, began_s
        )

    def _play(
        self, title: str, timeline: Timeline, duration_s: float, schedule: Schedule | None
    ) -> tuple[float, Records, list[Played], FaultReport]:
        """Play jobs; return when those of the whole phase all had begun, rows, when each played, and what failed.

        An exception here ends the run: the creator of the jobs closes them, and no incomplete phase is kept.
        """
        asked = time.monotonic()
        begun = timeline.begin()
        if schedule is not None:
            self._injector.play(begun)
        # With a schedule, its end is played, too.
        self._wait(title, asked if schedule is None else begun, duration_s, timeline)
        faults = FaultReport() if schedule is None else self._injector.restore()
        records, played = timeline.end()
        return begun, records, played, faults

    def _controller_rows(self, phase: str, started: float) -> list[dict[str, Any]]:
        """Return the controller's actions since a phase began."""
        events = [event for event in self.live.controller.events() if event.at_s >= started]
        return [
            {"phase": phase, "at_s": event.at_s, "kind": event.kind, "details": json.dumps(dict(event.details))}
            for event in events
        ]

    def _moves(self) -> tuple[Moved, ...]:
        """Return the moves of adaptive routing since it was installed."""
        if self.live.routing.policy is not Policy.ADAPTIVE:
            return ()
        return moves_in(self.live.controller.events(), self.origin)

    @cached_property
    def _injector(self) -> FaultInjector:
        return FaultInjector(self.pool, self.live.emulation)

    def _take_census(self) -> Census:
        return take_census(self.live.emulation, self.live.rule_drops)

    def _wait(self, title: str, started: float, duration_s: float, timeline: Timeline) -> None:
        while (elapsed := time.monotonic() - started) < duration_s:
            self.progress(title, elapsed / duration_s)
            self._sampler.verify_no_deadlock()
            timeline.verify()
            time.sleep(min(_PROGRESS_S, duration_s - elapsed))
        self.progress(title, 1.0)

    @cached_property
    def _core_reader(self) -> CoreReader:
        return CoreReader(usable_cores(), counts_niced=os.getpriority(os.PRIO_PROCESS, 0) > 0)

    def _take_cpu(self) -> CpuSnapshot | None:
        if current_engine().is_exact:
            return None
        return take_snapshot(time.monotonic(), self._core_reader, self.live.emulation.switches.switch_pid)

    @cached_property
    def _sampled_ports(self) -> dict[tuple[int, int], Port]:
        """The port at each interface of each namespace that is sampled, by their numbers."""
        numbers = {host: number for number, host in enumerate(self.live.fabric.hosts, start=1)}
        return {(numbers.get(port.node, 0), index): port for port, index in self.live.emulation.indices.items()}

    def _full_queues(self, series: Series, faults: FaultReport) -> list[FullQueue]:
        """Return the full ports, except those of links that failures changed."""
        spared = frozenset(port for change in faults.changes for port in change.link.ports)
        return full_queues(series, self._sampled_ports, self.live.emulation.lane_plan, self.live.fabric, spared)

    def _keep_samples(self, series: Series) -> None:
        ports, plan = self._sampled_ports, self.live.emulation.lane_plan
        self.keep_frame("ports", ports_frame(series, ports, plan, self.origin))
        self.keep_frame("stalls", stalls_frame(series, ports, plan, self.origin))
        self.keep_frame("waits", waits_frame(series, ports, plan, self.origin))

    def _keep_records(self, records: Records) -> None:
        for name, rows in vars(records).items():
            self._keep_rows(name, rows)

    def _keep_rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            frame = pd.DataFrame(rows, columns=list(TABLES[name].columns))
            for column in TIME_COLUMNS:
                if column in frame:
                    frame[column] -= self.origin
            self.keep_frame(name, frame)

    def keep_frame(self, name: str, frame: pd.DataFrame) -> None:
        """Add rows to a table; times are already seconds of the run. Raises ResultError if there is no such table."""
        if name not in TABLES and name not in self.own_tables:
            raise ResultError(f"table {name}: is not declared; give it to the experiment's tables")
        self._frames.setdefault(name, []).append(frame)

    def table(self, name: str) -> pd.DataFrame:
        """Return all rows of a table so far."""
        frames = [frame for frame in self._frames.get(name, []) if not frame.empty]
        return pd.concat(frames, ignore_index=True) if frames else {**TABLES, **self.own_tables}[name].empty()

    def judge(self) -> Verdict:
        """Return the verdict on the run so far."""
        verdict = judge(
            calibrations=[one for found in self.calibrations.values() for one in found],
            phases=[outcome.evidence for outcome in self.phases],
            frame_time_s=self.live.fabric.frame_time_s,
            engine=current_engine(),
            datapath=self.live.emulation.datapath,
        )
        return Verdict((*verdict.checks, *self.checks))

    def write(
        self,
        writer: ResultWriter,
        experiment: Mapping[str, str | None],
        config: dict[str, Any],
        summary: dict[str, Any],
        command: Sequence[str],
    ) -> Verdict:
        """Write the run's files and return its verdict.

        ``experiment``: what the manifest says of it; ``command``: by what the run was asked for.
        """
        verdict = self.judge()
        self.keep_frame("metrics", metrics_frame(summary["metrics"], _job_names(summary)))
        for name in writer.tables:
            writer.write_table(name, self.table(name))
        writer.write_yaml("config.yaml", config)
        writer.write_json("fabric.json", fabric_as_json(self.live.fabric))
        writer.write_json("summary.json", summary)
        writer.write_json("manifest.json", self._manifest(experiment, verdict, command))
        return verdict

    def _manifest(
        self, experiment: Mapping[str, str | None], verdict: Verdict, command: Sequence[str]
    ) -> dict[str, Any]:
        fabric = self.live.fabric
        return {
            "format_version": FORMAT_VERSION,
            **experiment,
            "engine": current_engine().name,
            "seed": self.seed,
            "repeatable_with": current_engine().repeatable_with(),
            "started_at": started_at(),
            "command": list(command),
            "datapath": self.live.emulation.datapath.value,
            "scale": fabric.scale,
            "sample_period_s": self.sample_period_s,
            "verdict": verdict.as_json(),
            "phases": [vars(outcome.phase) for outcome in self.phases],
            "calibration": {
                queueing: [_calibration_as_json(one) for one in found] for queueing, found in self.calibrations.items()
            },
            "conservation": {outcome.phase.name: vars(outcome.conservation) for outcome in self.phases},
            "cpu": {one.phase.name: one.cpu.as_json() for one in self.phases if one.cpu is not None},
            "full_queues": {one.phase.name: [vars(full) for full in one.full_queues] for one in self.phases},
            "setup": {"built_s": self.live.built_s, "ready_s": self.live.ready_s},
            "congestion_control": {
                level.label: self.stage.socket_options(level).congestion_control for level in DATA_LEVELS
            },
            "machine": machine_facts(),
            "versions": versions(),
        }


def _job_names(summary: Mapping[str, Any]) -> set[str]:
    """Return the names of jobs that metrics may be of: those that a summary lists, and kinds of traffic."""
    return {*summary.get("jobs", ()), *(level.label for level in ServiceLevel)}


def _job_row(phase: str, played: Played) -> dict[str, Any]:
    return {
        "phase": phase,
        "job": played.job.name,
        "service_level": played.job.level.label,
        "started_s": played.began,
        "ended_s": played.ended,
    }


def _failure_row(phase: str, change: LinkChange) -> dict[str, Any]:
    return {
        "phase": phase,
        "link": str(change.link),
        **vars(change.state),
        "due_s": change.due_s,
        "asked_s": change.asked_s,
        "done_s": change.done_s,
        "waiting_packets": change.waiting_packets,
        "causes": ", ".join(map(str, change.causes)),
    }


def _calibration_as_json(one: LinkCalibration) -> dict[str, Any]:
    return {**vars(one), "rate_error": one.rate_error, "worst_share_error": one.worst_share_error}


def machine_facts() -> dict[str, Any]:
    """Return the facts about the machine that a reader needs to judge a result."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(usable_cores()),
        "load_average": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Return the versions of the software that made a result."""
    found = {"python": platform.python_version(), "project": metadata.version("ai-fabric-emulator")}
    return found | {name: metadata.version(name) for name in _LIBRARIES}
