"""For how long the phases of a run play their load, as far as its config says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PhaseLengths:
    """How long phases play their load, in seconds, by the keys that say so; ``until``: what the others last until, in
    words, and nothing if there are no others."""

    by_key: Mapping[str, float] = field(default_factory=dict)
    until: str = ""

    @classmethod
    def of(cls, config: Any, *keys: str, until: str = "") -> PhaseLengths:
        """Return what keys of a config say; one that is None has no phase."""
        return cls({key: seconds for key in keys if (seconds := getattr(config, key)) is not None}, until)

    @property
    def longest(self) -> tuple[str, float] | None:
        """The longest phase's key and length, in seconds; None where that is not known before the run."""
        return None if self.until else max(self.by_key.items(), key=lambda one: one[1], default=None)
