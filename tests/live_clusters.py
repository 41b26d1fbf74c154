"""Asks clusters that tests have brought up, without a process for each question."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.platform.client import Gateway, clusters_up, names_in, the_one
from fabric.errors import UsageError

PATIENCE_S = 180.0
_LOOK_S = 0.1
_names: dict[Path, str] = {}


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill the process of a cluster at the end of a block, whatever a test finds."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def asked(folder: Path, kind: str, **question: Any) -> dict[str, Any]:
    """Return what the cluster of a folder answers."""
    with Gateway(_name_of(folder)) as gateway:
        gateway.until_up()
        answer = gateway.exchange({"kind": kind, **question})
    assert answer["kind"] not in ("refused", "failed"), answer
    return answer


def _name_of(folder: Path) -> str:
    """Return by what name the cluster of a folder is found. Others are asked for that once: they may be of other tests,
    in guests, which answer nobody while they compute."""
    there = {name for name, _ in names_in(Path("/proc/net/unix").read_text())}
    if _names.get(folder) not in there:
        _names[folder] = the_one(clusters_up(), folder).name
    return _names[folder]


def until_up(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the cluster that a process brings up answers."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None and time.monotonic() < deadline_s, process.communicate(timeout=5)
        try:
            asked(folder, "nodes")
        except UsageError:  # It has not come so far that it is found.
            time.sleep(_LOOK_S)
        else:
            return


def job(folder: Path, number: int) -> dict[str, Any]:
    """Return a job in brief."""
    (found,) = asked(folder, "list", after=number - 1, most=1)["jobs"]
    return dict(found)


def until(folder: Path, number: int, **wanted: Any) -> dict[str, Any]:
    """Wait until a job is as wanted; return it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while any((found := job(folder, number))[key] != value for key, value in wanted.items()):
        assert time.monotonic() < deadline_s, (found, wanted)
        time.sleep(_LOOK_S)
    return found


def until_printed(folder: Path, number: int, lines: int = 1) -> list[str]:
    """Wait until rank 0 of a job's last life has printed lines; return them."""
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found := str(asked(folder, "log", number=number)["text"]).splitlines()) < lines:
        assert time.monotonic() < deadline_s, found
        time.sleep(_LOOK_S)
    return found
