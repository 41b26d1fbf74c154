"""No test of sweeps needs a guest kernel: one is only named."""

from __future__ import annotations

import pytest

from fabric.world.virtual_time import VirtualEngine
from tests.browser import chromium

__all__ = ["chromium"]


@pytest.fixture(autouse=True)
def _named_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualEngine, "kernel", lambda self: "linux-6.1-a-b")
