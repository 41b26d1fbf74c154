"""A phase of a platform ends while a job is told to leave for another one: over packets, with all of its rows."""

from __future__ import annotations

import pytest

from experiments import load
from tests.virtual.command import TINY, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak]
CONFIG = f"""
experiment: shared_cluster
topology: {TINY}
seed: 1
queueing: lanes
alone_time: null
together_time: 14 s
receive_window: 64 KiB
jobs:
  - name: platform
    kind: platform
    nodes: 5
    duration: 12 s
    timers: {{tick: 500 ms, beat: 1 s, failed_after: 8 s, answer: 5 s, save: 3 s}}
    jobs:
      - {{name: low, user: ada, nodes: 4, command: [sleep, "1000"]}}
      - {{name: high, user: bo, nodes: 4, at: 10 s, priority: HIGH, command: [sleep, "1"]}}
  - {{name: others, kind: background, nodes: 2}}
"""


def test_a_job_that_does_not_answer_its_notice_is_stopped_at_the_end(command: VirtualCommand) -> None:
    (command.here / "config.yaml").write_text(CONFIG)
    result = load(command.play("config.yaml"))
    events = result.table("platform_events").astype({"event": str})
    assert list(events["event"])[:5] == ["submitted", "asked", "started", "submitted", "suspend"]
    assert list(events["event"])[5:] == ["cancel", "cancel", "left", "left"]
    assert set(events.loc[events["event"] == "left", "number"]) == {1, 2}
    assert "0 of 2 jobs finished, 2 stopped by their users or at the end of the phase" in str(result.answer)
