"""A storage job whose clients keep what they saw, for checks of histories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from fabric.model.identity import NodeId
from fabric.world.programs.agents import Program
from traffic.storage.client.history_client import HistoryArguments, HistoryLoad, HistoryReport, run_history_client
from traffic.storage.history import Event
from traffic.storage.job import StorageJob
from traffic.storage.orders import ManagedClientArguments, Report


@dataclass
class HistoryJob(StorageJob):
    """So; ``loads``: what each client does. The config has a cluster manager."""

    loads: Mapping[NodeId, HistoryLoad] = field(default_factory=dict)

    @property
    def client_program(self) -> Program:
        """What runs in a client's host."""
        return run_history_client

    def told(self, arguments: ManagedClientArguments) -> object:
        """Return what a client is told."""
        values = {one.name: getattr(arguments, one.name) for one in fields(arguments)}
        return HistoryArguments(**values, load=self.loads[self.clients[arguments.number]])

    def __post_init__(self) -> None:
        super().__post_init__()
        self.events: dict[str, tuple[Event, ...]] = {}
        """What each client saw until the last halt, by its host; times are ``time.monotonic()``."""

    def _add(self, report: Report) -> None:
        super()._add(report)
        if isinstance(report, HistoryReport):
            self.events[report.host] = report.events
