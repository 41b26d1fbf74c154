"""``fabric exec``: unmodified programs on hosts of a fabric."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from app.commands.exec_files import add_files_option, files_config, mountable, require_clients
from app.commands.exec_gpus import add_gpu_options, gpu_environment, require_gpus, torchrun_environment
from app.commands.exec_notes import ListeningSink, SharedFiles, copies_note, gpus_note, shared_note
from app.commands.exec_sent import PortBytes, Programs, sent_by, sent_table, silence
from app.commands.live import groundwork_asked, lanes_of, live_fabric, routing_of
from app.commands.options import (
    add_capture_option,
    add_engine_option,
    add_fabric_options,
    add_sflow_options,
    add_share_option,
    add_verbs_option,
    seconds,
)
from app.commands.passing_on import Sink, pass_on
from app.commands.recording import begin_recording, require_recordable, write_recording
from app.commands.streams import begin_world_streams, export_of, words_of_streams
from app.commands.worlds import enter_world, fabric_of, require_queueing
from fabric.errors import TrafficError, UsageError
from fabric.measure.census import lane_counters
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_size
from fabric.world import engines, inside
from fabric.world.engine import Front
from fabric.world.engines import current_engine
from fabric.world.isolation.interrupts import held_back
from fabric.world.isolation.listening import bound_sockets
from fabric.world.programs import verbs
from fabric.world.programs.hosts import copies
from fabric.world.programs.unfinished import in_words, names, unfinished
from fabric.world.virtual.guest import SYSTEM_PROGRAMS
from runs.captures import require_captures
from runs.config import queues_of
from runs.console import ERR
from runs.live import LiveFabric
from traffic.programs.environment import lane_environment, own_environment, programs_environment
from traffic.programs.recording import is_static

_ONE_STREAM = "--one-stream"
"""For ourselves: a world, and a guest above all, does not see where our streams lead."""
_END_S = 5.0
_USUAL_TIMEOUT_S = 3600.0
_Running = tuple[NodeId, subprocess.Popen[bytes], list[threading.Thread]]
"""A program on a host, and what passes on its output."""
_SERVERS_READY_S, _FIRST_LOOK_S, _LOOK_S = 5.0, 0.0005, 0.05


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric exec``."""
    stdin = "Its stdin is empty (/dev/null), in either engine, and so is that of background programs."
    parser.description = f"Run an unmodified program on hosts of the fabric. {stdin}"
    parser.usage = f"{parser.prog} [OPTION ...] TOPOLOGY HOST [HOST ...] -- PROGRAM [ARG ...]"
    add_fabric_options(parser)
    parser.add_argument("hosts", nargs="+", metavar="HOST", help="where it runs, e.g. z0h000; at once on several")
    add_capture_option(parser)
    add_sflow_options(parser, is_entered=True)
    add_share_option(parser)
    add_verbs_option(parser)
    add_gpu_options(parser)
    background = "a program that runs meanwhile, e.g. a server; may be repeated"
    parser.add_argument("--background", action="append", default=[], metavar="HOST=COMMAND", help=background)
    parser.add_argument("--first-only", action="store_true", help="start it on the first host only, as mpirun needs")
    late = (
        "end it if it still runs after this time, in virtual time also the command after as much wall time; by default "
        f"{_USUAL_TIMEOUT_S:g} s, of wall time as long as it takes"
    )
    parser.add_argument("--timeout", type=seconds, metavar="TIME", help=late)
    level = (
        "put its packets, and those of background programs, into the lane of this service level, such as nccl: its "
        "sockets carry that level's TOS byte, unless it sets one (default: other)"
    )
    parser.add_argument("--service-level", metavar="LEVEL", help=level)
    record = (
        "write what the programs send each other, and when, as a graph of work (GOAL), to be replayed (default: none)"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help=record)
    parser.add_argument(_ONE_STREAM, action="store_true", help=argparse.SUPPRESS)
    add_files_option(parser)
    add_engine_option(parser)
    parser.set_defaults(command=run_program)


def run_program(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run an unmodified program on hosts."""
    fabric = fabric_of(options)
    if not options.program:
        raise UsageError("no program; write it after two dashes: fabric exec TOPOLOGY HOST... -- PROGRAM")
    for host in options.hosts:
        fabric.host_named(host)
    files = files_config(options, fabric)
    if files is not None:
        require_clients(fabric, options.hosts)
    commands = [options.program, *(_background(fabric, text)[1] for text in options.background)]
    if not inside.is_inside():
        found = [_require_program(command[0]) for command in commands]
        _require_markable(found, options)
        if options.record is not None:
            for program in found:
                require_recordable(options.record, program, engines.ENGINES[options.engine])
        arguments = begin_world_streams(arguments, options)
        require_captures(fabric, options.capture, engines.ENGINES[options.engine])
    require_queueing(fabric, options)
    if options.verbs and not inside.is_inside():
        verbs.require(engines.ENGINES[options.engine], "--verbs")
    if not inside.is_inside():
        arguments = [*arguments[:1], *require_gpus(options, fabric), *arguments[1:]]
    if _is_one_stream():
        arguments = [*arguments[:1], _ONE_STREAM, *arguments[1:]]
    words = [*options.program, *options.background, *words_of_streams(options)]
    words += [] if options.record is None else [str(options.record.absolute())]
    front = Front(wall_s=options.timeout, groundwork=groundwork_asked(fabric, options))
    enter_world(arguments, options, fabric, words=words, front=front)
    return execute_in_world(fabric, options)


def _require_program(name: str) -> Path:
    """Return where a program is; refuse, before a fabric comes up, one that is not there. Raises UsageError."""
    places = [*os.environ.get("PATH", os.defpath).split(":"), *SYSTEM_PROGRAMS]
    found = shutil.which(name, path=":".join(places))
    if found is not None:
        return Path(found)
    if "/" in name:
        what = "cannot be executed; chmod +x it" if Path(name).is_file() else "does not exist; paths are this machine's"
        raise UsageError(f"program {name}: {what}")
    shell = f"sh -c '{name} ...'"
    raise UsageError(f"program {name!r}: is not on the PATH; give its path, or for a shell's own command {shell}")


def _is_one_stream() -> bool:
    """Return whether this command's stdout and stderr lead to the same place, as on a terminal or after ``2>&1``: what
    programs print there is to stay in order."""
    try:
        out, err = os.fstat(1), os.fstat(2)
    except OSError:  # One of them is closed.
        return False
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


def execute_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Run a program on hosts at once, wait for all, print what each lane carried; 1 if one of them failed."""
    hosts = [fabric.host_named(name) for name in options.hosts]
    beside = [_background(fabric, text) for text in options.background]
    stdout = ListeningSink(sys.stdout.buffer)
    stderr = stdout if options.one_stream else ListeningSink(sys.stderr.buffer)
    lanes, routing = lanes_of(options), routing_of(options)
    files = files_config(options, fabric)
    with (
        live_fabric(fabric, lanes, routing, options.capture, export_of(options), options.verbs) as live,
        mountable(live, hosts, files),
        Programs(fabric) as programs,
    ):
        starting = Starting(live, _environment(fabric, hosts, options), options, programs)
        shared = SharedFiles(options.share, Path.cwd())
        before = lane_counters(live.emulation, "sent_bytes")
        servers = [starting.start(host, command, {}) for host, command in beside]
        readers = [reader for server in servers for reader in pass_on(server, stdout, stderr, b"")]
        await_servers([host for host, _ in beside], servers)
        failed = _run_all(starting, hosts, (stdout, stderr), servers)
        ended = [server.poll() for server in servers]
        for server in servers:
            _end(server)
        _join(readers)
        stderr.end_line()
        after = lane_counters(live.emulation, "sent_bytes")
        sent = {counter: after[counter] - before[counter] for counter in after}
        ERR.print(_lanes_table(live, sent))
        by_host = sent_by(dict.fromkeys([*hosts, *(host for host, _ in beside)]), sent)
        by_program = programs.sent(by_host)
        ERR.print(sent_table(by_program))
        changed, copied = shared.changed(), copies()
    notes = silence(by_program), shared_note(by_host, changed), copies_note(copied), gpus_note((stdout, stderr))
    for note in notes:
        if note:
            _say(note)
    for (host, command), code in zip(beside, ended, strict=True):
        if code:
            _say(f"{host}: {shlex.join(command)} in the background {_ending(code)}, by itself")
    for host, code in failed:
        _say(f"{host}: {shlex.join(options.program)} {_ending(code)}")
    if options.record is not None:
        write_recording(fabric, hosts, sum(sent_by(fabric.hosts, sent).values()), options.record)
    if failed and current_engine().has_own_kernel:
        seen = (
            "of this machine's /tmp, /run and /dev programs in virtual time see only directories that the command names"
        )
        _say(f"note: {seen}")
    if stdout.has_gone:
        raise BrokenPipeError
    return 1 if failed else 0


def _environment(fabric: Fabric, hosts: Sequence[NodeId], options: argparse.Namespace) -> dict[str, str]:
    """Return the environment of programs on all hosts. Raises EmulationError if a library to preload lacks a
    compiler."""
    environment = current_engine().users_environment() | programs_environment(fabric, hosts)
    if (level := _level(options)) is not None:
        environment |= lane_environment(level, inside.RUN_DIR, environment.get("LD_PRELOAD", ""))
    if options.record is not None:
        environment |= begin_recording(environment)
    return environment | gpu_environment(options, fabric, hosts)


def _level(options: argparse.Namespace) -> ServiceLevel | None:
    """Return the service level of ``--service-level``; None: there is none. Raises UsageError for one that is not
    known."""
    if options.service_level is None:
        return None
    levels = {level.label: level for level in queues_of(options.overrides).levels}
    if options.service_level not in levels:
        own = "or add it by --set 'queues.service_levels={NAME: DSCP}'"
        raise UsageError(f"--service-level {options.service_level!r}: use one of {', '.join(levels)}, {own}")
    return levels[options.service_level]


def _require_markable(programs: Sequence[Path], options: argparse.Namespace) -> None:
    """Refuse, before a fabric comes up, what cannot be put into a lane. Raises UsageError."""
    if _level(options) in (None, ServiceLevel.OTHER):
        return
    for program in programs:
        if is_static(program):
            what = f"{program} is linked statically, so its packets cannot be marked"
            raise UsageError(f"--service-level {options.service_level}: {what}; let it set IP_TOS itself")


def _say(text: str) -> None:
    """Say something of a user's words, which may hold brackets."""
    ERR.print(text, highlight=False, soft_wrap=True)


def _ending(code: int) -> str:
    return f"ended with {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"


def _background(fabric: Fabric, text: str) -> tuple[NodeId, list[str]]:
    host, equals, command = text.partition("=")
    if not equals:
        raise UsageError(f"--background {text!r}: write HOST=COMMAND, e.g. z0h003='iperf3 -s'")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--background {text!r}: {error}; quotes must be closed") from error
    if not words:
        raise UsageError(f"--background {text!r}: names no program; write HOST=COMMAND, e.g. z0h003='iperf3 -s'")
    return fabric.host_named(host), words


@dataclass(frozen=True)
class Starting:
    """What programs have in common: where they start, with which environment, and what counts them."""

    live: LiveFabric
    environment: Mapping[str, str]
    options: argparse.Namespace
    programs: Programs

    def start(self, host: NodeId, command: Sequence[str], own: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a program whose output comes by pipes, in a session of its own: Ctrl-C is ours to handle."""
        stderr = subprocess.STDOUT if self.options.one_stream else subprocess.PIPE
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": stderr}
        environment = {**self.environment, **own, **self.programs.environment(command)}
        try:
            return self.live.emulation.popen(host, command, env=environment, start_new_session=True, **streams)
        except OSError as error:
            raise TrafficError(f"{host}: cannot start {command[0]!r}: {error.strerror}") from error


def await_servers(hosts: Sequence[NodeId], servers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until each host has a bound socket for each program that was started there, unless that has ended; at most
    as long as is given to one that listens to nobody."""
    deadline = time.monotonic() + _SERVERS_READY_S
    wanted = Counter(hosts)
    of_host = dict(zip(hosts, servers, strict=True))
    while time.monotonic() < deadline:
        waiting = [host for host, server in of_host.items() if server.poll() is None]
        if all(bound_sockets(of_host[host].pid) >= wanted[host] for host in waiting):
            return
        time.sleep(_LOOK_S)


def _run_all(
    starting: Starting,
    hosts: Sequence[NodeId],
    sinks: tuple[Sink, Sink],
    servers: Sequence[subprocess.Popen[bytes]],
) -> list[tuple[NodeId, int]]:
    """Return the hosts whose program failed, with its exit code. Raises TrafficError if one does not end in time."""
    options = starting.options
    running: list[_Running] = []
    places = hosts[:1] if options.first_only else hosts
    try:
        with held_back():
            for rank, host in enumerate(places):
                own = own_environment(starting.live.fabric, hosts, rank)
                own |= torchrun_environment(options, own)
                process = starting.start(host, options.program, own)
                name = f"[{host}] ".encode() if len(places) > 1 else None
                running.append((host, process, pass_on(process, *sinks, name)))
        return _await_all(running, options, servers)
    except KeyboardInterrupt:
        for _, process, _ in running:
            _signal(process, signal.SIGINT)  # As a terminal does; ping then prints what it has seen so far.
        for _, process, readers in running:
            _wait_or_kill(process)
            _join(readers)
        raise


def _await_all(
    running: Sequence[_Running], options: argparse.Namespace, servers: Sequence[subprocess.Popen[bytes]]
) -> list[tuple[NodeId, int]]:
    timeout_s = options.timeout or _USUAL_TIMEOUT_S
    late = _await_programs(running, time.monotonic() + timeout_s)
    if late:
        hosts = [str(host) for host, _, _ in late]
        # Their launchers may have started programs on other hosts.
        doing = unfinished({server.pid for server in servers})
        for _, process, readers in late:
            _end(process)
            _join(readers)
        what = f"{names(hosts)}: {options.program[0]!r} still runs after {timeout_s:g} s"
        raise TrafficError(f"{what}: {in_words(doing)}" if doing else what)
    for _, _, readers in running:
        _join(readers)
    return [(host, process.returncode) for host, process, _ in running if process.returncode]


def _await_programs(running: Sequence[_Running], deadline_s: float) -> list[_Running]:
    """Wait for programs, as :meth:`subprocess.Popen.wait` does for one; return those that have not ended at a
    deadline."""
    left, delay_s = list(running), _FIRST_LOOK_S
    while left:
        now_left = [one for one in left if one[1].poll() is None]
        if delay_s == _FIRST_LOOK_S or len(now_left) < len(left):
            current_engine().leave_hosts(names([str(host) for host, _, _ in now_left]))
        left, remaining_s = now_left, deadline_s - time.monotonic()
        if remaining_s <= 0 or not left:
            break
        delay_s = min(2 * delay_s, remaining_s, _LOOK_S)
        time.sleep(delay_s)
    return left


def _join(readers: Sequence[threading.Thread]) -> None:
    """Wait until all has been passed on that programs print; not forever for what they have left behind."""
    deadline = time.monotonic() + _END_S
    for reader in readers:
        reader.join(max(0.0, deadline - time.monotonic()))


def _end(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    _wait_or_kill(process)


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait(_END_S)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a program, and what it has started, a signal; what has ended is left alone."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _lanes_table(live: LiveFabric, sent: PortBytes) -> Table:
    """Return a table of the bytes that each lane carried."""
    hosts = [port for host in live.fabric.hosts for port in live.fabric.ports_of[host]]
    table = Table("lane", "sent by hosts", "most at one port", title="Bytes carried by each lane")
    for lane in live.emulation.lane_plan.lanes:
        busiest = max(live.fabric.link_at, key=lambda port: sent[port, lane.name])
        carried = sent[busiest, lane.name]
        most = f"{format_size(carried)} at {busiest}" if carried else ""
        table.add_row(lane.name, format_size(sum(sent[port, lane.name] for port in hosts)), most)
    return table
