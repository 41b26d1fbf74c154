"""Slurm as a job of a run, in the place of the project's own platform."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from cluster.platform.config import PlatformConfig
from cluster.platform.event_rows import EVENTS
from cluster.platform.job import START_TIMEOUT_S, require_room
from cluster.platform.journal_rows import JournalRows
from cluster.platform.programs import ENDING_S
from cluster.platform.proof import STEPS, steps_in
from cluster.platform.ranks import add_modules
from cluster.platform.stage_file import FILE as STAGE_FILE
from cluster.platform.stage_file import VARIABLE as STAGE_VARIABLE
from cluster.platform.stage_file import write_stage
from cluster.slurm import configuration
from cluster.slurm.configuration import CONTROLLER_PORT, NODE_PORT, At, SlurmPlan
from cluster.slurm.installed import why_no_slurm
from cluster.slurm.programs import (
    JOURNAL,
    UP_S,
    AskLeft,
    AskStanding,
    Begin,
    ControllerArguments,
    Hold,
    NodeArguments,
    Standing,
    StillThere,
    run_controller,
    run_slurmd,
)
from cluster.slurm.rank_program import RankSettings
from cluster.tasks import Users
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world import inside
from fabric.world.engines import current_engine
from fabric.world.programs.agents import Program
from traffic.job import Halt, Play, Records, Stage
from traffic.program_group import ProgramGroup
from traffic.programs.environment import lane_environment

_LOOK_S = 0.25
Addressed = Callable[[NodeId], tuple[str, int]]
"""Returns the address and the port of the daemon on a node."""


class SlurmJob:
    """Its first node is the management host, with munged and slurmctld; each other one has a slurmd, and runs users'
    jobs. It has the methods of :class:`cluster.platform.job.PlatformJob`.

    ``at``: overrides the fabric's addresses and Slurm's ports, for tests on one machine.
    """

    def __init__(
        self,
        stage: Stage,
        config: PlatformConfig,
        nodes: Sequence[NodeId],
        level: ServiceLevel = ServiceLevel.CONTROL,
        name: str = "platform",
        at: Addressed | None = None,
    ) -> None:
        require_room(config, nodes, name)
        if faults := [*configuration.refusals(config.policy, config.placement, config.timers)]:
            raise TrafficError(f"{name}: {'; '.join(faults)}")
        self.name, self.level, self._stage, self._config = name, level, stage, config
        self._manager, self._nodes = nodes[0], tuple(nodes[1:])
        self._at = at
        self.folder: Path | None = None
        self._so_far: RowsSoFar | None = None
        self._controller: ProgramGroup[NodeId] = ProgramGroup(stage, name)
        self._slurmds: ProgramGroup[NodeId] = ProgramGroup(stage, name)
        self._held = HeldDaemons(self._slurmds), HeldDaemons(self._controller)

    @property
    def failing_programs(self) -> Sequence[HeldDaemons]:
        """The daemons, which failures may stop or kill. A slurmd that is stopped leaves its ranks running; one that is
        killed takes them along, as a host that is lost does."""
        return self._held

    def start(self) -> None:
        """Write Slurm's files, and fork what keeps its daemons. Raises TrafficError if Slurm is not installed."""
        if why := why_no_slurm():
            raise TrafficError(f"{self.name}: {why}")
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        logs = self._stage.logs / self.name
        plan = self._plan(self.folder, logs)
        configuration.write(plan)
        timers = self._config.timers
        settings = self.folder / "ranks.json"
        addresses = {end.host: end.address for end in plan.ends}
        # What programs send is nobody's but theirs; a file system that they mount is told which lane.
        given = {"FABRIC_PYTHON": sys.executable, "FABRIC_TOS": str(ServiceLevel.NCCL.tos)}
        given[STAGE_VARIABLE] = str(logs / STAGE_FILE)
        logs.mkdir(parents=True, exist_ok=True)
        journal = logs / JOURNAL
        earlier = journal.stat().st_size if journal.exists() else 0  # Of one that was started before.
        self._so_far = RowsSoFar(JournalRows(journal, (plan.nodes, Users()), "", offset=earlier))
        write_stage(logs, self._stage, addresses)
        RankSettings(str(logs), timers.answer, timers.save, addresses, given).write(settings)
        environment = {**current_engine().users_environment(), **lane_environment(self.level, inside.RUN_DIR)}
        add_modules(environment, self.folder / "modules")
        submissions = tuple(one.submission for one in self._config.jobs)
        controller = ControllerArguments(plan, submissions, environment, settings, logs)
        self._start(self._controller, run_controller, {self._manager: controller})
        slurmds = {node: NodeArguments(node.name, plan.config, environment, logs / node.name) for node in self._nodes}
        self._start(self._slurmds, run_slurmd, slurmds)

    def _start(self, group: ProgramGroup[NodeId], program: Program, arguments: Mapping[NodeId, object]) -> None:
        # A process each: what keeps a daemon must not end with another's.
        group.start_all(program, {node: (program.__name__, node, given) for node, given in arguments.items()}, 1)
        group.await_ready("readiness", START_TIMEOUT_S)

    def _plan(self, folder: Path, logs: Path) -> SlurmPlan:
        manager, *ends = (self._end(node) for node in (self._manager, *self._nodes))
        nodes = self._config.nodes_of(self._stage.fabric, self._nodes)
        config = self._config
        return SlurmPlan(
            manager, nodes, tuple(ends), config.policy, config.placement, config.timers, folder, logs,
            config.ends_at_limit,
        )  # fmt: skip

    def _end(self, node: NodeId) -> At:
        if self._at is not None:
            return At(node.name, *self._at(node))
        port = CONTROLLER_PORT if node == self._manager else NODE_PORT
        return At(node.name, self._stage.fabric.nics_of[node][0].ip, port)

    def play(self, phase: str) -> None:
        """Begin: the daemons come up, and jobs are submitted when their time has come, but not before all nodes are
        idle."""
        if self._so_far is not None:
            self._so_far.begin(phase)
        for programs in (self._controller, self._slurmds):
            with programs.asking:
                programs.order(Play(phase))
                programs.await_ready("begin", UP_S + START_TIMEOUT_S)

    def finish(self, timeout_s: float = 3600.0) -> None:
        """Return once all jobs have ended. Raises TrafficError if they have not in time, saying where they stand, and
        if a daemon has ended by itself."""
        until_s = time.monotonic() + timeout_s
        while left := self._left():
            self.verify()
            if time.monotonic() > until_s:
                why = f"{self.name}: jobs {', '.join(left)} have not ended within {timeout_s:g} s"
                raise TrafficError(f"{why}\n{self._standing()}")
            time.sleep(_LOOK_S)

    def verify(self) -> None:
        """Raise TrafficError if a daemon has ended by itself, or what keeps it."""
        for keepers in (self._controller, self._slurmds):
            keepers.verify("the end of the phase")

    def _standing(self) -> str:
        """Return where nodes and jobs stand, for an error."""
        with self._controller.asking:
            self._controller.order(AskStanding())
            (answer,) = self._controller.collect("word of where all stands", UP_S).values()
        return answer.text if isinstance(answer, Standing) else repr(answer)

    def _left(self) -> tuple[str, ...]:
        """Return the names of the jobs that have not ended."""
        with self._controller.asking:
            self._controller.order(AskLeft())
            answers = self._controller.collect("word of the jobs that have not ended", UP_S)
        (answer,) = answers.values()
        if not isinstance(answer, StillThere):
            raise TrafficError(f"{self.name}: the keeper of slurmctld answered {answer!r} instead of what is left")
        return answer.names

    def so_far(self) -> Records:
        """Return the rows of events, and of jobs that were submitted, since the last call."""
        return Records() if self._so_far is None else self._so_far.read()

    def halt(self) -> Records:
        """Stop jobs that go on, and the daemons; return what has happened, a row per event."""
        with self._controller.asking:
            self._controller.order(Halt())
            (records,) = self._controller.collect("its events", ENDING_S + UP_S).values()
        with self._slurmds.asking:
            self._slurmds.order(Halt())
            self._slurmds.await_ready("end", START_TIMEOUT_S)
        if not isinstance(records, Records):
            raise TrafficError(f"{self.name}: the keeper of slurmctld answered {records!r} instead of its events")
        said = steps_in(self._stage.logs / self.name, records.rows(EVENTS))
        phase = records.rows(EVENTS)[0]["phase"] if records.rows(EVENTS) else ""
        records.add(STEPS, [{"phase": phase, **one._asdict()} for one in said])
        if self._so_far is not None:
            self._so_far.end()
        return records

    def close(self) -> None:
        """End the programs, and with them the daemons."""
        self._slurmds.close()
        self._controller.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class RowsSoFar:
    """Rows of a journal while a phase plays; who watches asks in a thread of its own, also between phases."""

    def __init__(self, rows: JournalRows) -> None:
        self._rows, self._is_playing, self._lock = rows, False, threading.Lock()

    def begin(self, phase: str) -> None:
        """Begin with what comes from now on."""
        with self._lock:
            self._rows.begin(phase)
            self._is_playing = True

    def end(self) -> None:
        """Have nothing more, until the next phase."""
        with self._lock:
            self._is_playing = False

    def read(self) -> Records:
        """Return the rows since the last call."""
        with self._lock:
            return self._rows.read() if self._is_playing else Records()


class HeldDaemons:
    """Daemons of a group of keepers, as :class:`fabric.failures.kinds.process.FailingPrograms`."""

    def __init__(self, keepers: ProgramGroup[NodeId]) -> None:
        self._keepers = keepers
        self._killed: set[str] = set()

    @property
    def hosts(self) -> Collection[str]:
        """Where daemons were not killed."""
        return self._keepers.hosts - self._killed

    def stop_on(self, host: str) -> None:
        """Send SIGSTOP."""
        self._order(host, Hold(signal.SIGSTOP))

    def resume_on(self, host: str) -> None:
        """Send SIGCONT."""
        self._order(host, Hold(signal.SIGCONT))

    def kill_on(self, host: str) -> None:
        """End a daemon at once, and all that it has started."""
        self._killed.add(host)
        self._order(host, Hold(signal.SIGKILL))

    def restart_on(self, host: str) -> None:
        """Start a daemon again: slurmctld goes on from its state, slurmd without jobs."""
        self._order(host, Begin())
        self._killed.discard(host)

    def _order(self, host: str, order: object) -> None:
        for node in [node for node in self._keepers.handles if node.name == host]:
            with self._keepers.asking.of(node):
                self._keepers.order(order, [node])
                self._keepers.await_ready(f"word that it did as ordered: {order}", UP_S, [node])
