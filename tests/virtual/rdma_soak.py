"""Random runs of RDMA connections under losses, cuts and stopped programs, in a guest:
``rdma_soak.py REPORT FIRST COUNT``.

Every run draws how queue pairs recover, who sends whom which messages, and what happens meanwhile. Each message has its
number, its size and what it must hold, by a seed. Both ends write down what they have seen: a message that is not as it
must be, or not the next one, ends the run with that as its finding.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers.routing import Routing
from fabric.errors import FabricError
from fabric.failures.injector import LinkInjector
from fabric.failures.schedule import DOWN, Failure, FailureSchedule, LinkState
from fabric.model.lanes import QueueConfig, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Fabric, Link, Nic
from fabric.world import inside
from fabric.world.isolation import netns
from fabric.world.programs.agents import AgentPool
from runs.live import LiveFabric, bring_up
from topologies.load import load_fabric
from traffic.transport import queue_pairs
from traffic.transport.connection import Connection, Endpoint, SocketOptions
from traffic.transport.queue_pairs import QueuePairConfig, Recovery
from traffic.transport.verbs import VerbsTransport

TOPOLOGY = "head_of_line_200g"
_HEAD = struct.Struct("=IIQ")
_PATIENCE_S = 2.0
"""Longer than whatever a run does to a connection, and than its queue pairs' retries."""
_BEGINS_S = 0.02
_LIMIT_BYTES = 300_000


@dataclass(frozen=True)
class Talk:
    """A connection: its messages' sizes, and the seed of what they hold."""

    source: Nic
    sink: Nic
    sizes: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Stop:
    """What happens to the program of a talk's end: it is stopped for a time, or killed (``for_s`` is None)."""

    talk: int
    at_source: bool
    at_s: float
    for_s: float | None


@dataclass(frozen=True)
class Run:
    """All that a run draws."""

    pairs: QueuePairConfig
    talks: tuple[Talk, ...]
    faults: tuple[Failure, ...]
    stops: tuple[Stop, ...]

    @classmethod
    def drawn(cls, fabric: Fabric, seed: int) -> Run:
        """Return the run of a seed."""
        draw = random.Random(seed)
        pairs = QueuePairConfig(
            recovery=draw.choice(list(Recovery)),
            ack_timeout=draw.choice([0.00013, 0.0005, 0.002]),
            retries=draw.choice([1, 3, 7]),
        )
        hosts = [fabric.nics_of[host][0] for host in fabric.computes]
        talks = tuple(_talk(draw, hosts) for _ in range(draw.randint(1, 3)))
        faults = tuple(_fault(draw, fabric, talks) for _ in range(draw.choice([0, 1, 2, 3])))
        stops = tuple(_stop(draw, len(talks)) for _ in range(draw.choice([0, 0, 1])))
        return cls(pairs, talks, faults, stops)


def _talk(draw: random.Random, hosts: list[Nic]) -> Talk:
    source, sink = draw.sample(hosts, 2)
    return Talk(source, sink, _sizes(draw), draw.randrange(2**32))


def _sizes(draw: random.Random) -> tuple[int, ...]:
    return tuple(int(10 ** draw.uniform(0, 6.3)) for _ in range(draw.randint(1, 8)))


def _fault(draw: random.Random, fabric: Fabric, talks: tuple[Talk, ...]) -> Failure:
    """Return what a link does while it is in use: it is one of a talk's ends, or any."""
    talk = draw.choice(talks)
    link: Link = draw.choice([fabric.link_at[talk.source.port], fabric.link_at[talk.sink.port], *fabric.links[-3:]])
    at_s, for_s = 10 ** draw.uniform(-6, -3.7), 10 ** draw.uniform(-5, -1.7)
    state = DOWN if draw.random() < 0.4 else LinkState(loss_fraction=10 ** draw.uniform(-3, -0.3))
    return Failure(link, at_s, at_s + for_s, state)


def _stop(draw: random.Random, talks: int) -> Stop:
    for_s = None if draw.random() < 0.4 else 10 ** draw.uniform(-4, -1.3)
    return Stop(draw.randrange(talks), draw.random() < 0.5, 10 ** draw.uniform(-6, -3.7), for_s)


def content(seed: int, number: int, size: int) -> bytes:
    """Return what a message holds."""
    return random.Random(f"{seed} {number}").randbytes(size)


# Programs -------------------------------------------------------------------------------------------------------------


def _send(talk: Talk, connection: Connection, seen: dict[str, Any]) -> None:
    for number, size in enumerate(talk.sizes):
        left = memoryview(_HEAD.pack(number, size, talk.seed) + content(talk.seed, number, size))
        while left:
            sent = connection.send((left,))
            if not sent:
                raise TimeoutError
            left = left[sent:]
        seen["sent"] = number + 1
    heard = bytearray(4)
    connection.receive((heard,))
    seen["confirmed"] = int.from_bytes(heard, "little")


def _receive(talk: Talk, connection: Connection, seen: dict[str, Any]) -> None:
    head = bytearray(_HEAD.size)
    for number, size in enumerate(talk.sizes):
        connection.receive((head,))
        if (found := _HEAD.unpack(head)) != (number, size, talk.seed):
            seen["wrong"] = f"message {found} and not {(number, size, talk.seed)}"
            return
        body = bytearray(size)
        connection.receive((body,))
        if body != content(talk.seed, number, size):
            seen["wrong"] = f"message {number} of {size} B holds something else"
            return
        seen["received"] = number + 1
    connection.send((seen["received"].to_bytes(4, "little"),))


def _program(nic: Nic, work: Callable[[dict[str, Any]], None], file: Path) -> int:
    """Fork a program on a NIC's host, and return its number; what it has seen is in the file at the end."""
    child = os.fork()
    if child:
        return child
    seen: dict[str, Any] = {}
    try:
        with netns.inside(netns.netns_path(nic.node.name)):
            try:
                work(seen)
            except (FabricError, TimeoutError) as error:
                seen["error"] = f"{type(error).__name__}: {error}"
    except BaseException as error:
        seen["crash"] = repr(error)
    file.write_text(json.dumps(seen))
    os._exit(0)


@dataclass
class _Ends:
    """The programs of a talk, and where they write what they have seen."""

    sink: int
    source: int
    files: tuple[Path, Path]


def _started(talk: Talk, pairs: QueuePairConfig, folder: Path, number: int, begins: float) -> _Ends:
    transport, (hears, tells), files = (
        VerbsTransport(SocketOptions(ServiceLevel.OTHER, receive_window_bytes=2**18), pairs),
        os.pipe(),
        (folder / f"sink-{number}", folder / f"source-{number}"),
    )

    def run_sink(seen: dict[str, Any]) -> None:
        with closing(transport.listen(talk.sink.ip)) as listener:
            os.write(tells, struct.pack("=H", listener.endpoint[1]))
            with closing(listener.accept(_PATIENCE_S)) as connection:
                connection.set_timeouts(_PATIENCE_S, _PATIENCE_S)
                time.sleep(max(0.0, begins - time.monotonic()))
                _receive(talk, connection, seen)

    sink = _program(talk.sink, run_sink, files[0])
    (port,) = struct.unpack("=H", os.read(hears, 2))
    endpoint: Endpoint = (talk.sink.ip, port)

    def run_source(seen: dict[str, Any]) -> None:
        with closing(transport.connect(endpoint, _PATIENCE_S, talk.source.ip)) as connection:
            connection.set_timeouts(_PATIENCE_S, _PATIENCE_S)
            time.sleep(max(0.0, begins - time.monotonic()))
            _send(talk, connection, seen)

    source = _program(talk.source, run_source, files[1])
    os.close(hears)
    os.close(tells)
    return _Ends(sink, source, files)


# Runs -----------------------------------------------------------------------------------------------------------------


def play(live: LiveFabric, injector: LinkInjector, run: Run) -> list[dict[str, Any]]:
    """Play a run and return what the ends of its talks have seen."""
    queue_pairs.use(run.pairs, None)
    schedule = FailureSchedule.of(run.faults)
    injector.prepare(schedule)
    with tempfile.TemporaryDirectory() as folder:
        begins = time.monotonic() + _BEGINS_S
        ends = [_started(talk, run.pairs, Path(folder), number, begins) for number, talk in enumerate(run.talks)]
        injector.play(begins)
        killed = _stop_programs(run, ends, begins)
        for one in ends:
            for process in (one.sink, one.source):
                os.waitpid(process, 0)
        injector.restore()
        injector.release()
        return [
            {
                "messages": len(talk.sizes),
                **{name: _read(file) for name, file in zip(("sink", "source"), one.files, strict=True)},
                "killed": number in killed,
            }
            for number, (talk, one) in enumerate(zip(run.talks, ends, strict=True))
        ]


def _stop_programs(run: Run, ends: list[_Ends], begins: float) -> set[int]:
    killed = set()
    for one in run.stops:
        process = ends[one.talk].source if one.at_source else ends[one.talk].sink
        time.sleep(max(0.0, begins + one.at_s - time.monotonic()))
        if one.for_s is None:
            killed.add(one.talk)
            os.kill(process, signal.SIGKILL)
            continue
        os.kill(process, signal.SIGSTOP)
        time.sleep(one.for_s)
        os.kill(process, signal.SIGCONT)
    return killed


def _read(file: Path) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    return {}


def main(report: str, first: str, count: str) -> None:
    """Play runs and write what came of each."""
    fabric, found = load_fabric(TOPOLOGY), {}
    lanes = plan_lanes(QueueConfig(shared_limit=_LIMIT_BYTES), Queueing.SHARED)
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    with bring_up(fabric, lanes, logs, print, Routing()) as live:
        live.emulation.make_verbs()
        pool = AgentPool(())
        try:
            injector = LinkInjector(pool, live.emulation)
            for seed in range(int(first), int(first) + int(count)):
                found[seed] = play(live, injector, Run.drawn(fabric, seed))
        finally:
            pool.stop()
    Path(report).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
