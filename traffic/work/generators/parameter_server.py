"""A parameter server as a graph: workers push gradients in parts, servers add them up and answer with parameters.

A server answers a worker's push of step t once it has the pushes of step t - delay of all: with delay 0 that is
synchronous, without a limit asynchronous, and in between a worker may be so many steps ahead of the slowest (Li et al.,
OSDI'14, section 3.5). A worker begins its next step once it has all answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from traffic.work.generators.buckets import Bucket
from traffic.work.generators.costs import Costs
from traffic.work.generators.options import ParameterServer
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.operations import Receive, Send


def shares_of(workers: int, options: ParameterServer) -> tuple[Fraction, ...]:
    """Return which part of the parameters each rank serves, workers first, then servers.

    Colocated, with n workers and k spare machines: (n - k) / Z of a worker, 2 (n - 1) / Z of a spare machine, where
    Z = n^2 + k n - 2 k, so that all NICs carry the same (Jiang et al., OSDI'20, theorem 1).
    """
    n, k = workers, options.servers
    if options.share == "equal":
        return (*(Fraction(0) for _ in range(n)), *(Fraction(1, k) for _ in range(k)))
    z = n * n + k * n - 2 * k
    return (*(Fraction(n - k, z) for _ in range(n)), *(Fraction(2 * (n - 1), z) for _ in range(k)))


def step_time_s(workers: int, options: ParameterServer, size_bytes: int, bytes_per_s: float) -> float:
    """Return the time of a synchronous push and pull of all, which overlap, on links that carry so much each way."""
    n, m = workers, options.servers
    if options.share == "equal":
        return max(1.0, n / m) * size_bytes / bytes_per_s
    return 2 * n * (n - 1) / (n * n + m * n - 2 * m) * size_bytes / bytes_per_s


@dataclass(frozen=True)
class Piece:
    """What is pushed in one message. ``tag``: of it and of its answer; ``ready``: the number of the bucket it is of."""

    server: int
    size_bytes: int
    tag: int
    ready: int


def pieces_of(buckets: Sequence[Bucket], shares: Sequence[Fraction], part_bytes: int, unit: int) -> tuple[Piece, ...]:
    """Return what each worker pushes in a step, bucket by bucket, servers in turn, in parts of at most ``part_bytes``.
    ``unit``: bytes of a gradient."""
    found: list[Piece] = []
    for number, bucket in enumerate(buckets):
        elements, done = bucket.size_bytes // unit, Fraction(0)
        of_server: list[list[tuple[int, int]]] = []
        for server, share in enumerate(shares):
            first, done = int(elements * done), done + share
            of_server.append([(server, size * unit) for size in _cut(int(elements * done) - first, part_bytes // unit)])
        for turn in range(max(map(len, of_server))):
            for parts in of_server:
                if turn < len(parts):
                    found.append(Piece(*parts[turn], tag=len(found), ready=number))
    return tuple(found)


def _cut(elements: int, most: int) -> Iterator[int]:
    while elements > 0:
        yield min(elements, most)
        elements -= most


@dataclass(frozen=True)
class WorkerStep:
    """A worker's step: FLOPs of the forward pass, and of the backward pass up to where each bucket is ready, and bytes
    of a gradient or parameter."""

    forward: float
    backward: tuple[float, ...]
    gradient_bytes: int


def parameter_server_graph(
    workers: int, step: WorkerStep, buckets: Sequence[Bucket], costs: Costs, options: ParameterServer
) -> WorkGraph:
    """Return the graph of ``options.steps`` steps. Ranks: the workers, then the servers."""
    shares = shares_of(workers, options)
    pieces = pieces_of(buckets, shares, options.part, step.gradient_bytes)
    machines = [_Machine(rank, workers, pieces, options) for rank in range(len(shares))]
    for number in range(options.steps):
        for machine in machines:
            if machine.rank < workers:
                machine.compute(step, costs, options.slow_workers.get(machine.rank, 1.0), number)
            machine.serve(number)
            if machine.rank < workers:
                machine.pull(number)
    return graph_of("parameter_server", [machine.work for machine in machines])


class _Machine:
    """Writes what one rank does."""

    def __init__(self, rank: int, workers: int, pieces: Sequence[Piece], options: ParameterServer) -> None:
        self.rank = rank
        self.work = RankWork()
        self._workers = workers
        self._pieces = pieces
        self._options = options
        self._chain: tuple[int, ...] = ()
        self._pushed: dict[int, list[tuple[int, ...]]] = {}
        """Of pieces that it serves: for each step, the places of the pushes, its own computing included."""
        self._ready: dict[int, int] = {}

    def compute(self, step: WorkerStep, costs: Costs, times: float, number: int) -> None:
        """Compute, and push what becomes ready."""
        self._chain = (self.work.add(costs.operation(step.forward * times, f"forward {number}", self._chain)),)
        for bucket, flops in enumerate(step.backward):
            self._chain = (self.work.add(costs.operation(flops * times, f"backward {number}", self._chain)),)
            self._ready[bucket] = self._chain[0]
            for piece in self._pieces:
                if piece.ready == bucket and piece.server != self.rank:
                    self.work.add(_push(piece, number, self._chain))

    def serve(self, number: int) -> None:
        """Take pushes, and answer them."""
        for piece in self._pieces:
            if piece.server != self.rank:
                continue
            others = [worker for worker in range(self._workers) if worker != self.rank]
            took = {worker: self.work.add(_taken(piece, worker, number)) for worker in others}
            own = (self._ready[piece.ready],) if self.rank < self._workers else ()
            self._pushed.setdefault(piece.tag, []).append((*took.values(), *own))
            delay = self._options.delay
            waited = () if delay is None or number < delay else self._pushed[piece.tag][number - delay]
            for worker in others:
                after = tuple(dict.fromkeys((took[worker], *waited)))
                self.work.add(_answer(piece, worker, number, after))

    def pull(self, number: int) -> None:
        """Wait for all answers; what it serves itself waits for the same pushes."""
        got = [self.work.add(_got(piece, number)) for piece in self._pieces if piece.server != self.rank]
        delay = self._options.delay
        for one in self._pushed.values():
            if delay is not None and number >= delay:
                got += one[number - delay]
        self._chain = tuple(dict.fromkeys((*self._chain, *got)))


def _push(piece: Piece, number: int, after: tuple[int, ...]) -> Send:
    name = f"push {number} part {piece.tag}"
    return Send(peer=piece.server, size_bytes=piece.size_bytes, tag=2 * piece.tag, after=after, name=name)


def _taken(piece: Piece, worker: int, number: int) -> Receive:
    name = f"push {number} part {piece.tag} of {worker}"
    return Receive(peer=worker, size_bytes=piece.size_bytes, tag=2 * piece.tag, name=name)


def _answer(piece: Piece, worker: int, number: int, after: tuple[int, ...]) -> Send:
    name = f"pull {number} part {piece.tag} to {worker}"
    return Send(peer=worker, size_bytes=piece.size_bytes, tag=2 * piece.tag + 1, after=after, name=name)


def _got(piece: Piece, number: int) -> Receive:
    name = f"pull {number} part {piece.tag}"
    return Receive(peer=piece.server, size_bytes=piece.size_bytes, tag=2 * piece.tag + 1, name=name)
