"""Plays a run in its own namespaces or guest, and leaves what it recorded (``python -m runs.launching.playing``).

It is given an :class:`runs.launching.order.Order`, and reports on stdout, a line per event
(:mod:`runs.launching.events`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from controllers.client import ControllerEvent
from fabric.emulation.sflow import exporting
from fabric.errors import FabricError
from fabric.failures.report import Change
from fabric.failures.schedule import FailureSchedule
from fabric.model.lanes import plan_lanes
from fabric.report.users_jobs import TABLES as USERS_TABLES
from fabric.report.view.spans import HAPPENED
from fabric.results import UNFINISHED, ResultWriter
from fabric.world import inside
from fabric.world.engines import current_engine
from fabric.world.programs import guest_calls
from fabric.world.programs.agents import AgentPool, fork_server
from runs.captures import captures
from runs.congestion import tell_congestion
from runs.decided_jobs import Decider
from runs.handover import copy_to_user
from runs.known_tables import own_tables
from runs.launching.events import (
    EventLines,
    NewRows,
    Note,
    PhaseProgress,
    Recorded,
    Report,
    VerdictSoFar,
    failure_of,
)
from runs.launching.order import Order
from runs.launching.rows_so_far import RowsSoFar
from runs.live import bring_up
from runs.preload import PRELOAD
from runs.record import summary_of, write_run, write_samples
from runs.registry import Resolved, restored
from runs.session import Audience, PhaseOutcome, Session
from runs.timeline import JobWindow
from traffic import congestion_control
from traffic.job import Job, TellsSoFar
from traffic.transport import queue_pairs
from traffic.transport.reordering import sysctls


class WatchedSession(Session):
    """A run that somebody watches: between two phases it reports the verdict on those that have ended."""

    report: Report = staticmethod(lambda event: None)
    rows_so_far: RowsSoFar | None = None

    def run_phase(
        self,
        name: str,
        title: str,
        jobs: Sequence[Job | JobWindow | Decider],
        duration_s: float,
        schedule: FailureSchedule | None = None,
    ) -> PhaseOutcome:
        """As any run's; see :meth:`Session.run_phase`."""
        telling = {id(one): one for one in map(_job_of, jobs) if isinstance(one, TellsSoFar)}
        began_s, is_failing = time.monotonic(), (self.failures if schedule is None else schedule) is not None

        def actions() -> list[ControllerEvent]:
            return [one for one in self.live.controller.events() if one.at_s >= began_s] if is_failing else []

        self.rows_so_far = RowsSoFar(name, list(telling.values()), actions, self.origin, self.report)
        with self.rows_so_far.telling():
            outcome = super().run_phase(name, title, jobs, duration_s, schedule)
        self._tell_all(name)
        verdict = self.judge()
        self.report(VerdictSoFar(verdict.status.value, tuple(verdict.reasons), len(self.phases)))
        return outcome

    @property
    def _watching(self) -> Callable[[Change], None]:
        return self._hear

    def _hear(self, change: Change) -> None:
        if self.rows_so_far is not None:
            self.rows_so_far.hear(change)

    def _tell_all(self, phase: str) -> None:
        """Tell all rows of a phase that has ended which the page shows."""
        for table in (*HAPPENED, *USERS_TABLES):
            frame = self.table(table)
            rows: list[dict[str, Any]] = frame[frame["phase"] == phase].to_dict("records")  # type: ignore[assignment]
            self.report(NewRows(phase, table, tuple(rows), is_whole=True))


def _job_of(one: Job | JobWindow | Decider) -> object:
    return one.job if isinstance(one, JobWindow) else one


def main() -> int:
    """Play what is ordered, and return the exit code."""
    lines = EventLines(_own_stdout())
    try:
        order = Order.decoded(current_engine().given())
        inside.set_up()
        fork_server(PRELOAD)
        if guest_calls.own_number() > 0:
            guest_calls.serve()
        play(order, lines.report)
    except FabricError as error:
        lines.report(failure_of(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 1
    return 0


def _own_stdout() -> BinaryIO:
    """Return stdout; what libraries print from now on goes to stderr instead."""
    mine = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(mine, "wb")


def play(order: Order, report: Report) -> None:
    """Play an experiment in this process's own namespaces or guest, and leave what it recorded beside its directory."""
    folder = Path(order.foreign_folder) if order.foreign_folder else None
    resolved = restored(order.experiment, folder, order.config)
    directory = Path(order.directory)
    tables = own_tables(resolved.experiment.load_tables())
    draft = ResultWriter(inside.RUN_DIR / "result" / directory.name, tables)
    try:
        _play(resolved, draft, order, report)
    except Exception:
        _save(draft, "logs", directory, report)
        if any((draft.directory / "samples").iterdir()):
            _save(draft, "samples", directory, report)
        raise
    partial = copy_to_user(draft.directory, directory.with_name(directory.name + UNFINISHED))
    report(Recorded(str(partial)))


def _play(resolved: Resolved, draft: ResultWriter, order: Order, report: Report) -> None:
    experiment, config, fabric = resolved.experiment, resolved.config, resolved.fabric
    lanes = plan_lanes(config.queues, config.queueings_played[0])

    def tell(text: str) -> None:
        report(Note(text))

    def progress(title: str, fraction: float) -> None:
        report(PhaseProgress(title, fraction))

    parameters = config.dcqcn.parameters(fabric)
    congestion_control.provide(config.controls_played.values(), parameters, fabric.nic_rate_bps)
    if config.transport.is_rdma or config.verbs:
        controls = congestion_control.of_queue_pairs(lanes) if config.verbs else {}
        controls |= config.congestion_controls()
        congestion_control.control_queue_pairs(controls, parameters, fabric.nic_rate_bps)
        queue_pairs.use(config.transport.queue_pairs, config.transport.reordering)
    if config.commands:
        congestion_control.offer(parameters, fabric.nic_rate_bps, tell)
    with ExitStack() as stack:
        live = stack.enter_context(bring_up(fabric, lanes, draft.directory / "logs", tell, config.routings_played[0]))
        congestion_control.admit(live.emulation.host_namespaces, parameters, fabric.nic_rate_bps)
        if config.commands and config.queues.marks:
            live.emulation.ask_for_ecn()
        if config.verbs:
            live.emulation.offer_verbs()
        if config.transport.reordering is not None:
            live.emulation.set_in_hosts(sysctls(config.transport.reordering))
        if config.transport.is_rdma:
            live.emulation.make_verbs()
        stack.enter_context(captures(live.emulation, order.captures))
        if order.sflow is not None:
            stack.enter_context(exporting(live.emulation, order.sflow, live.logs, tell))
        pool = AgentPool(PRELOAD)
        stack.callback(pool.stop)
        watched = Path(order.live_file) if order.live_file else None
        kind = Session if watched is None else WatchedSession
        session = kind.of(config, live, pool, Audience(tell, progress, watched), experiment.load_tables())
        if isinstance(session, WatchedSession):
            session.report = report
        try:
            summary = tell_congestion(session, summary_of(experiment.load_run()(session, config)))
        except Exception:
            _keep_samples(session, draft, report)
            raise
        congestion_control.require_ecn()
        write_run(session, draft, experiment, resolved.data, summary, order.command)


def _keep_samples(session: Session, draft: ResultWriter, report: Report) -> None:
    """Write what was measured in the phases that have ended: what fails then may be no more than what is made of it."""
    if not session.phases:
        return
    try:
        write_samples(session, draft)
    except Exception as error:  # Why the run fails is what its user is to be told.
        report(Note(f"samples of the phases that had ended could not be written: {type(error).__name__}: {error}"))


def _save(draft: ResultWriter, part: str, directory: Path, report: Report) -> None:
    """Keep a folder of a run that failed: it goes with the run's memory."""
    target = copy_to_user(draft.directory / part, directory.with_name(f"{directory.name}.failed-{part}"))
    report(Note(f"{part}: {target}"))
