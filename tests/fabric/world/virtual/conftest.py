"""Caches of kernels of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.world.virtual import kernel

from .small_kernels import Use


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Let a cache be the one that is used, and no other be known."""
    monkeypatch.setattr("fabric.world.cache.SHARED", tmp_path / "shared")
    monkeypatch.delenv(kernel.CHOICE, raising=False)

    def choose(name: str) -> None:
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))

    choose("here")
    return choose
