"""Directories of runs on workers, also of workers that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.sweeps.scratch import remove_abandoned, scratch_directory

OWNER = """
import sys, tempfile, time
from app.sweeps.scratch import scratch_directory
tempfile.tempdir = sys.argv[1]
with scratch_directory() as path:
    (path / "half").mkdir()
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a directory of its own, and that directory."""
    command = [sys.executable, "-c", OWNER, str(temporary)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_a_directory_is_gone_after_its_block(temporary: Path) -> None:
    with scratch_directory() as path:
        (path / "file").write_text("x")
        assert list(temporary.iterdir()) == [path]
    assert list(temporary.iterdir()) == []


def test_what_a_killed_owner_left_is_removed_by_the_next(
    owner: tuple[subprocess.Popen[str], Path], temporary: Path
) -> None:
    process, left = owner
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (left / "half").exists()
    with scratch_directory() as path:
        assert list(temporary.iterdir()) == [path]


def test_a_directory_in_use_and_what_is_not_ours_are_left_alone(
    owner: tuple[subprocess.Popen[str], Path], temporary: Path
) -> None:
    _, used = owner
    (temporary / "fabric-sweep-file").touch()
    (temporary / "elsewhere").mkdir()
    (temporary / "fabric-sweep-link").symlink_to(temporary / "elsewhere")
    before = set(temporary.iterdir())
    remove_abandoned()
    assert set(temporary.iterdir()) == before
    assert (used / "half").exists()
