from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.world.isolation import limits
from topologies.load import load_fabric


@pytest.fixture
def soft_and_hard() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_a_process_gets_all_open_files_that_it_may_have(soft_and_hard: tuple[int, int]) -> None:
    hard = soft_and_hard[1]
    soft = 256 + len(list(Path("/proc/self/fd").iterdir()))  # Tests that ran before in this process may have left some.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard), hard))
    assert limits.allow_open_files() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= hard


def test_a_fabric_that_needs_more_open_files_is_refused_with_how_many_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    small, full = load_fabric("fire_flyer_2_small"), load_fabric("fire_flyer_2")
    assert limits.files_needed(small) < 4096 < limits.files_needed(full) < 65536
    monkeypatch.setattr(limits, "allow_open_files", lambda: 4096)
    limits.require_open_files(small)
    needed = limits.files_needed(full)
    with pytest.raises(
        EmulationError, match=rf"needs some {needed} open files and the limit here is 4096.*ulimit -Hn {needed}"
    ):
        limits.require_open_files(full)
