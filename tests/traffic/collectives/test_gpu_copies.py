"""What an HFReduce moves inside a node: every share comes once, sums are right, memory is asked for what it serves."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from fabric.model.lanes import ServiceLevel
from tests.traffic.transport.memory_transport import MemoryTransport
from traffic.collectives import gpu_copies
from traffic.collectives.dataset import pieces
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.gpu_copies import CpuSide, GpuSide, NodeParts, connect_parts
from traffic.transport.connection import SocketOptions, Transport
from traffic.transport.tcp import TcpTransport

GPUS, ELEMENTS, CHUNK = 4, 1003, 100
PLAIN = NodeParts("127.0.0.1", tuple(f"127.0.1.{gpu + 1}" for gpu in range(GPUS)), 7)
PAIRED = NodeParts(
    PLAIN.cpu, PLAIN.gpus, 7, pairs=(1, 0, 3, 2), nvlink=tuple(f"127.0.2.{gpu + 1}" for gpu in range(GPUS))
)
TCP = TcpTransport(SocketOptions(ServiceLevel.HFREDUCE))
MEMORY = MemoryTransport(TCP.options)


class FakeMemory:
    """Adds up what it is asked for."""

    taken = 0

    def __init__(self, budget: int) -> None:
        assert budget == PLAIN.memory_budget

    def take(self, size_bytes: int) -> None:
        """Give it at once."""
        FakeMemory.taken += size_bytes


@contextmanager
def node(
    parts: NodeParts, data: Sequence[Elements], chunks: list[slice], dtype: Dtype, transport: Transport
) -> Iterator[tuple[CpuSide, list[GpuSide]]]:
    (links,) = connect_parts(parts, 1, CHUNK * dtype.size_bytes, transport, "test", 5.0)
    try:
        cpu = CpuSide(parts, links, CHUNK, dtype)
        yield cpu, [GpuSide(parts, gpu, own, data[gpu], chunks, dtype) for gpu, own in enumerate(links)]
    finally:
        for one in links:
            for end in one.all:
                end.close()


def copy_of(results: Elements, gpu: int) -> Callable[[slice, Elements], None]:
    def finished(chunk: slice, part: Elements) -> None:
        results[gpu, chunk] = part

    return finished


@pytest.mark.parametrize("transport", [TCP, MEMORY], ids=["TCP", "memory"])
@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16])
@pytest.mark.parametrize("parts", [PLAIN, PAIRED], ids=["PCIe", "NVLink pairs"])
def test_all_gpus_get_the_sum_of_all_and_memory_serves_what_the_cpu_adds(
    parts: NodeParts, dtype: Dtype, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_copies, "Reserving", FakeMemory)
    monkeypatch.setattr(FakeMemory, "taken", 0)
    data = [(np.arange(ELEMENTS) % 8 * (gpu + 1)).astype(dtype.numpy) for gpu in range(GPUS)]
    chunks = list(pieces(0, ELEMENTS, CHUNK))
    results = np.zeros((GPUS, ELEMENTS), dtype.numpy)

    def add(cpu: CpuSide) -> None:
        for number, chunk in enumerate(chunks):
            out = np.empty(chunk.stop - chunk.start, dtype.numpy)
            cpu.add_up(0, number, chunk, out)
            cpu.hand_out(0, number, chunk, out)

    with node(parts, data, chunks, dtype, transport) as (cpu, gpus), ThreadPoolExecutor(2 * GPUS + 1) as pool:
        tasks = [pool.submit(add, cpu)]
        tasks += [pool.submit(gpu.give, 0) for gpu in gpus]
        tasks += [pool.submit(gpu.take, 0, copy_of(results, place)) for place, gpu in enumerate(gpus)]
        for task in tasks:
            task.result(20)
    expected = (np.arange(ELEMENTS) % 8 * sum(range(1, GPUS + 1))).astype(dtype.numpy)
    assert (results == expected).all()
    reads = GPUS if parts is PLAIN else GPUS // 2
    assert FakeMemory.taken == (reads + 1) * ELEMENTS * dtype.size_bytes


@pytest.mark.parametrize("length", [1, 2, 99, 100])
def test_the_halves_of_a_pair_cover_a_chunk(length: int) -> None:
    chunk = slice(40, 40 + length)
    shares = [PAIRED.share(gpu, chunk) for gpu in (2, 3)]
    assert [shares[0].start, shares[1].stop] == [chunk.start, chunk.stop]
    assert shares[0].stop == shares[1].start
    assert PLAIN.share(2, chunk) == chunk


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("parts", [PLAIN, PAIRED], ids=["PCIe", "NVLink pairs"])
def test_a_copy_has_room_for_what_may_wait_ahead(parts: NodeParts, ahead: int) -> None:
    """A slow GPU must not fill queues that all GPUs' copies share. (The kernel doubles what it is asked for.)"""
    chunk_bytes = 100_000
    (links,) = connect_parts(replace(parts, copies_ahead=ahead), 1, chunk_bytes, TCP, "test", 5.0)
    share = parts.share(0, slice(0, chunk_bytes))
    for link in links:
        for end in (link.to_cpu, link.cpu_to, *link.to_peer.values()):
            with socket.socket(fileno=os.dup(end.poll_for_room.descriptor)) as sock:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == ahead * 2 * (share.stop - share.start)
        for end in link.all:
            end.close()


def test_with_nvlink_half_as_many_shares_cover_each_element() -> None:
    assert (PLAIN.reads_per_element, PAIRED.reads_per_element) == (4, 2)
