"""The cluster manager: detects dead services and publishes the next chain table, out of band (3FS: ``mgmtd``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import wait
from typing import Any

from fabric.model.identity import NodeId
from traffic.storage.chains import ChainTable, TableChange

_POLL_S = 0.1


class Mgmtd:
    """Watches service processes in a thread of its own.

    ``publish`` is called with what each death changes, ``detection_s`` after it, one at a time.
    """

    def __init__(
        self,
        table: ChainTable,
        processes: Mapping[NodeId, Any],
        detection_s: float,
        publish: Callable[[TableChange], None],
    ) -> None:
        self.table = table
        self.dead: set[NodeId] = set()
        self._living = dict(processes)
        self._detection_s = detection_s
        self._publish = publish
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="mgmtd")
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer, so that services may end without being missed."""
        self._stopping.set()
        self._thread.join(5)

    def wait_without(self, node: NodeId, timeout_s: float) -> bool:
        """Return whether a table without ``node`` is published within ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: node in self.dead, timeout_s)

    def _watch(self) -> None:
        dying: dict[NodeId, float] = {}
        while not self._stopping.is_set():
            sentinels = {process.sentinel: node for node, process in self._living.items()}
            for sentinel in wait(list(sentinels), _POLL_S if sentinels else 0):
                node = sentinels[sentinel]
                del self._living[node]
                dying[node] = time.monotonic() + self._detection_s
            for node in [node for node, missed_at in dying.items() if missed_at <= time.monotonic()]:
                del dying[node]
                self._bury(node)
            if not sentinels:
                self._stopping.wait(_POLL_S)

    def _bury(self, node: NodeId) -> None:
        older, self.table = self.table, self.table.without_node(node)
        self._publish(self.table.change_from(older))
        with self._changed:
            self.dead.add(node)
            self._changed.notify_all()
