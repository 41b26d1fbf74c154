"""Targets of all kinds in time that jumps, random failures of them, and an observer at each: what they are, looked at
once per sampling period, beside what the table ``failures`` says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pandas as pd

from fabric.errors import ConfigError
from fabric.failures import injection, injector
from fabric.failures.config import failure_line, schedule_failures
from fabric.failures.injection import NotThereError
from fabric.failures.kind import FailureKind
from fabric.failures.kinds import process
from fabric.failures.kinds.disk import DiskState
from fabric.failures.kinds.gpu import GpuState, GpuTarget
from fabric.failures.kinds.process import ProgramTarget
from fabric.failures.line import FailureConfig
from fabric.failures.listing import KINDS
from fabric.failures.report import FaultReport
from fabric.failures.schedule import WHOLE, FailureSchedule, LinkState
from fabric.model.network import Link, Port
from runs import failures
from runs.failures import Injections
from runs.phase_rows import failure_rows
from tests.jumping_threads import Condition, JumpingThreads, jumping
from topologies.load import load_fabric
from traffic import program_group
from traffic.program_group import ProgramLock

FABRIC = load_fabric("fire_flyer_2_tiny")
HOSTS = [node.name for node in FABRIC.computes][:4]
STORAGES = [node.name for node in FABRIC.storages]
LINKS = list(FABRIC.links)
PHASE_S, PERIOD_S = 20.0, 0.05
DISKS = 2
PROMPT_S = 0.01
"""What answers at once does so in less."""
BY_ITSELF_S = 1.5
"""After how long what supervises the platform's agents begins one again."""


@dataclass
class Program:
    """A program of a group on a host. ``life``: how often it was begun."""

    is_alive: bool = True
    is_stopped: bool = False
    life: int = 0

    @property
    def state(self) -> str:
        return "killed" if not self.is_alive else "stopped" if self.is_stopped else "whole"


class Group:
    """Programs of a job, as :class:`fabric.failures.kinds.process.FailingPrograms`."""

    def __init__(self, threads: JumpingThreads, hosts: Sequence[str], start_s: float = 0.2) -> None:
        self.threads, self._start_s = threads, start_s
        self.programs = {host: Program() for host in hosts}
        self.asking = ProgramLock()
        self.turn = Condition(threads)

    @property
    def hosts(self) -> list[str]:
        return [host for host, program in self.programs.items() if program.is_alive]

    def _there(self, host: str) -> Program:
        if not self.programs[host].is_alive:
            raise NotThereError(f"no program on {host}")
        return self.programs[host]

    def _tell(self) -> None:
        with self.turn:
            self.turn.notify_all()

    def stop_on(self, host: str) -> None:
        self._there(host).is_stopped = True

    def resume_on(self, host: str) -> None:
        self._there(host).is_stopped = False
        self._tell()

    def kill_on(self, host: str) -> None:
        program = self._there(host)
        program.is_alive = program.is_stopped = False
        self._tell()

    def restart_on(self, host: str) -> None:
        with self.asking.of(host):
            if self.programs[host].is_alive:
                return
            self.threads.sleep(self._start_s)
            self.programs[host] = Program(life=self.programs[host].life + 1)

    def asked(self, host: str, do: Callable[[], Any]) -> Any:
        """Return what a program does once it is asked and runs."""
        with self.asking.of(host), self.turn:
            life = self._there(host).life
            while self.programs[host].is_stopped:
                self.turn.wait()
                if self._there(host).life != life:
                    raise NotThereError(f"the program on {host} was killed")
            return do()


class Supervised(Group):
    """Programs that are begun again by themselves."""

    def __init__(self, threads: JumpingThreads, hosts: Sequence[str], start_s: float) -> None:
        super().__init__(threads, hosts, start_s)
        self.begun: Callable[[str], None] = lambda host: None

    def kill_on(self, host: str) -> None:
        super().kill_on(host)
        life = self.programs[host].life
        self.threads.begin(self._begin_again, (host, life), "supervisor")

    def _begin_again(self, host: str, life: int) -> None:
        self.threads.sleep(BY_ITSELF_S)
        if not self.programs[host].is_alive and self.programs[host].life == life:
            self.restart_on(host)
            self.begun(host)


@dataclass
class Job:
    """A job with programs."""

    name: str
    failing_programs: Sequence[Group]


@dataclass
class Storage(Job):
    """One with disks, too: they outlast its services."""

    disks: dict[tuple[str, int], DiskState] = field(default_factory=dict)
    rotten: dict[tuple[str, int], int] = field(default_factory=dict)
    in_use: dict[tuple[str, int, int], DiskState] = field(default_factory=dict)
    """By host, disk and life of the service, what that was told of the disk, or begins with."""

    def disks_on(self, host: str) -> int:
        return DISKS if host in STORAGES else 0

    def set_disk(self, host: str, number: int, state: DiskState) -> None:
        self.disks[host, number] = state

        def do() -> None:
            self.in_use[host, number, self.failing_programs[0].programs[host].life] = state

        self.failing_programs[0].asked(host, do)

    def rot(self, host: str, number: int, count: int, seed: str) -> Sequence[str]:
        def do() -> list[str]:
            self.rotten[host, number] = self.rotten.get((host, number), 0) + count
            return ["chunk"] * count

        found: list[str] = self.failing_programs[0].asked(host, do)
        return found

    def seen(self, host: str, number: int) -> str | None:
        """Return how a disk is to who reads it; None while nobody can."""
        service = self.failing_programs[0].programs[host]
        if service.state != "whole":
            return None
        key = (host, number, service.life)
        state = self.in_use.setdefault(key, self.disks.get(key[:2], DiskState()))
        return str(DiskState(state.fails, state.factor, state.added_s, self.rotten.get((host, number), 0)))


@dataclass
class Platform(Job):
    """One that sees errors of GPUs."""

    errors: dict[tuple[str, int], GpuState] = field(default_factory=dict)

    def gpus_on(self, host: str) -> int:
        return 8 if host in HOSTS else 0

    def _had(self, host: str, number: int) -> GpuState:
        return self.errors.get((host, number), GpuState())

    def gpu_error(self, host: str, number: int, xid: int) -> None:
        had = self._had(host, number)
        self.errors[host, number] = GpuState((*had.xids, xid), had.wrong)

    def gpu_computes_wrong(self, host: str, number: int) -> None:
        had = self._had(host, number)
        self.errors[host, number] = GpuState(had.xids, had.wrong + 1)


class Links:
    """The links, changed by the code of the real process, whose kernel is this."""

    def __init__(self, threads: JumpingThreads) -> None:
        self.threads = threads
        self.now = dict.fromkeys(LINKS, WHOLE)
        self._told: list[object] = []
        self._turn = Condition(threads)
        self._over = Condition(threads)
        self._report: FaultReport | None = None

    def prepare(self, schedule: FailureSchedule) -> None:
        self._schedule = schedule

    def play(self, started: float) -> None:
        self.threads.begin(self._run, (started,), "links")

    def carry_out(self, schedule: FailureSchedule) -> None:
        raise NotImplementedError("nothing fails by hand here")

    def _run(self, started: float) -> None:
        hands = Hands(self, self._schedule)
        injector._play(self, hands, self._schedule, started)  # type: ignore[arg-type]
        with self._over:
            self._report = hands.restored()
            self._over.notify_all()

    def receive(self, timeout_s: float | None = None) -> object:
        with self._turn:
            if not self._turn.wait_for(lambda: bool(self._told), timeout_s):
                raise TimeoutError
            return self._told.pop()

    def look_again(self) -> None: ...

    def restore(self) -> FaultReport:
        with self._turn:
            self._told.append("restore")
            self._turn.notify_all()
        with self._over:
            self._over.wait_for(lambda: self._report is not None, 60)
        assert self._report is not None, "the links are not restored"
        return self._report

    def release(self) -> None: ...

    def abandon(self) -> None: ...


class Hands(injector._LinkControl):
    """What reaches into links, without a kernel: requests are of the state of a link."""

    def __init__(self, links: Links, schedule: FailureSchedule) -> None:
        self._links = links
        self._ends = schedule.changes_s
        self._states, self._causes, self._changes, self._programs, self._waiting = {}, {}, [], {}, {}
        self._setup = mock.Mock()
        self._watch = mock.Mock(refused=0, **{"in_switches.return_value": {}, "on_wires.return_value": {}})
        self._sockets = mock.MagicMock()

    def look(self, events: Any) -> None: ...

    def _install_programs(self, links: Any) -> None: ...

    def _requests(self, event: Any) -> Iterator[tuple[Port, Any]]:
        old, new = self._links.now[event.link], event.state
        self._links.now[event.link] = LinkState(new.up, new.rate_fraction, old.loss_fraction)
        return iter(())

    def _set_loss(self, event: Any) -> None:
        old = self._links.now[event.link]
        self._links.now[event.link] = LinkState(old.up, old.rate_fraction, event.state.loss_fraction)

    def _verify_carrier(self, event: Any) -> None:
        self._links.threads.sleep(0.0003)


class World:
    """All of them, and what their observer has seen: the states of each target over time."""

    def __init__(self, threads: JumpingThreads) -> None:
        self.threads = threads
        self.storage = Storage("storage", [Group(threads, STORAGES), Group(threads, HOSTS[:1])])
        self.train = Job("train", [Group(threads, HOSTS[:3], 0.1)])
        self.platform = Platform("platform", [Supervised(threads, HOSTS[1:], 0.3)])
        self.jobs: list[Job] = [self.storage, self.train, self.platform]
        self.links = Links(threads)
        self.seen: dict[str, list[tuple[float, str]]] = {}
        self._is_over = False

    def observe(self) -> None:
        while not self._is_over:
            for name, state in self._looked():
                if state is not None:
                    self.seen.setdefault(name, []).append((self.threads.now_s, state))
            self.threads.sleep(PERIOD_S)

    def _looked(self) -> Iterator[tuple[str, str | None]]:
        for job in self.jobs:
            for group in job.failing_programs:
                yield from (
                    (str(ProgramTarget(host, job.name)), program.state) for host, program in group.programs.items()
                )
        yield from (
            (f"{host}/{number}", self.storage.seen(host, number)) for host in STORAGES for number in range(DISKS)
        )
        yield from ((str(link), str(state)) for link, state in self.links.now.items())
        yield from (
            (str(GpuTarget(host, number)), str(self.platform._had(host, number)))
            for host in HOSTS for number in range(2)
        )  # fmt: skip

    def end(self) -> None:
        self._is_over = True


def draw_lines(draws: random.Random) -> list[FailureConfig]:
    """Return some failures that do not contradict each other."""
    kept: list[FailureConfig] = []
    for _ in range(draws.randint(1, 10)):
        line = failure_line(_line(draws))
        try:
            schedule_failures([*kept, line], FABRIC, 1)
        except ConfigError:
            continue
        kept.append(line)
    return kept


def _line(draws: random.Random) -> dict[str, Any]:
    times = {"at": round(draws.uniform(0, PHASE_S * 1.05), 3)}
    lasts = {"for": round(draws.choice([0.2, 1.0, 4.0, 15.0]) * draws.uniform(0.5, 1.5), 3)}
    link = draws.choice([{"link": str(draws.choice(LINKS).a)}, {"nic": f"{draws.choice(HOSTS)}:0"},
                         {"switch": draws.choice([node.name for node in FABRIC.switches])},
                         {"storage": draws.choice(STORAGES)}])  # fmt: skip
    host = draws.choice([*HOSTS, *STORAGES, *STORAGES])
    jobs = [name for name, there in (("storage", [*STORAGES, HOSTS[0]]), ("train", HOSTS[:3]), ("platform", HOSTS[1:]))
            if host in there]  # fmt: skip
    job = draws.choice([{}, {"job": draws.choice(jobs)}])
    disk = {"disk": draws.choice(STORAGES) + draws.choice(["", "/0", "/1"])}
    gpu = {"gpu": f"{draws.choice(HOSTS)}/{draws.randrange(2)}"}
    maybe = draws.choice([{}, lasts, lasts, lasts])
    kinds: list[dict[str, Any]] = [
        {**link, **maybe},
        {**link, **maybe, "rate": draws.choice([0.1, 0.5])},
        {**link, **maybe, "loss": draws.choice([0.01, 0.2])},
        {"silent": host, **lasts, "then": draws.choice(["returns", "returns", "dead"])},
        {"process": host, **job, "effect": "kill"},
        {"process": host, **job, "effect": "restart", **lasts},
        {"process": host, **job, "effect": "stop", **maybe},
        {**disk, "effect": "error", **maybe},
        {**disk, "effect": "slow", "latency": draws.choice([0.01, 0.05]), **maybe},
        {**disk, "effect": "rot", "chunks": draws.randint(1, 3)},
        {**gpu, "xid": draws.choice([13, 31, 79, 94])},
        {**gpu, "effect": "wrong"},
    ]
    return {**draws.choice(kinds), **times}


def played(lines: Sequence[FailureConfig]) -> tuple[pd.DataFrame, World]:
    """Return the rows of the table after a phase with failures, and what was seen."""
    with jumping(injection, injector, process, program_group) as threads:
        world = World(threads)
        kind = FailureKind("link", Link, lambda scene: world.links)
        with mock.patch.multiple(failures, LINK=kind, KINDS=[kind, *KINDS[1:]]):
            injections = Injections(None, None, 1)  # type: ignore[arg-type]
            injections.prepare(schedule_failures(lines, FABRIC, 1), world.jobs)
            threads.begin(world.observe, (), "observer")
            injections.play(threads.now_s)
            threads.sleep(PHASE_S)
            report = injections.restore()
            injections.release()
            threads.sleep(4 * PERIOD_S)
            world.end()
    return pd.DataFrame(failure_rows("p", report)), world


def said(rows: pd.DataFrame) -> Mapping[str, list[tuple[float, str]]]:
    """Return since when each target is in which state, by the rows."""
    found: dict[str, list[tuple[float, str]]] = {}
    for row in rows.sort_values("done_s", kind="stable").to_dict("records") if len(rows) else []:
        if not row["missed"]:
            state = "killed" if str(row["state"]).startswith("killed") else str(row["state"])
            found.setdefault(str(row["target"]), []).append((float(row["done_s"]), state))
    return found


def differences(rows: pd.DataFrame, world: World) -> list[str]:
    """Return what the observer saw that the rows do not say within a sampling period."""
    changes = said(rows)
    found = [f"{target}: is of nothing" for target in changes.keys() - world.seen.keys()]
    for target, seen in world.seen.items():
        steps = [(-1.0, "whole"), *changes.get(target, [])]
        for at_s, state in seen:
            near = [words for since, words in steps if abs(since - at_s) <= PERIOD_S]
            before = [words for since, words in steps if since <= at_s - PERIOD_S][-1:]
            if state not in near + before:
                found.append(f"{target} at {at_s:.3f} s: is {state}; said: {' or '.join(near + before)}")
    return found
