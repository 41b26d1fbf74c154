"""A storage job whose clients keep what they saw, for checks of histories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent
from traffic.storage.history import Event
from traffic.storage.history_client import HistoryArguments, HistoryLoad, HistoryReport, run_history_client
from traffic.storage.job import StorageJob
from traffic.storage.orders import ClientArguments, ManagerEnd, Report


@dataclass
class HistoryJob(StorageJob):
    """So; ``loads``: what each client does. The config has a cluster manager."""

    loads: Mapping[NodeId, HistoryLoad] = field(default_factory=dict)

    @property
    def _client_program(self) -> Callable[[Agent, Any], None]:
        return run_history_client

    def _start_of(
        self, client: NodeId, number: int, manager: ManagerEnd | None = None
    ) -> tuple[str, NodeId, ClientArguments]:
        what, node, base = super()._start_of(client, number, manager)
        values = {one.name: getattr(base, one.name) for one in fields(base)}
        return what, node, HistoryArguments(**values, load=self.loads[client])

    def __post_init__(self) -> None:
        super().__post_init__()
        self.events: dict[str, tuple[Event, ...]] = {}
        """What each client saw until the last halt, by its host; times are ``time.monotonic()``."""

    def _add(self, report: Report) -> None:
        super()._add(report)
        if isinstance(report, HistoryReport):
            self.events[report.host] = report.events
