"""What users have used, for fair share: node-seconds, of which older ones count less."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.tasks import Task, TaskState

HALF_LIFE_S = 7 * 86_400.0
"""After how long a user's past use counts half, as Slurm's default has it."""


class Usage:
    """Node-seconds of each user, decayed. Who keeps it calls :meth:`move` before tasks change."""

    def __init__(self) -> None:
        self.node_s: dict[str, float] = {}
        self._at_s: float | None = None

    def move(self, now_s: float, tasks: Iterable[Task]) -> None:
        """Let time pass until ``now_s``, in which these tasks had their nodes. It does not pass before the first
        call."""
        passed_s = 0.0 if self._at_s is None else now_s - self._at_s
        self._at_s = now_s
        if passed_s <= 0:
            return
        for user in self.node_s:
            self.node_s[user] *= 0.5 ** (passed_s / HALF_LIFE_S)
        for task in tasks:
            if task.state is not TaskState.QUEUED:
                self.node_s[task.user] = self.node_s.get(task.user, 0.0) + task.nodes * passed_s
