"""The programs in hosts of a run: one keeps a node's slurmd, one keeps munged and slurmctld, submits jobs and looks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from cluster.platform.event_rows import EVENTS, event_row
from cluster.platform.events import Event, JobSpec, to_line
from cluster.platform.programs import ENDING_S, JOBS, Submission, job_row, row_of
from cluster.slurm import standing
from cluster.slurm.answers import SlurmNodeSeen
from cluster.slurm.commands import Slurm, Unanswered, script_of
from cluster.slurm.configuration import SlurmPlan, begin_state
from cluster.slurm.daemons import Daemon
from cluster.slurm.rank_program import is_lacking, is_suspended, is_told, saved_step_of
from cluster.slurm.submitting import Submitting
from cluster.slurm.watching import LifeEnd, Watch
from fabric.errors import TrafficError
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records

JOURNAL = "journal"
"""The file of its events, which can be read while a phase plays."""
LOOK_S = 0.5
"""How often the controller's keeper looks: what came to pass is told as of then. Slurm decides once per second."""
UP_S = 120.0
"""How long daemons may take until all nodes are idle."""
UP = "up"
"""The event that all nodes are idle for the first time in a phase."""
_POLL_S = 0.05


@dataclass(frozen=True)
class Hold:
    """The order to send a daemon a signal; SIGKILL ends all that it has started, too."""

    number: signal.Signals


@dataclass(frozen=True)
class Begin:
    """The order to start a daemon that was killed again."""


@dataclass(frozen=True)
class AskLeft:
    """The order to say which jobs have not ended."""


@dataclass(frozen=True)
class StillThere:
    """The names of jobs that have not ended, those that are still to be submitted included."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class AskStanding:
    """The order to say where all stands, for an error."""


@dataclass(frozen=True)
class Standing:
    """Where all stands, in lines."""

    text: str


@dataclass(frozen=True)
class NodeArguments:
    """What a slurmd's keeper is told."""

    node: str
    config: Path
    environment: Mapping[str, str]
    logs: Path


@dataclass(frozen=True)
class ControllerArguments:
    """What the controller's keeper is told. ``settings``: the file that ranks read; ``logs``: the job's folder."""

    plan: SlurmPlan
    submissions: tuple[Submission, ...]
    environment: Mapping[str, str]
    settings: Path
    logs: Path

    @property
    def scripts(self) -> Path:
        """Where batch scripts and what they print are."""
        return self.logs / "scripts"


def run_slurmd(agent: Agent, arguments: NodeArguments) -> None:
    """Keep a node's slurmd: it runs in phases only, and ends with this program. Raises TrafficError if it ends by
    itself."""
    environment = Slurm(arguments.environment, arguments.config).environment
    daemon = Daemon(arguments.node, ["slurmd", "-D"], environment, arguments.logs / "slurmd.said")
    agent.report(Ready())
    try:
        while True:
            order = _ordered(agent, daemon)
            if isinstance(order, Halt):
                daemon.verify()
            _carry_out(daemon, order)
            agent.report(Ready())
    finally:
        daemon.stop()


def _ordered(agent: Agent, daemon: Daemon) -> object:
    """Return the next order. Raises TrafficError if the daemon ends by itself before it comes."""
    if daemon.end is not None and agent.pipe not in wait([agent.pipe, daemon.end]):
        daemon.verify()
    return agent.receive()


def _carry_out(daemon: Daemon, order: object) -> None:
    if isinstance(order, Play | Begin):
        daemon.start()
    elif isinstance(order, Halt) or (isinstance(order, Hold) and order.number is signal.SIGKILL):
        daemon.stop()
    elif isinstance(order, Hold):
        daemon.signal(order.number)
    else:
        raise TrafficError(f"the keeper of {daemon.command[0]} on {daemon.host} knows no order {order!r}")


def run_controller(agent: Agent, arguments: ControllerArguments) -> None:
    """Keep munged and slurmctld, submit jobs when their time has come, and look at what comes to pass."""
    keeper = _Controller(arguments)
    agent.report(Ready())
    try:
        while True:
            order = _next(agent, keeper)
            if isinstance(order, Play):
                keeper.begin(order.phase)
                agent.report(Ready())
            elif isinstance(order, AskLeft):
                agent.report(StillThere(tuple(keeper.left)))
            elif isinstance(order, AskStanding):
                agent.report(Standing(keeper.standing()))
            elif isinstance(order, Halt):
                agent.report(keeper.end())
            else:
                _carry_out(keeper.slurmctld, order)
                agent.report(Ready())
    finally:
        keeper.stop()


def _next(agent: Agent, keeper: _Controller) -> object:
    """Return the next order; look meanwhile, however fast orders come."""
    while True:
        left_s = None if keeper.next_look_s is None else keeper.next_look_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            keeper.look()
            keeper.next_look_s = time.monotonic() + LOOK_S  # As of now: a look may take longer, and orders wait.
            continue
        with suppress(TimeoutError):
            return agent.receive(left_s)


def _munged(plan: SlurmPlan) -> list[str]:
    folder = plan.folder / "munge"
    files = [f"--{what}-file={folder}/{what}" for what in ("pid", "log", "seed", "key")]
    return ["munged", "--foreground", "--force", f"--socket={plan.munge_socket}", *files]


class _Controller:
    """The controller's daemons, and the jobs of the phase that plays: all are submitted in it, and none is there when
    it ends. Our numbers of jobs go on from one phase to the next, while Slurm begins anew."""

    def __init__(self, arguments: ControllerArguments) -> None:
        self._arguments = arguments
        self._slurm = Slurm(arguments.environment, arguments.plan.config)
        host, logs, environment = arguments.plan.controller.host, arguments.plan.logs, self._slurm.environment
        self._munged = Daemon(host, _munged(arguments.plan), environment, logs / "munged.said")
        self.slurmctld = Daemon(host, ["slurmctld", "-D"], environment, logs / "slurmctld.said")
        self._watch = Watch(arguments.plan.nodes, self._end_of)
        self._submitting = Submitting(self._submit)
        self._nodes: list[SlurmNodeSeen] = []
        self.next_look_s: float | None = None
        """When to look next; None: no phase plays."""
        self._is_up = False
        self._phase = ""
        self._began_s = 0.0
        self._rows: list[dict[str, object]] = []

    @property
    def left(self) -> list[str]:
        """The names of the jobs that have not ended."""
        return self._watch.left + [one.spec.name for one in self._submitting.waiting]

    def standing(self) -> str:
        """Return where nodes and jobs stand, as of the last look, and what daemons logged last."""
        jobs = standing.of_jobs(self._watch.state, self._submitting, self._watch.seen, self._is_up)
        logs = standing.last_lines(self._arguments.plan.logs, self._nodes)
        return "\n".join([standing.of_nodes(self._nodes), *jobs, *logs])

    def begin(self, phase: str) -> None:
        """Bring the controller up; nodes may still be on their way. Raises TrafficError if it does not come."""
        self._phase, self._began_s, self._is_up = phase, time.monotonic(), False
        self._submitting.begin(self._arguments.submissions)
        begin_state(self._arguments.plan)
        key = self._arguments.plan.folder / "munge" / "key"
        if not key.exists():
            key.touch(0o600)
            key.write_bytes(os.urandom(128))
        for daemon in (self._munged, self.slurmctld):
            daemon.start()
            self._await(daemon)
        self.next_look_s = time.monotonic()

    def stop(self) -> None:
        """End the daemons."""
        for daemon in (self.slurmctld, self._munged):
            daemon.stop()

    def _await(self, daemon: Daemon) -> None:
        """Wait until munged has its socket, or slurmctld answers."""
        until_s = self._began_s + UP_S
        while True:
            daemon.verify()
            if daemon.command[0] == "munged":
                if self._arguments.plan.munge_socket.is_socket():
                    return
            else:
                with suppress(Unanswered):
                    self._slurm.nodes()
                    return
            if time.monotonic() > until_s:
                raise TrafficError(f"waited {UP_S:g} s for {daemon.command[0]} to answer; {daemon.host} has its log")
            time.sleep(_POLL_S)

    def look(self) -> None:
        """Submit what is due, and write down what has come to pass. While slurmctld does not answer, nothing has."""
        for daemon in (self._munged, self.slurmctld):
            daemon.verify()
        if not self.slurmctld.is_alive:
            return  # A failure has killed it: who asks would wait for as long as Slurm's commands try.
        with suppress(Unanswered):
            self._look()
        if not self._is_up and time.monotonic() > self._began_s + UP_S:
            raise TrafficError(f"waited {UP_S:g} s for all of Slurm's nodes to be idle\n{self.standing()}")

    def _look(self) -> None:
        """Do so. Raises Unanswered."""
        found, self._nodes = self._slurm.jobs(), self._slurm.nodes()
        now_s = time.monotonic()
        if not self._is_up and all(node.is_idle for node in self._nodes):
            self._is_up = True
            why = f"all {len(self._nodes)} nodes are idle {now_s - self._began_s:.1f} s after the start"
            self._rows.append(event_row(now_s, UP, why))
        jobs, copies = self._submitting.seen(found)
        if copies:
            self._slurm.cancel(copies)
        self._note(self._watch.look(now_s, jobs, self._nodes if self._is_up else ()))
        for identity in self._watch.queued_again():
            self._slurm.release(identity)
        if self._is_up:
            for spec in self._submitting.due(now_s - self._began_s):
                number, event = self._watch.submitted(time.monotonic(), spec)
                self._note([event])
                self._submitting.add(number, spec)
            self._submitting.submit()

    def _submit(self, number: int, spec: JobSpec) -> int:
        folder = self._arguments.scripts
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / f"{number}.sh"
        script.write_text(script_of(number, spec, self._arguments.settings, self._arguments.logs))
        partition = self._arguments.plan.partition_of(spec.priority)
        return self._slurm.submit(number, spec, partition, script, folder / f"{number}.out")

    def _end_of(self, job: int, restart: int) -> LifeEnd:
        logs = self._arguments.logs
        life = logs, job, restart
        return LifeEnd(saved_step_of(*life), is_suspended(*life), is_told(*life), is_lacking(*life))

    def _note(self, events: list[Event]) -> None:
        """Keep events as rows, and as lines of a file that can be read while the phase plays."""
        number_of = {life: job for life, (job, _) in self._watch.lives.items()}
        self._rows += [row_of(event, number_of) for event in events]
        with (self._arguments.logs / JOURNAL).open("a") as journal:
            journal.writelines(f"{to_line(event)}\n" for event in events)

    def end(self) -> Records:
        """Stop jobs that go on; return what has happened. Raises TrafficError if they do not leave."""
        self.look()
        self._submitting.waiting.clear()
        until_s = time.monotonic() + ENDING_S
        while self._submitting.on_their_way:  # Its answer may come yet, or the job be seen.
            if time.monotonic() > until_s:
                raise TrafficError(f"the phase ends before Slurm has taken all jobs\n{self.standing()}")
            time.sleep(_POLL_S)
            self.look()
        until_s = time.monotonic() + ENDING_S
        is_cancelled = self._cancel_all()
        while self._watch.left:
            if time.monotonic() > until_s:
                names = ", ".join(self._watch.left)
                why = f"jobs {names} have not left within {ENDING_S:g} s; are their nodes silent?"
                raise TrafficError(f"{why}\n{self.standing()}")
            time.sleep(_POLL_S)
            self.look()
            is_cancelled = is_cancelled or self._cancel_all()
        self.next_look_s = None
        self._name_folders()
        for daemon in (self.slurmctld, self._munged):
            daemon.verify()
        self.stop()
        rows, self._rows = self._rows, []
        taken = {row["number"] for row in rows if row["event"] == "submitted"}
        jobs = [job_row(job) for job in self._watch.state.jobs.values() if job.number in taken]
        return Records(
            {name: [{"phase": self._phase, **row} for row in found] for name, found in ((EVENTS, rows), (JOBS, jobs))}
        )

    def _cancel_all(self) -> bool:
        """Cancel the jobs that go on; return whether Slurm has answered."""
        numbers = sorted({task.chain for task in self._watch.state.tasks.values()})
        try:
            if numbers:
                self._slurm.cancel([self._submitting.identities[number] for number in numbers])
        except Unanswered:
            return False
        return True

    def _name_folders(self) -> None:
        """Name the folders of ranks by their lives, as those of the project's own platform."""
        for life, (job, restart) in self._watch.lives.items():
            for found in self._arguments.logs.glob(f"*/job{job}.{restart}-*"):
                found.rename(found.with_name(f"{life}-{found.name.rpartition('-')[2]}"))
