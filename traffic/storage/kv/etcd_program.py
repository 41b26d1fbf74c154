"""etcd in the place of the store's own program: started in the host, called over its NIC, in real time only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fabric.errors import TrafficError
from fabric.world.engines import current_engine
from fabric.world.isolation.processes import die_with
from fabric.world.programs.agents import Agent
from traffic.storage.kv.etcd import MOST_OPERATIONS, EtcdStore
from traffic.storage.kv.program import KvArguments, KvListening, KvService, carry_out_orders
from traffic.storage.kv.store import Unreachable
from traffic.storage.orders import Orders
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import Tasks

CLIENT_PORT, PEER_PORT = 2379, 2380
_START_TIMEOUT_S = 30.0
_CALL_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.1


def why_no_etcd() -> str:
    """Return why etcd cannot be the store of this run; nothing if it can."""
    if current_engine().is_exact:
        return "etcd runs in real time only; use --engine namespace, or kv.engine sqlite"
    if shutil.which("etcd") is None:
        return "etcd is not installed; install it (Debian: apt-get install etcd-server), or use kv.engine sqlite"
    return ""


@contextlib.contextmanager
def etcd_on(addresses: tuple[str, ...]) -> Iterator[None]:
    """Run etcd on addresses while a block lasts; it ends with this process, too. Raises TrafficError if it cannot be
    started."""
    clients, peers = (",".join(f"http://{one}:{port}" for one in addresses) for port in (CLIENT_PORT, PEER_PORT))
    with tempfile.TemporaryDirectory(prefix="etcd-") as directory:
        words = [
            "etcd", "--name", "kv", "--data-dir", directory, "--max-txn-ops", str(MOST_OPERATIONS),
            "--listen-client-urls", clients, "--advertise-client-urls", clients,
            "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster",
            ",".join(f"kv={url}" for url in peers.split(",")),
        ]  # fmt: skip
        said, parent = Path(directory) / "said", os.getpid()
        with said.open("wb") as out:
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=lambda: die_with(parent)
                )
            except OSError as error:
                raise TrafficError(f"etcd cannot be started: {error}; install it, or use kv.engine sqlite") from error
        try:
            yield
        finally:
            process.kill()
            process.wait()


async def answering(store: EtcdStore) -> None:
    """Return once an etcd answers. Raises TrafficError if it does not in time."""
    until_s = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            await store.read_version()
            return
        except Unreachable as error:
            if time.monotonic() > until_s:
                raise TrafficError(f"etcd does not answer within {_START_TIMEOUT_S:g} s of its start") from error
        await asyncio.sleep(_LOOK_EVERY_S)


def run_etcd(agent: Agent, arguments: KvArguments) -> None:
    """Be the store until the run stops it."""
    with etcd_on(tuple(arguments.addresses.values())):
        event_loop.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: KvArguments) -> None:
    address = next(iter(arguments.addresses.values()))
    store = EtcdStore(arguments.transport, (address, CLIENT_PORT), address, _CALL_TIMEOUT_S)
    await answering(store)
    if arguments.first is not None:
        await store.commit(arguments.first)
    service, orders = KvService(store), Orders(agent, Tasks(), lambda change: None)
    agent.report(KvListening({zone: (address, CLIENT_PORT) for zone, address in arguments.addresses.items()}))
    await carry_out_orders(agent, orders, service)
