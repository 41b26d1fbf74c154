"""Storage over a transport of messages in the memory of one process: its programs ask for no socket."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection as PipeEnd
from pathlib import Path
from typing import Any

import pytest

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent, StopRequested
from tests.traffic.transport.memory_transport import MemoryTransport
from tests.waiting import LIMIT_S
from traffic.job import Halt, Play, Ready
from traffic.storage.chains import ChainTable, FileLayout, Striping, place_chains
from traffic.storage.client.samples import ReaderPlace
from traffic.storage.client.verification import Verification
from traffic.storage.client.workloads import dataset, run_client
from traffic.storage.orders import ClientArguments, LoadPart, Peers, Report, ServiceArguments, ServiceListening, Verify
from traffic.storage.service import program as service
from traffic.storage.service.program import run_service
from traffic.transport.connection import Endpoint, SocketOptions

from .conftest import FABRIC, config_of, loopback

MEMORY = MemoryTransport(SocketOptions(ServiceLevel.STORAGE))
TIMEOUT_S = 20.0
CONFIG = config_of(
    {
        "chunk_size": 1 << 16,
        "stripe": 4,
        "chains_per_target": 2,
        "disks_per_node": 1,
        "dataloader": {"share": 1.0, "files": 2, "file_size": "1 MiB", "sample_min": 4096, "sample_max": 1 << 16},
        "checkpoint": {"share": 1.0, "size": "1 MiB"},
        "request_to_send": 2,
    }
)


@pytest.fixture(autouse=True)
def own_policy() -> Iterator[None]:
    """Programs set the loop of their process, which is the test's here."""
    before = asyncio.get_event_loop_policy()
    yield
    asyncio.set_event_loop_policy(before)


def until_stopped(program: Callable[[Agent, Any], None], agent: Agent, arguments: object) -> None:
    with suppress(StopRequested):
        program(agent, arguments)


class Program:
    """A program in a thread: what it is ordered, and what it answers."""

    def __init__(self, program: Callable[[Agent, Any], None], host: str, arguments: object) -> None:
        self._pipe: PipeEnd
        self._pipe, its = Pipe()
        self._thread = threading.Thread(target=until_stopped, args=(program, Agent(host, its), arguments), daemon=True)
        self._thread.start()

    def answer(self, order: object = None) -> Any:
        if order is not None:
            self._pipe.send(order)
        assert self._pipe.poll(TIMEOUT_S), f"waited for an answer to {order}"
        return self._pipe.recv()

    def stop(self) -> None:
        self._pipe.send(None)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "waited for a program's end"


@contextmanager
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    try:
        yield started
    finally:
        for program in started:
            program.stop()


def operations_of(report: Report) -> set[str]:
    return {row["operation"] for row in report.records.rows("operations")}


def played(started: list[Program]) -> tuple[Report, list[Report]]:
    """Return what a client, the last one, and services report once there were reads and writes."""
    window_s = 0.5
    while True:
        assert all(program.answer(Play("all")) == Ready() for program in started)
        threading.Event().wait(window_s)
        report = started[-1].answer(Halt())
        served = [program.answer(Halt()) for program in started[:-1]]
        if {"read", "write"} <= operations_of(report):
            return report, served
        assert window_s < LIMIT_S, f"played for {window_s:g} s and waited for a read and a write"
        window_s *= 2


def test_programs_write_and_read_over_a_transport_that_is_not_tcp() -> None:
    nodes = FABRIC.storages
    table = place_chains(nodes, CONFIG.disks_per_node, CONFIG.chains_per_target, CONFIG.replicas)
    striping = Striping(CONFIG.chunk_size, CONFIG.stripe, len(table.chains), 7)
    files = dataset(CONFIG.dataloader, striping)
    with programs() as started:
        services: dict[NodeId, Endpoint] = {}
        for node in nodes:
            told = ServiceArguments(node, {0: loopback(node, 0)}, CONFIG, table, files, MEMORY)
            started.append(Program(run_service, node.name, told))
            listening: ServiceListening = started[-1].answer()
            services[node] = listening.addresses[0]
        peers = Peers({(0, node): endpoint for node, endpoint in services.items()})
        assert all(program.answer(peers) == Ready() for program in started)
        client = Program(run_client, "z0h000", arguments_of(services, table, striping, files))
        started.append(client)
        assert client.answer() == Ready()
        report, served = played(started)
        found: Verification = client.answer(Verify())
    assert operations_of(report) == {"read", "write"}
    assert found.checked > 0 and not found.lost and not found.out_of_reach
    assert sum(one.counts["updates"] for one in served) >= report.counts["acknowledged_chunks"]
    flows = [row for one in (report, *served) for row in one.records.rows("flows")]
    assert max(row["bytes_acked"] for row in flows) > CONFIG.chunk_size
    assert {(row["rtt_s"], row["retransmissions"]) for row in flows} == {(None, None)}


def arguments_of(
    services: Mapping[NodeId, Endpoint], table: ChainTable, striping: Striping, files: tuple[FileLayout, ...]
) -> ClientArguments:
    return ClientArguments(
        number=0,
        source="127.0.0.1",
        services=services,
        config=CONFIG,
        table=table,
        striping=striping,
        dataset=files,
        part=LoadPart(ReaderPlace(0, 1), writes=True),
        seed=7,
        transport=MEMORY,
    )


def test_no_module_of_storage_knows_sockets_or_tcp() -> None:
    assert service.__file__ is not None
    for path in Path(service.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        named = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
        named |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert named.isdisjoint({"socket", "traffic.transport.tcp"}), path.name
