"""Sends and receives between two ranks of a group: in order per peer and way, each way a connection and a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fabric.errors import TrafficError
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.dataset import Buffer, pieces
from traffic.collectives.elements import Elements, ElementType, are_equal
from traffic.collectives.schedule import Finished
from traffic.torch_backend import patterns
from traffic.torch_backend.buffers import ArraysInRow, NumpyType
from traffic.torch_backend.calls import Operand
from traffic.torch_backend.meeting import Meeting
from traffic.torch_backend.operation import Operation

_CHANNEL = 1 << 20
"""Behind all channels of schedules."""
_PIECE_BYTES = 256 * 1024
_TAGS = 2**32
_END_S = 10.0


class _Message(NamedTuple):
    """What a thread sends or receives: the elements, from ``source`` or to ``finished``."""

    operation: Operation
    tag: int
    elements: int
    dtype: ElementType
    source: Buffer
    finished: Finished


class Messages:
    """A rank's sends to others and receives from them. As with NCCL, the n-th send to a rank is for its n-th receive;
    here a tag that differs is an error."""

    def __init__(self, rank: int, ranks: int, meeting: Meeting) -> None:
        self._rank, self._ranks, self._meeting = rank, ranks, meeting
        self._ways: dict[Edge, queue.SimpleQueue[_Message | None]] = {}
        self._threads: list[threading.Thread] = []

    def send(self, operation: Operation, data: Operand, peer: int, tag: int) -> None:
        """Send data to a rank, behind what was sent there before."""
        message = self._message(operation, data, self._rank, tag)
        self._put(Edge(_CHANNEL, self._rank, peer), message, _send)

    def receive(self, operation: Operation, data: Operand, peer: int, tag: int) -> None:
        """Receive data from a rank, behind what was to come from there before."""
        self._put(Edge(_CHANNEL, peer, self._rank), self._message(operation, data, peer, tag), _receive)

    def _message(self, operation: Operation, data: Operand, source: int, tag: int) -> _Message:
        if data.arrays is not None:
            row = ArraysInRow(data.arrays)
            return _Message(operation, tag % _TAGS, data.length, NumpyType(data.element), row, row.put)
        size_bytes = data.length * data.element.itemsize
        plain = patterns.type_of([size_bytes])
        series, elements = patterns.input_of(source, self._ranks, plain), size_bytes // plain.size_bytes

        def verify(piece: slice, found: Elements) -> None:
            if not are_equal(found, series[piece]):
                raise TrafficError(f"{operation.what}: elements {piece.start} to {piece.stop} are not what was sent")

        return _Message(operation, tag % _TAGS, elements, plain, series, verify)

    def _put(self, edge: Edge, message: _Message, play: Callable[[ChunkConnection, _Message], None]) -> None:
        if edge not in self._ways:
            self._ways[edge] = queue.SimpleQueue()
            thread = threading.Thread(target=self._play_all, args=(edge, self._ways[edge], play), daemon=True)
            self._threads.append(thread)
            thread.start()
        self._ways[edge].put(message)

    def _play_all(
        self,
        edge: Edge,
        messages: queue.SimpleQueue[_Message | None],
        play: Callable[[ChunkConnection, _Message], None],
    ) -> None:
        broken: BaseException | None = None
        while (message := messages.get()) is not None:
            operation = message.operation
            try:
                if broken is not None:
                    raise TrafficError(f"{operation.what}: one before it has failed: {broken}")
                operation.await_turn()
                play(self._meeting.connected([edge], operation.left_s)[edge], message)
            except BaseException as error:
                broken = broken or error
                operation.end(error)
            else:
                operation.end()

    def close(self) -> None:
        """End its threads; what is under way ends with its connections."""
        for messages in self._ways.values():
            messages.put(None)
        for thread in self._threads:
            thread.join(_END_S)


def _pieces(message: _Message) -> list[slice]:
    """Return the pieces of a message: one at least, or nothing would say that it came."""
    return list(pieces(0, message.elements, _PIECE_BYTES // message.dtype.size_bytes)) or [slice(0, 0)]


def _send(link: ChunkConnection, message: _Message) -> None:
    for number, piece in enumerate(_pieces(message)):
        link.send(message.tag, number, message.source[piece])


def _receive(link: ChunkConnection, message: _Message) -> None:
    for number, piece in enumerate(_pieces(message)):
        room = np.empty(piece.stop - piece.start, message.dtype.numpy)
        link.receive(message.tag, number, room)
        message.finished(piece, room)
