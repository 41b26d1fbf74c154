"""What all engines tell those that are inside a run."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

import pytest

from fabric.world import engine


def test_a_run_that_ends_knows_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record is written minutes later, in another process."""
    monkeypatch.delenv(engine.STARTED_AT, raising=False)
    environment = engine.own_environment(os.environ)
    began = datetime.fromisoformat(environment[engine.STARTED_AT])
    assert abs(datetime.now(timezone.utc) - began) < timedelta(seconds=60)
    monkeypatch.setenv(engine.STARTED_AT, "2026-11-27T09:45:33+00:00")
    assert engine.started_at() == "2026-11-27T09:45:33+00:00"
    assert engine.own_environment(os.environ)[engine.STARTED_AT] == engine.started_at()
