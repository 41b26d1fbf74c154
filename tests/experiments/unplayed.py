"""A run in which nothing is played: its phases pass at once, and no job completes anything.

Experiments run on it as they do on a fabric that is up; only jobs are not started, and counters stand still. What they
make of such tables is what a user sees where a fabric carries nothing, or a phase is too short.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from controllers.routing import Routing
from fabric.failures.report import Change, FaultReport, LinkChange
from fabric.failures.schedule import FailureSchedule, LinkEvent
from fabric.model.lanes import Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.model.patterns import NicPair
from fabric.records.conservation import Conservation
from fabric.results import Phase
from fabric.stalls.audit import AuditReport
from fabric.tables import TABLES
from runs.config import RunConfig
from runs.definition import Experiment
from runs.phase_rows import failure_rows
from runs.plans import planned
from runs.run_tables import RunTables
from runs.session import PhaseOutcome, RunSettings, Session
from traffic.flows.pattern_job import PatternJob
from traffic.job import Records
from traffic.storage.client.verification import Verification
from traffic.storage.job import StorageJob
from traffic.storage.managers.cluster import ManagedCluster
from traffic.storage.managers.program import ManagerHistory

_LIFE = {"start", "play", "halt", "close"}
_NOT_DONE = ("start", "close", "warm_up")
_GAP_S = 1.0
_SAMPLES = 5
_MARKS = ("loaded", "noticed", "back", "whole")


class UnplayedSession(Session):
    """A session on a fabric that is not up. ``now_s``: seconds of the run, which pass with its phases."""

    def __post_init__(self) -> None:
        self.routing_label = self.live.routing.name
        self.now_s = _GAP_S

    def use_queueing(self, queueing: Queueing) -> None:
        """Remember it."""
        self.live.emulation.lane_plan = plan_lanes(self.queues, queueing)

    def use_congestion_control(self, *_: Any) -> None:
        """Nobody sends."""

    def use_routing(self, routing: Routing, label: str | None = None) -> None:
        """Plan it."""
        self.routing_label = label or routing.name
        self.live.routing, self.live.plan = routing, planned(self.live.fabric, routing)

    def warm_up(self, job: Any) -> None:
        """Nobody sends."""

    def empty_fabric(self) -> None:
        """It is empty."""

    def run_phase(
        self, name: str, title: str, jobs: Sequence[Any], duration_s: float, schedule: Any = None
    ) -> PhaseOutcome:
        """Let a phase pass in which no operation ends, and what counters say is the same at its end."""
        began, ended = self.now_s, self.now_s + max(duration_s, 0.001)
        self.now_s = ended + _GAP_S
        phase = Phase(name, title, self.queueing.value, began, ended, self.routing_label, began, ended)
        for table in ("ports", *(["stalls"] if self.queueing.is_lossless else [])):
            self.keep_frame(table, self._idle(table, np.linspace(began, ended, _SAMPLES).tolist()))
        self._keep_failures(name, began, self.failures if schedule is None else schedule)
        for one in jobs:  # A drill is over only once all of it has come about.
            if isinstance(marks := getattr(one, "marks", None), dict):
                names = (*_MARKS, *(node.name for node in getattr(one, "nodes", ())))
                marks.update(dict.fromkeys(names, self.origin + ended))
        nothing = Conservation(0, 0, 0, 0, 0, 0, {}, 0)
        outcome = PhaseOutcome(
            phase, Records(), nothing, TABLES["machine"].empty(), routing=self.live.routing, controls=self.controls
        )
        self.phases.append(outcome)
        return outcome

    def _keep_failures(self, phase: str, began_s: float, schedule: FailureSchedule | None) -> None:
        """Keep that what was to fail did so, each at its time."""
        changes = []
        for event in () if schedule is None else schedule.events:
            kind = LinkChange if isinstance(event, LinkEvent) else Change
            at = self.origin + began_s + event.at_s
            changes.append(kind(cast(Any, event.target), cast(Any, event.state), at, at, at, event.causes))
        self._tables.keep_rows("failures", failure_rows(phase, FaultReport(tuple(changes))))

    def _idle(self, table: str, at_s: Sequence[float]) -> pd.DataFrame:
        """Return samples of ports in which no counter moves."""
        columns, dtypes = list(TABLES[table].columns), TABLES[table].dtypes
        lanes = [lane.name for lane in self.live.emulation.lane_plan.lanes]
        ports = [str(port) for port, _ in self.live.fabric.directed_ports()]
        counters = [0] * (len(columns) - 3)
        rows = [(at, port, lane, *counters) for at in at_s for port in ports for lane in lanes]
        return pd.DataFrame(rows, columns=columns).astype(dtypes)


def unplayed_session(experiment: Experiment, config: RunConfig, fabric: Fabric, logs: Path) -> UnplayedSession:
    """Return a session of a run that is not played."""
    lanes = plan_lanes(config.queues, config.queueings_played[0])
    emulation = SimpleNamespace(
        fabric=fabric, lane_plan=lanes, set_in_hosts=lambda settings: None, namespace_of=lambda host: None,
        namespace_of_port=lambda port: None,
        host_namespaces={}, indices={port: number for number, (port, _) in enumerate(fabric.directed_ports())},
    )  # fmt: skip
    live = SimpleNamespace(
        fabric=fabric, emulation=emulation, routing=config.routing, plan=planned(fabric, config.routing), logs=logs,
        controller=SimpleNamespace(events=lambda: []), rule_drops=dict, built_s=0.0, ready_s=0.0,
    )  # fmt: skip
    return UnplayedSession(
        cast(Any, live),
        cast(Any, None),
        RunSettings.of(config, fabric),
        lambda text: None,
        lambda title, done: None,
        config.failure_schedule(fabric),
        _tables=RunTables(experiment.load_tables()),
    )


def leave_jobs_unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no job start programs, and let what is asked of programs have the answer of those that have done nothing."""
    for job in {*_job_classes()}:
        for name in _NOT_DONE:
            if name in vars(job):
                monkeypatch.setattr(job, name, lambda self, *_, **__: None)
    for place, answer in _ANSWERS.items():
        module, _, name = place.partition(":")
        owner, _, attribute = name.rpartition(".")
        of = importlib.import_module(module)
        monkeypatch.setattr(getattr(of, owner) if owner else of, attribute, answer)


def _job_classes() -> Iterator[type]:
    for name, module in sorted(sys.modules.items()):
        if name.startswith(("traffic.", "cluster.")):
            for one in list(vars(module).values()):
                if isinstance(one, type) and one.__module__ == name and set(dir(one)) >= _LIFE:
                    yield one


def _start_storage(job: StorageJob) -> None:
    config = job.config.cluster_manager
    if config is not None:
        job._mgmtd = ManagedCluster(job.stage, job.name, config, job._first_table)


def _connected(job: PatternJob, flows: Sequence[NicPair]) -> dict[NicPair, tuple[int, int]]:
    """Open connections over which nothing arrives."""
    job.goodput_bps = dict.fromkeys(flows, 0.0)
    return {flow: (1000 + number, 1) for number, flow in enumerate(flows)}


_ANSWERS: dict[str, Callable[..., Any]] = {
    "traffic.storage.job:StorageJob.start": _start_storage,
    "traffic.storage.job:StorageJob.verify_acknowledged": lambda job: Verification(),
    "traffic.storage.apart:ClusterJob.start": lambda job: job.storage.start(),
    "traffic.storage.managers.cluster:ManagedCluster.history": lambda cluster: ManagerHistory(
        (), cluster._first_table, {}
    ),
    "traffic.flows.pair_streams:Streams.start": lambda streams: None,
    "traffic.flows.pattern_job:PatternJob.connect": _connected,
    "fabric.measure.level_counter:LevelCounter.__init__": lambda *_: None,
    "fabric.measure.level_counter:LevelCounter.read": lambda *_: {},
    "experiments.libraries.catalogue:Library.home": lambda library: None,
    "experiments.lossless_soak.run:held_at_rest": lambda emulation: (),
    "fabric.stalls.audit:StallAudit.__init__": lambda *_: None,
    "fabric.stalls.audit:StallAudit.begin": lambda audit: None,
    "fabric.stalls.audit:StallAudit.end": lambda audit: AuditReport(0, ()),
}
