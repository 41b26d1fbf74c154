"""The cluster manager of a run, as its job sees it: the program with a NIC, in the place of :class:`Mgmtd`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from traffic.job import Halt, Play, Stage
from traffic.program_group import ProgramGroup
from traffic.storage.chains import ChainTable
from traffic.storage.config import ClusterManagerConfig
from traffic.storage.manager_program import ManagerArguments, ManagerHistory, ManagerListening, TellHistory, run_manager
from traffic.storage.orders import ManagerEnd

_ANSWER_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class ManagerPlace:
    """Where the cluster manager is: its node, and the addresses of that by zone."""

    node: NodeId
    addresses: dict[int, str]


class ManagedCluster:
    """The cluster manager's program; its calls are CONTROL traffic, of whatever level the data is."""

    def __init__(self, stage: Stage, name: str, config: ClusterManagerConfig, table: ChainTable) -> None:
        self.programs: ProgramGroup[NodeId] = ProgramGroup(stage, name)
        self._stage = stage
        self._config = config
        self._first_table = table

    def start(self, place: ManagerPlace, nodes: Sequence[NodeId]) -> dict[int, ManagerEnd]:
        """Fork it; return where it is heard, by zone. Raises TrafficError."""
        transport = self._stage.transport(ServiceLevel.CONTROL, self._config.heartbeat)
        arguments = ManagerArguments(
            place.node, place.addresses, self._config, self._first_table, tuple(nodes), transport
        )
        self.programs.start(place.node, "cluster manager", place.node, run_manager, arguments)
        listening: ManagerListening = self.programs.collect("the addresses it listens on", _ANSWER_TIMEOUT_S)[
            place.node
        ]
        return {
            zone: ManagerEnd(place.node, endpoint, tuple(nodes), transport)
            for zone, endpoint in listening.addresses.items()
        }

    def play(self, phase: str) -> None:
        """Let it go on. Raises TrafficError if it has gone."""
        self._order(Play(phase))

    def halt(self) -> None:
        """Let it stand still: services are not heard between phases, and none has failed for that. Raises TrafficError
        if a chain came to be what it must not be."""
        self._order(Halt())
        if self.programs.living and (faults := self.history().faults):
            raise TrafficError(f"storage: {'; '.join(faults[:3])}; {len(faults)} faults of chains in all: it is a bug")

    def _order(self, order: object) -> None:
        with self.programs.asking:
            self.programs.order(order)
            self.programs.await_ready("report that it has heard", _ANSWER_TIMEOUT_S)

    def history(self) -> ManagerHistory:
        """Return how chains have changed since the start. Raises TrafficError if the manager has gone."""
        with self.programs.asking:
            self.programs.order(TellHistory())
            found = list(self.programs.collect("its history", _ANSWER_TIMEOUT_S).values())
        if not found:
            raise TrafficError("storage: the cluster manager was killed, and tells nothing")
        history = found[0]
        assert isinstance(history, ManagerHistory)
        return history

    @property
    def table(self) -> ChainTable:
        """The routing as it is now."""
        return self.history().table

    def wait_until(self, holds: Callable[[ChainTable], bool], timeout_s: float) -> bool:
        """Return whether the routing comes to be so within a time."""
        ends_s = time.monotonic() + timeout_s
        while not (is_so := holds(self.table)) and time.monotonic() < ends_s:
            time.sleep(_LOOK_EVERY_S)
        return is_so

    def wait_without(self, node: NodeId, timeout_s: float) -> bool:
        """Return whether no chain is written on a node within a time."""
        return self.wait_until(lambda table: all(node not in chain.written for chain in table.chains), timeout_s)

    def wait_whole(self, replicas: int, timeout_s: float) -> bool:
        """Return whether all targets of all chains serve within a time."""
        return self.wait_until(lambda table: all(len(chain.nodes) == replicas for chain in table.chains), timeout_s)

    def stop(self) -> None:
        """It ends with the job's other programs."""
