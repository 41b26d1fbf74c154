"""A cluster in time that jumps whose chains are kept by several managers and a store, each on a host of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fabric.model.identity import NodeId, Role
from fabric.model.lanes import ServiceLevel
from tests.traffic.transport import memory_transport as memory
from traffic.storage.chain_states import ChainState
from traffic.storage.chains import ChainTable
from traffic.storage.config import StorageConfig
from traffic.storage.control import Nodes
from traffic.storage.history import Held, chain_faults
from traffic.storage.kv.program import KvService
from traffic.storage.kv.remote import RemoteStore
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.managers.chain_store import LOG, ChainStore, Logged, StoredChains
from traffic.storage.managers.one_writer import Trusted, shared, writer_faults
from traffic.storage.managers.program import ManagerService, Seat, first_lease, manager_service, spawn_turns
from traffic.storage.orders import ManagerEnd
from traffic.storage.wire.calls import LinkListener, Party, Tasks
from traffic.storage.wire.links import Links
from traffic.transport.connection import Endpoint

from .true_timers import NODES, Cluster

T = TypeVar("T")
KV = NodeId(Role.COMPUTE, 0, 98)
MOST_MANAGERS = 5
MANAGERS = [NodeId(Role.COMPUTE, 0, 90 + index) for index in range(MOST_MANAGERS)]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


@dataclass
class Managing:
    """A manager: its service, what it runs, and where it listens."""

    service: ManagerService
    tasks: Tasks
    endpoint: Endpoint
    is_dead: bool = False


class ManagedByMany(Cluster):
    """Services on ``NODES``, managers on the first of ``MANAGERS``, their store on ``KV``, and clients."""

    def __init__(self, config: StorageConfig) -> None:
        super().__init__(config)
        self.managers: dict[str, Managing] = {}
        self.kv = KvService(SqliteStore())
        self.chain_store = ChainStore(self.kv.store, Nodes(tuple(NODES)))

    def _start_manager(self) -> ManagerEnd:
        config = self.config.cluster_manager
        assert config is not None and config.managers is not None
        nodes = MANAGERS[: config.managers.count]
        first = [ChainState.first(chain.number, chain.targets) for chain in self.table.chains]
        lease = first_lease(config, nodes[0].name)
        at_once(self.kv.store.commit(self.chain_store.first(lease, self.table.version, first)))
        transport = self._transport(KV.name, ServiceLevel.CONTROL)
        listener = transport.listen(KV.name)
        LinkListener(Party(KV.name, self.kv.handle, transport, self.tasks), listener, lambda link: None)
        for number in range(len(nodes)):
            self._start_one(number, tuple(node.name for node in nodes), listener.endpoint)
        (node, endpoint), *others = [(node, self.managers[node.name].endpoint) for node in nodes]
        return ManagerEnd(node, endpoint, tuple(NODES), transport, tuple(others), config.has_clocks)

    def _start_one(self, number: int, names: tuple[str, ...], kv: Endpoint) -> None:
        config, name, tasks = self.config.cluster_manager, names[number], Tasks()
        assert config is not None and config.managers is not None
        transport = self._transport(name, ServiceLevel.CONTROL)
        links = Links(Party(name, lambda link, frame: None, transport, tasks), name)
        links.expect(KV, kv)
        seat = Seat(number, names, RemoteStore(links, KV, config.managers.lease.extended_every / 2))
        service = manager_service(config, self.table, tuple(NODES), seat, config.clocks.get(name, 0.0))
        listener = transport.listen(name)
        LinkListener(Party(name, service.handle, transport, tasks), listener, lambda link: None)
        spawn_turns(service, config, seat, tasks)
        service.begin_phase()
        self.managers[name] = Managing(service, tasks, listener.endpoint)

    # What happens to managers.

    def kill(self, name: str) -> None:
        """End a manager at once: its connections break, and nobody listens there."""
        manager = self.managers[name]
        manager.is_dead = True
        for task in list(manager.tasks._running):
            task.cancel()
        self._drop(manager.endpoint)
        self.network.end(name)

    def _drop(self, endpoint: Endpoint) -> None:
        asyncio.get_running_loop().remove_reader(memory._listeners[endpoint].poll_for_callers.descriptor)
        memory._listeners[endpoint].close()

    def pause(self, name: str) -> None:
        """Let a host's programs stand still: what it is sent waits for it."""
        self.network.frozen.add(name)

    # What is so.

    def everybody(self) -> list[str]:
        return [*(node.name for node in NODES), *self.managers, KV.name, *self.clients]

    def living(self) -> list[str]:
        return [name for name, manager in self.managers.items() if not manager.is_dead]

    def primaries(self) -> list[str]:
        """Return the managers that trust a lease now."""
        found = []
        for name in self.living():
            service = self.managers[name].service
            assert service.primary is not None
            if name not in self.network.frozen and service.primary.is_primary(service.clock()):
                found.append(name)
        return found

    async def until_primary(self, name: str, patience_s: float = 400) -> None:
        """Wait until a manager is the primary, and answers."""
        primary = self.managers[name].service.primary
        assert primary is not None
        for _ in range(int(patience_s * 10)):
            if primary.may_answer(self.managers[name].service.clock()):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{name} is not the primary after {patience_s} s")

    @property
    def stored(self) -> StoredChains:
        found = at_once(self.chain_store.read())
        assert found is not None
        return found

    @property
    def routing(self) -> ChainTable:
        stored = self.stored
        return ChainTable(stored.version, tuple(chain.routed for chain in stored.chains))

    def held(self, number: int) -> Held:
        chain = self.stored.chains[number]
        by_target = {target: self.services[target.node].replica.states(number) for target, _ in chain.targets}
        return Held(chain, by_target)

    @property
    def log(self) -> list[Logged]:
        return self.chain_store.logged(at_once(self.kv.told(LOG)).pairs)

    @property
    def trusted(self) -> dict[str, tuple[Trusted, ...]]:
        found: dict[str, tuple[Trusted, ...]] = {}
        for manager in self.managers.values():
            found |= manager.service.history.trusted or {}
        return found

    def require_sound(self) -> None:
        super().require_sound()
        for manager in self.managers.values():
            if manager.tasks.failed.done() and not manager.is_dead:
                manager.tasks.failed.result()

    def faults_of_managers(self) -> list[str]:
        """Return what is wrong with who wrote the chains, and with how they changed."""
        histories: dict[int, list[ChainState]] = {}
        for line in self.log:
            for chain in line.chains:
                histories.setdefault(chain.number, []).append(chain)
        wrong = [fault for history in histories.values() for fault in chain_faults(history)]
        return [*shared(self.trusted), *writer_faults(self.log), *wrong]
