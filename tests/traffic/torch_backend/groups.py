"""Groups of ranks that are threads of one process, over loopback: what carries PyTorch's operations out, without it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fabric.model.lanes import ServiceLevel
from traffic.collectives.elements import Elements
from traffic.torch_backend.calls import Call, Member, Operand
from traffic.torch_backend.choice import Choice
from traffic.torch_backend.communicator import Communicator
from traffic.torch_backend.meeting import Meeting
from traffic.torch_backend.messages import Messages
from traffic.torch_backend.operation import Operation
from traffic.torch_backend.own_place import RankPlace
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

PATIENCE_S = 60.0
SMALL = Choice(piece_bytes=64)
"""So that a few hundred elements are many pieces."""


class MemoryStore:
    """A store of one process."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str, /) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, /) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._values, PATIENCE_S), key
            return self._values[key].encode()


class Rank:
    """One rank of a group."""

    def __init__(self, store: MemoryStore, rank: int, ranks: int, choice: Choice, host: str) -> None:
        self.member, self.rank = Member(rank, ranks), rank
        transport = TcpTransport(SocketOptions(ServiceLevel.NCCL))
        place = RankPlace(host, ("127.0.0.1",))
        self.meeting = Meeting(store, rank, place, transport, PATIENCE_S, choice.channels)
        self.communicator = Communicator("test", self.member, self.meeting, choice)
        self.messages = Messages(rank, ranks, self.meeting)

    def play(self, *calls: Call, timeout_s: float = PATIENCE_S) -> Operation:
        operation = Operation("test", timeout_s)
        self.communicator.submit(operation, calls)
        assert operation.wait(PATIENCE_S)
        return operation

    def done(self, *calls: Call) -> None:
        if (error := self.play(*calls).error) is not None:
            raise error

    def close(self) -> None:
        self.communicator.close()
        self.meeting.close()
        self.messages.close()


def over_ranks(ranks: int, part: Callable[[Rank], object], choice: Choice = SMALL, hosts: Sequence[str] = ()) -> None:
    """Have each rank of a group do its part, all at once."""
    store = MemoryStore()
    names = hosts or [f"host{rank}" for rank in range(ranks)]
    group = [Rank(store, rank, ranks, choice, names[rank]) for rank in range(ranks)]
    try:
        with ThreadPoolExecutor(ranks) as threads:
            for done in [threads.submit(part, one) for one in group]:
                done.result(PATIENCE_S)
    finally:
        for one in group:
            one.close()


def operand(*arrays: Elements) -> Operand:
    """Return arrays as an operand."""
    return Operand(arrays[0].dtype, tuple(one.size for one in arrays), arrays)


def lengths(*counts: int, element: type = np.float32) -> Operand:
    """Return lengths without data as an operand."""
    return Operand(np.dtype(element), counts, None)
