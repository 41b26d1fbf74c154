"""Failures without a schedule: for tests of what targets make of them."""

from __future__ import annotations

from collections.abc import Hashable

from fabric.failures.injection import Effects, NotThereError, Part
from fabric.failures.schedule import State


class Applied:
    """Brings targets into states at once, each of its parts, as an injector does."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self._now: dict[Part, State] = {}

    def apply(self, target: Hashable, state: State) -> list[tuple[str, str]]:
        """Return the names of the jobs that had the target, each with what else there is to say."""
        met = []
        for part in self.effects.parts(target):
            try:
                met.append((part.job, self.effects.bring(part, self._now.get(part, state.composed([])), state)))
            except NotThereError:
                continue
            self._now[part] = state
        return met
