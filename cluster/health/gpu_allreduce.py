"""A node's GPUs add up vectors: a process for each GPU, real sums, packets over the node's own links. A program.

``python -m cluster.health.gpu_allreduce TASK``, with a pickled :class:`Task` in hexadecimal digits, prints for each
team in turn how long it took, or ``why`` nothing came of it, as JSON. Every element of every sum is compared.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from fabric.errors import TrafficError
from fabric.world.isolation.processes import die_with
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.collective import ScheduleOptions
from traffic.collectives.dataset import Buffer, Dataset, DatasetShape
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.listing import collective_named
from traffic.collectives.result_check import ResultCheck
from traffic.collectives.schedule import RankContext, Schedule
from traffic.program_group import PeerGoneError
from traffic.transport.connection import Connection, ConnectionEndedError, Listener, Transport

PORT = 2220
"""Where each GPU listens: beside the tests of NICs (2221)."""
PIECE_BYTES = 64 * 1024
WARM, COUNTED = 0, 1
"""Steps: windows open in the first one."""
_DTYPE = Dtype.FP32
_HELLO = struct.Struct("!I")


@dataclass(frozen=True)
class TeamTask:
    """GPUs by their numbers, the addresses by which they reach each other, and how many bytes they add up."""

    gpus: tuple[int, ...]
    addresses: tuple[str, ...]
    size_bytes: int

    def schedule(self) -> Schedule:
        """Return the ring."""
        elements = self.size_bytes // _DTYPE.size_bytes
        piece = max(1, min(PIECE_BYTES // _DTYPE.size_bytes, elements // len(self.gpus)))
        options = ScheduleOptions(len(self.gpus), elements, piece, dtype=_DTYPE)
        return collective_named("allreduce").algorithm("ring").schedule(options)


@dataclass(frozen=True)
class Task:
    """What is to be done: by which teams, within which time each, over which transport; ``wrong``: the GPUs that
    compute wrong values."""

    teams: tuple[TeamTask, ...]
    transport: Transport
    seed: int
    timeout_s: float
    wrong: frozenset[int] = frozenset()

    @property
    def gpus(self) -> tuple[int, ...]:
        """All GPUs that take part."""
        return tuple(sorted({gpu for team in self.teams for gpu in team.gpus}))


def words_of(task: Task) -> str:
    """Return a task as the program's argument."""
    return pickle.dumps(task).hex()


def main(words: str) -> None:
    """Be the program."""
    task: Task = pickle.loads(bytes.fromhex(words))
    with tempfile.TemporaryDirectory() as folder:
        datasets = [_dataset(task, team, Path(folder) / str(place)) for place, team in enumerate(task.teams)]
        with _ranks(task, datasets) as pipes:
            found = [_played(task, place, pipes) for place in range(len(task.teams))]
    print(json.dumps({"teams": found}), flush=True)


def _dataset(task: Task, team: TeamTask, folder: Path) -> Dataset:
    folder.mkdir()
    schedule = team.schedule()
    shape = DatasetShape(len(team.gpus), 1, schedule.elements, _DTYPE)
    return Dataset.write(folder, shape, task.seed, schedule.longest_piece)


@contextlib.contextmanager
def _ranks(task: Task, datasets: Sequence[Dataset]) -> Iterator[dict[int, Pipe]]:
    """Have a process for each GPU, which listens, for the time of a block; yield their pipes."""
    forking = multiprocessing.get_context("fork")
    pipes, processes = dict[int, Pipe](), []
    for gpu in task.gpus:
        pipes[gpu], theirs = forking.Pipe()
        processes.append(forking.Process(target=_be_gpu, args=(task, gpu, datasets, theirs, os.getpid()), daemon=True))
        processes[-1].start()
        theirs.close()
    try:
        for gpu, pipe in pipes.items():
            if (failed := _told(gpu, pipe, task.timeout_s)) is not None:
                raise TrafficError(f"GPU {gpu}: {failed.words}")
        yield pipes
    finally:
        for process in processes:
            process.kill()
            process.join()


def _told(gpu: int, pipe: Pipe, timeout_s: float) -> Any:
    """Return the message of a GPU's process, or its failure."""
    try:
        return pipe.recv() if pipe.poll(timeout_s) else _Failed(f"GPU {gpu} has not ended within {timeout_s:g} s")
    except (EOFError, ConnectionResetError):
        return _Failed(f"the process of GPU {gpu} has ended")


def _played(task: Task, place: int, pipes: dict[int, Pipe]) -> dict[str, Any]:
    """Return what a team makes of its steps: ``seconds`` of the last one, or ``why`` not."""
    gpus = task.teams[place].gpus
    spans: list[tuple[float, float]] = []
    for step in (WARM, COUNTED):
        for gpu in gpus:
            with contextlib.suppress(BrokenPipeError):  # It has ended, as is found below.
                pipes[gpu].send((place, step))
        # Some wait for others for a step's time, and then say so.
        answers = [_told(gpu, pipes[gpu], 2 * task.timeout_s) for gpu in gpus]
        failed = [one for one in answers if isinstance(one, _Failed)]
        if failed:
            return {"why": min(failed, key=lambda one: one.is_after_another).words}
        spans = answers
    return {"seconds": max(ended for _, ended in spans) - min(began for began, _ in spans)}


# A GPU ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Failed:
    """Why a GPU has failed; ``is_after_another``: since another one of its team has, which then says why."""

    words: str
    is_after_another: bool = False


def _be_gpu(task: Task, gpu: int, datasets: Sequence[Dataset], pipe: Pipe, parent: int) -> None:
    """Be a GPU: take part in the steps that are ordered, to the end."""
    die_with(parent)
    try:
        addresses = {team.addresses[team.gpus.index(gpu)] for team in task.teams if gpu in team.gpus}
        listeners = {address: task.transport.listen(address, PORT) for address in sorted(addresses)}
    except (TrafficError, OSError) as error:
        pipe.send(_Failed(str(error)))
        return
    pipe.send(None)
    rank: _Rank | None = None
    with contextlib.suppress(EOFError):
        while True:
            place, step = pipe.recv()
            try:
                if step == WARM:
                    rank = _Rank(task, place, gpu, datasets[place], listeners)
                assert rank is not None, "its first step warms up"
                pipe.send(rank.step(step))
            except PeerGoneError as error:
                pipe.send(_Failed(f"gone: {error}", is_after_another=True))
            except (TrafficError, OSError) as error:
                pipe.send(_Failed(str(error)))


def _accepted(listener: Listener, place: int, timeout_s: float) -> Connection:
    """Return the connection of a team; those that another one has left are passed over."""
    while True:
        connection = listener.accept(timeout_s)
        connection.set_timeouts(send_s=timeout_s, silent_s=timeout_s)
        hello = bytearray(_HELLO.size)
        with contextlib.suppress(ConnectionEndedError):
            connection.receive([hello])
            if _HELLO.unpack(hello) == (place,):
                return connection
        connection.close()


class _WrongBuffer:
    """The input of a GPU that computes wrong: each value is one too many."""

    def __init__(self, right: Buffer) -> None:
        self._right = right

    def __getitem__(self, piece: slice, /) -> Elements:
        return self._right[piece] + 1


class _Rank:
    """A GPU in a team, connected to those before and after it."""

    def __init__(self, task: Task, place: int, gpu: int, dataset: Dataset, listeners: dict[str, Listener]) -> None:
        team, schedule = task.teams[place], task.teams[place].schedule()
        self._rank, ranks = team.gpus.index(gpu), len(team.gpus)
        self._name, self._timeout_s = f"GPU {gpu}", task.timeout_s
        own = team.addresses[self._rank]
        following, before = (self._rank + 1) % ranks, (self._rank - 1) % ranks
        out = task.transport.connect((team.addresses[following], PORT), task.timeout_s, own)
        out.send([_HELLO.pack(place)])
        coming = _accepted(listeners[own], place, task.timeout_s)
        made = {Edge(0, self._rank, following): out, Edge(0, before, self._rank): coming}
        self._links = {edge: ChunkConnection(one, 0, self._name, task.timeout_s) for edge, one in made.items()}
        inputs: Buffer = dataset.inputs(self._rank)[0]
        expected = collective_named("allreduce").expected(self._rank, ranks, schedule.elements)
        self._check = ResultCheck.of(dataset, expected, schedule.elements)
        context = RankContext(
            self._rank, self._links, [_WrongBuffer(inputs) if gpu in task.wrong else inputs], task.timeout_s
        )
        self._worker = schedule.worker(context, [self._check.piece])
        self._threads = ThreadPoolExecutor(max_workers=len(self._worker.tasks(WARM)))

    def step(self, number: int) -> tuple[float, float]:
        """Carry out a step; return when it began and ended. Raises TrafficError if it fails, or a sum is wrong."""
        self._check.begin(self._name)
        began_s = time.monotonic()
        tasks = [self._threads.submit(task) for task in self._worker.tasks(number)]
        done, left = wait(tasks, self._timeout_s, FIRST_EXCEPTION)
        failed = any(task.exception() is not None for task in done)
        ended_s = time.monotonic()
        if failed or left:
            for link in self._links.values():
                link.abort()
            self._worker.abort()
            done, _ = wait(tasks, self._timeout_s)
            self._close()
            errors = [error for task in done if (error := task.exception()) is not None]
            if not errors:
                raise TrafficError(f"{self._name}: its threads do not end")
            raise min(errors, key=lambda one: isinstance(one, PeerGoneError))
        self._check.end()
        if number == COUNTED:
            self._close()
        return began_s, ended_s

    def _close(self) -> None:
        for link in self._links.values():
            link.close()
        self._worker.abort()
        self._threads.shutdown(wait=False)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except TrafficError as error:
        print(json.dumps({"why": str(error)}), flush=True)
