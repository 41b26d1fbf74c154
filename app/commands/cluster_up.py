"""``fabric cluster up``: a scheduler and its agents on a fabric, for users to ask until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from app.commands.options import add_engine_option, add_set_option
from fabric.errors import FabricError, UsageError
from runs.console import ERR, tell

if TYPE_CHECKING:  # What runs takes a while to load, and help needs none of it.
    from app.commands.cluster_config import Asked
    from cluster.platform.responses import AboutCluster

DEFAULT_TOPOLOGY = "fire_flyer_2_small"
_LISTENER = "--listener"
"""For ourselves: the descriptor of the socket at which users ask."""
_PHASE = "cluster"
_LOOK_S = 0.2
_WRITE_BACK_CENTISECONDS = 100
"""How soon a guest's files are the host's: ranks' logs are to survive an end without notice."""


def add_up_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric cluster up``."""
    what = (
        "a YAML file of a cluster (docs/cluster.md), a topology's name or file, or the folder of a cluster that was "
        f"up, to go on with it; without it {DEFAULT_TOPOLOGY}"
    )
    parser.add_argument("config", nargs="?", metavar="CONFIG|TOPOLOGY|DIR", help=what)
    nodes = "compute nodes, by commas; the scheduler is on the first, agents are on the others (default: all)"
    parser.add_argument("--nodes", metavar="HOST,...", help=nodes)
    login = "from where questions go over the fabric (default: a compute node beside the nodes, or the last of them)"
    parser.add_argument("--login", metavar="HOST", help=login)
    add_set_option(parser, "change a key of the config, e.g. policy=fifo or timers.tick='500 ms'")
    add_engine_option(parser)
    pace = "virtual seconds per wall second, at most, with --engine virtual (default: 1)"
    parser.add_argument("--pace", type=float, metavar="X", help=pace)
    folder = "folder of the cluster, with its journal and logs (default: a new one in results/)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=folder)
    parser.add_argument(_LISTENER, type=int, help=argparse.SUPPRESS)
    parser.set_defaults(command=run_up)


def run_up(options: argparse.Namespace, _: list[str]) -> int:
    """Bring a cluster up and answer until it is ended."""
    from fabric.world import inside

    if inside.is_inside():
        return _up_in_world(Path(options.config), options)
    from app.commands.cluster_config import forget_new, locked
    from app.commands.worlds import enter_world
    from cluster.platform.gateway import listening_socket
    from fabric.world.engines import ENGINES
    from fabric.world.isolation.processes import die_with_sudo

    engine = ENGINES[options.engine]
    pace = _pace(options, is_paced=not engine.has_terminal)
    folder, asked = _folder(options, engine)
    words = ["cluster", "up", str(folder), "--engine", options.engine]
    words += [] if options.memory is None else ["--memory", f"{options.memory}B"]
    # What is open of these is so as long as this process is, or the first one of its world, which it becomes.
    lock, listener = locked(folder), listening_socket()
    front = None
    options.files = list(asked.files)
    die_with_sudo()
    if engine.has_terminal:
        for descriptor in (lock, listener.fileno()):
            os.set_inheritable(descriptor, True)
        words += [_LISTENER, str(listener.fileno())]
    else:
        front = _paced_front(pace, listener, _about(folder, asked, options.engine))
    try:
        enter_world(words, options, asked.fabric, words=[str(folder)], front=front)
    except FabricError:
        forget_new(folder)
        raise
    raise AssertionError("a world was entered")


def _pace(options: argparse.Namespace, is_paced: bool) -> float:
    from cluster.platform.pacing import LEAST_PACE, MOST_PACE

    if options.pace is None:
        return 1.0
    if not is_paced:
        raise UsageError(f"--pace {options.pace:g}: is for --engine virtual; real time has a pace of its own: omit it")
    if not LEAST_PACE <= options.pace <= MOST_PACE:
        raise UsageError(f"--pace {options.pace:g}: must be {LEAST_PACE:g} to {MOST_PACE:g}")
    return float(options.pace)


def _folder(options: argparse.Namespace, engine: Any) -> tuple[Path, Asked]:
    """Return the folder of the cluster, made unless it goes on with one, and its config. Raises UsageError."""
    from app.commands.cluster_config import config_named, config_of, is_folder, keep_config
    from fabric.results import new_directory
    from runs.handover import make_for_user

    given = None if options.config is None else Path(options.config)
    if given is not None and given.is_dir():
        changes = {
            "--nodes": options.nodes,
            "--login": options.login,
            "--set": options.overrides,
            "--out": options.out,
        }
        asked = config_of(given)
        asked.config.require(engine)
        for name in (name for name, value in changes.items() if value):
            raise UsageError(f"{name}: {given} goes on as it was; omit it, or bring up a new cluster")
        return given.absolute(), asked
    settings = [*options.overrides]
    settings += [] if options.nodes is None else [f"nodes=[{options.nodes}]"]
    settings += [] if options.login is None else [f"login={options.login}"]
    asked = config_named(options.config or DEFAULT_TOPOLOGY, settings)
    asked.config.require(engine)
    folder: Path = (options.out or new_directory(Path("results"), "cluster")).absolute()
    if is_folder(folder):
        raise UsageError(f"--out {folder}: is there already; to go on with it: fabric cluster up {folder}")
    if folder.exists():
        raise UsageError(f"--out {folder}: already exists, and is not a cluster's; give a new name")
    if folder.is_relative_to("/run"):
        raise UsageError(f"--out {folder}: /run is private to a run and removed with it; give a path elsewhere")
    make_for_user(folder)
    keep_config(asked.config, folder)
    return folder, asked


def _about(folder: Path, asked: Asked, engine: str) -> AboutCluster:
    """Return the cluster's description of itself, for those who ask."""
    from cluster.platform.responses import AboutCluster
    from fabric.world.engines import ENGINES
    from fabric.world.virtual.guest import directories_named, directories_to_keep

    nodes, login = asked.config.placed(asked.fabric)
    sees = tuple(map(str, directories_to_keep([Path.cwd(), *directories_named([str(folder)])])))
    return AboutCluster(
        sees if ENGINES[engine].has_own_kernel else None,
        str(folder),
        asked.fabric.name,
        engine,
        asked.config.policy,
        nodes[0].name,
        login.name,
        len(nodes) - 1,
    )


def _paced_front(pace: float, listener: socket.socket, about: AboutCluster) -> Any:
    """Return how a guest is reached: its users' questions, and its time."""
    from cluster.platform.gateway import GatewayServer, LoopThread
    from cluster.platform.pacing import PacedQuestions
    from fabric.world.engine import Front

    def is_up() -> None:
        server.answering = questions.answer

    questions = PacedQuestions(pace, is_up)
    server = GatewayServer(LoopThread("gateway"), listener, about, questions.end)
    return Front(ask=questions.ask, stdout=questions, endless=True)


# In the world --------------------------------------------------------------------------------------------------------


@dataclass
class _World:
    """What the first process of a world has of the cluster: how it is asked, and how it is told to end."""

    folder: Path
    asked: Asked
    answers: BinaryIO | None
    """Where answers go that a guest's users are given; None in real time, where users reach the thread themselves."""
    thread: Any
    server: Any = None
    told: Any = None
    """The state by the events that were shown, and where further ones come from."""

    def until_down(self, answering: Any, verify: Callable[[], None]) -> None:
        """Answer users until one asks for the end."""
        if self.server is not None:
            self.server.answering = answering
            while not self.server.down.wait(_LOOK_S):
                verify()
            return
        from cluster.platform.pacing import GuestQuestions
        from fabric.world.virtual.dialogue import next_line
        from fabric.world.virtual.guest import CONTROL

        assert self.answers is not None
        questions = GuestQuestions(
            lambda: next_line(CONTROL), lambda one: self.thread.begin(answering(one)), self.answers
        )
        while (go_s := questions.turn()) is not None:
            time.sleep(go_s)
            verify()


def _up_in_world(folder: Path, options: argparse.Namespace) -> int:
    from app.commands.cluster_config import config_of
    from app.commands.live import live_fabric
    from app.commands.worlds import enter_world
    from fabric.model.lanes import plan_lanes
    from fabric.world.engines import current_engine
    from fabric.world.isolation.sysctl import write_sysctl
    from fabric.world.programs.agents import fork_server
    from runs.handover import hand_over
    from runs.preload import PRELOAD

    answers = _own_stdout() if options.listener is None else None
    enter_world([], options, None)
    if current_engine().has_own_kernel:
        for name in ("dirty_writeback_centisecs", "dirty_expire_centisecs"):
            write_sysctl(f"vm/{name}", _WRITE_BACK_CENTISECONDS)
    asked = config_of(folder)
    config = asked.config
    fork_server(PRELOAD)
    world = _world(folder, asked, answers, options)
    try:
        lanes = plan_lanes(config.queues, config.queueing)
        with live_fabric(asked.fabric, lanes, config.routing, verbs=config.verbs) as live:
            _drive(world, live)
    finally:
        world.thread.close()
        hand_over(folder)
    tell(f"down; journal and logs: {folder}; to go on with it: fabric cluster up {folder}")
    return 0


def _own_stdout() -> BinaryIO:
    """Return stdout; what libraries print from now on goes to stderr instead."""
    mine = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(mine, "wb")


def _world(folder: Path, asked: Asked, answers: BinaryIO | None, options: argparse.Namespace) -> _World:
    from cluster.platform.gateway import GatewayServer, LoopThread

    thread = LoopThread("gateway")
    server = None
    if options.listener is not None:
        listener = socket.socket(fileno=options.listener)
        os.set_inheritable(listener.fileno(), False)
        server = GatewayServer(thread, listener, _about(folder, asked, options.engine))
    return _World(folder, asked, answers, thread, server)


def _drive(world: _World, live: Any) -> None:
    """Start the platform on a fabric that is up, answer until it is ended, then let what runs save and leave."""
    from app.commands.cluster_by_hand import is_of_fabric
    from app.commands.exec_files import mountable
    from cluster.platform.client import asked as asked_over
    from fabric.model.lanes import ServiceLevel

    config, fabric = world.asked.config, world.asked.fabric
    nodes, login = config.placed(fabric)
    with mountable(live, nodes[1:], config.files) as files, _platform(world, live, files) as (job, hands):
        pair = fabric.nic_pair(login, nodes[0])
        source = fabric.nics_of[login][0].ip if pair is None else pair[0].ip
        transport = live_stage(world, live, None).transport(ServiceLevel.CONTROL)
        world.thread.enter(live.emulation.namespace_of(login))

        async def answering(question: dict[str, Any]) -> dict[str, Any]:
            if is_of_fabric(question):
                return await asyncio.to_thread(hands.answer, question)
            return await asked_over(transport, job.endpoint, source, question)

        _greet(world)

        supervisor = supervisor_of(job)

        def verify() -> None:
            supervisor.look()
            _print_events(world)

        with suppress(KeyboardInterrupt, SystemExit):
            world.until_down(answering, verify)
        tell("going down: what runs is suspended, and may save (Ctrl-C again ends it at once)")
        hands.heal_all()  # What runs could not save.
        job.drain()
        _print_events(world)


def live_stage(world: _World, live: Any, pool: Any) -> Any:
    """Return what the platform needs of a fabric that is up."""
    from traffic.job import Stage

    namespace_of, logs = live.emulation.namespace_of, world.folder / "logs"
    window = world.asked.config.receive_window
    return Stage(live.fabric, pool, namespace_of, seed=1, receive_window_bytes=window, logs=logs)


@contextmanager
def _platform(world: _World, live: Any, files: Any) -> Iterator[tuple[Any, Any]]:
    """Have the platform's programs run for the time of a block; yield them as a job, and what carries out failures by
    hand. ``files``: the job of a file system, if there is one."""
    from app.commands.cluster_by_hand import hands_on
    from app.commands.cluster_config import PLATFORM, failures_of
    from cluster.platform.job import PlatformJob
    from fabric.world.programs.agents import AgentPool
    from runs.preload import PRELOAD

    config = world.asked.config
    with ExitStack() as stack:
        pool = AgentPool(PRELOAD)
        stack.callback(pool.stop)
        nodes, _ = config.placed(live.fabric)
        _begin_events(world)
        job = PlatformJob(live_stage(world, live, pool), config, nodes, name=PLATFORM)
        stack.callback(job.close)
        job.start()
        job.play(_PHASE, goes_on=submissions_of(world.told[0].tokens))
        kept, jobs = (failures_of(world.folder), job.origin_s), [job, *([] if files is None else [files])]
        hands = stack.enter_context(hands_on(live, pool, jobs, kept, _say))
        if config.sample_period is not None:
            stack.enter_context(_sampled(world, live, (pool, job.origin_s), config.sample_period))
        yield job, hands


def _sampled(world: _World, live: Any, of: tuple[Any, float], period_s: float) -> Any:
    """Return a context in which samples go to the cluster's folder, behind those of earlier times. ``of``: the
    pool of programs, and when the journal's time was zero."""
    from app.commands.cluster_config import PLATFORM, samples_of
    from fabric.measure.live_file import LivePhase, LiveReader
    from runs.phase_meter import sampled_to_file

    file, config = samples_of(world.folder), world.asked.config
    file.touch()
    reader = LiveReader(file)
    reader.read()
    reader.close()
    os.truncate(file, reader.whole_bytes)  # A sample that was being written when the cluster was killed.
    title = "the cluster" + (f", up for the {len(reader.series) + 1}. time" if reader.series else "")
    routing = config.routing.name
    pool, origin_s = of
    phase = LivePhase(_PHASE, title, config.queueing.value, routing, (PLATFORM,), origin_s)
    return sampled_to_file(live, pool, period_s, file, phase)


def supervisor_of(job: Any) -> Any:
    """Return what begins the agents and the scheduler of a cluster again."""
    from cluster.platform.supervision import Supervisor

    agents, scheduler = job.failing_programs
    return Supervisor((agents, scheduler), scheduler, _say)


def submissions_of(tokens: Iterable[str]) -> str:
    """Return what the jobs of a cluster's config are called in its journal. ``tokens``: those of all jobs there."""
    from cluster.platform.programs import name_of

    return next(filter(None, map(name_of, tokens)), f"{_PHASE} 0")


def _greet(world: _World) -> None:
    nodes, login = world.asked.config.placed(world.asked.fabric)
    where = f"scheduler on {nodes[0]}, agents on {len(nodes) - 1} nodes, questions come from {login}"
    lines = [
        f"cluster: {where}; {world.folder}",
        "in another terminal: fabric cluster submit --nodes 2 -- PROGRAM ..., then status, logs, fail, cancel",
        "Ctrl-C or fabric cluster down ends it",
    ]
    for line in lines:
        _say(line)


def _say(line: str) -> None:
    ERR.print(line, highlight=False, soft_wrap=True)


def _begin_events(world: _World) -> None:
    """Show, from now on, what happens; not what happened before the cluster came up again."""
    from app.commands.cluster_config import journal_of
    from cluster.platform.journal import JournalTail
    from cluster.platform.state import PlatformState

    tail, config = JournalTail(journal_of(world.folder)), world.asked.config
    world.told = PlatformState(config.listed(world.asked.fabric), config.users_of, tail.events()), tail


def _print_events(world: _World) -> None:
    """Show what has happened since, a line each, but not each checkpoint."""
    from cluster.platform.event_lines import line_as_it_happens
    from cluster.platform.events import Saved

    state, tail = world.told
    for event in tail.events():
        line = line_as_it_happens(state, event)
        if not isinstance(event, Saved):
            _say(line)
