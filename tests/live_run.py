"""A run that plays, whose samples a test writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fabric.measure.live_file import LiveNames, LivePhase, LiveReader, LiveWriter
from fabric.model.encoding import fabric_as_json
from fabric.queueing.counters import COUNTERS
from fabric.report.view.live import Live
from topologies.load import load_fabric

RATE_BPS = 1_000_000_000


class Playing:
    """The fabric of head_of_line; its first port sends at half its rate, marks 30 packets per second, and has a byte
    more waiting each time."""

    def __init__(self, path: Path) -> None:
        path.touch()
        fabric = load_fabric("head_of_line")
        self.ports = [str(port) for port, _ in fabric.directed_ports()]
        self._names = {(0, number): port for number, port in enumerate(self.ports)}
        self._writer = LiveWriter(path, is_synced=False)
        self.live = Live(fabric_as_json(fabric), LiveReader(path), "head_of_line", "virtual")
        self._taken = 0

    def begin(self, title: str) -> None:
        """Begin a phase."""
        phase = LivePhase(title.lower(), title, "shared", "static", ("storage",), origin_s=50.0)
        keys = [(*place, 0) for place in self._names]
        self._writer.begin(LiveNames(phase, self._names, {0: "shared"}), keys, is_lossless=False)

    def sample(self, count: int) -> None:
        """Take samples, ten per second."""
        for _ in range(count):
            counters = np.zeros(len(self.ports), COUNTERS)
            counters["sent_bytes"][0] = RATE_BPS / 8 * 0.05 * self._taken
            counters["backlog_bytes"][0] = self._taken
            counters["marked_packets"][0] = 3 * self._taken
            self._writer.sample(51.0 + 0.1 * self._taken, counters, None)
            self._taken += 1
