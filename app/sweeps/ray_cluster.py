"""Runs on a Ray cluster: each claims a core and its memory; what a lost worker ran is run again, elsewhere.

The workers need this program and the guest kernel, not this machine's files: a result comes home as a part of Ray's
answer. Ray's claims are kept by Ray alone: they admit runs, and bind none to a core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.sweeps.executor import SweepWatch, require_shareable
from app.sweeps.planning import PlannedRun, SweepPlan, require_same
from app.sweeps.scratch import remove_abandoned, scratch_directory
from app.sweeps.store import Store
from fabric.errors import FabricError, ResultError, UsageError
from fabric.results import UNFINISHED
from runs.launching.finish import publish
from runs.launching.launcher import launch
from runs.launching.spec import RunSpec

_POLL_S = 1.0
_RETRIES = 10
"""How often a run is begun again whose worker or machine was lost."""
_CONNECTIONS = 3
"""How often a cluster is connected to again. Which of several daemons on a machine a program speaks with, Ray chooses:
it may be that of a worker, and go with it."""
_AHEAD = 2
"""How many runs per core Ray has at a time: their results wait in its memory."""
Play = Callable[[RunSpec], Any]


class RayExecutor:
    """``address``: as ``ray.init`` takes it; None: RAY_ADDRESS, a cluster on this machine, or a new one. ``jobs``: how
    many runs at a time, at most. ``play``: what runs one, on a worker."""

    def __init__(self, address: str | None = None, jobs: int | None = None, play: Play = launch) -> None:
        self._address = address
        self._jobs = jobs
        self._play = play

    def run(self, plan: SweepPlan, missing: Sequence[PlannedRun], store: Store, watch: SweepWatch) -> None:
        """Run those that are missing, in their order. Raises UsageError if Ray or its cluster is not there."""
        require_shareable(plan, "ray")
        ray = _ray()
        is_ours = not ray.is_initialized()
        if is_ours:
            _connect(ray, self._address)
        left = list(missing)
        try:
            for _ in range(_CONNECTIONS):
                self._run(ray, plan, left, store, watch, is_last=not is_ours)
                if not left:
                    return
                watch.tell(f"Ray's daemon that this program spoke with is gone; {len(left)} runs go on by another one")
                ray.shutdown()
                _connect(ray, self._address)
            self._run(ray, plan, left, store, watch, is_last=True)
        finally:
            remove_abandoned()  # Of workers on this machine; those elsewhere do it before their next run.
            if is_ours:
                ray.shutdown()

    def _run(
        self, ray: Any, plan: SweepPlan, left: list[PlannedRun], store: Store, watch: SweepWatch, is_last: bool
    ) -> None:
        """Run those that are left and take each away that has ended; return, with some left, if the connection is lost.
        ``is_last``: there will be no other one, so that they fail."""
        remote = ray.remote(num_cpus=1, memory=plan.memory_bytes, max_retries=_RETRIES, retry_exceptions=False)(_played)
        cores = int(ray.cluster_resources().get("CPU", 0))
        watch.tell(f"{cores} cores in the Ray cluster")
        most = min(self._jobs or cores * _AHEAD, cores * _AHEAD)
        if most < 1:
            raise UsageError("the Ray cluster has no cores; start a worker: ray start --address=...")
        waiting, under_way = list(left), dict[Any, PlannedRun]()
        while waiting or under_way:
            while waiting and len(under_way) < most:
                run = waiting.pop(0)
                under_way[remote.remote(self._play, run.spec, run.key, run.parts)] = run
            watch.running(min(len(under_way), int(ray.cluster_resources().get("CPU", 0))))
            done, _ = ray.wait(list(under_way), num_returns=1, timeout=_POLL_S)
            for reference in done:
                run = under_way.pop(reference)
                try:
                    error = _brought_home(ray, reference, store.run_directory(run.key))
                except ray.exceptions.LocalRayletDiedError as lost:
                    if not is_last:
                        return
                    error = f"Ray: {lost}"
                left.remove(run)
                watch.ended(run, error)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Yield Ray, connected to a cluster for the time of a block. Raises UsageError if one of the two is not there."""
    ray = _ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        _connect(ray, address)
    try:
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"--address {address}: no Ray cluster: {error}; start one: ray start --head") from error


def _ray() -> Any:
    """Return Ray. Raises UsageError if it is not installed."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Or it warns of GPUs, of which a run uses none.
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError("--on ray: Ray is not installed; install it: .venv/bin/pip install -e '.[ray]'") from error
    return ray


Packed = dict[str, bytes | None]
"""What is in a directory: files by their paths in it, None for a directory."""


def _played(play: Play, spec: RunSpec, key: str, parts: Mapping[str, str]) -> tuple[Packed, str | None]:
    """Run one, on a worker; return what is in its directory, or why it failed."""
    with scratch_directory() as scratch:
        directory = scratch / key
        try:
            if play is launch:
                require_same(spec, key, parts)
            play(replace(spec, directory=directory))
        except FabricError as error:
            return {}, str(error)
        return _packed(directory), None


def _brought_home(ray: Any, reference: Any, directory: Path) -> str | None:
    """Put a run's directory where it belongs; return why it failed. Raises LocalRayletDiedError, not a run's."""
    try:
        packed, error = ray.get(reference)
    except ray.exceptions.LocalRayletDiedError:
        raise
    except ray.exceptions.RayError as lost:
        return f"Ray: {lost}"
    if error is not None:
        return str(error)
    partial = directory.with_name(directory.name + UNFINISHED)
    _unpack(packed, partial)
    publish(partial, directory)
    return None


def _packed(directory: Path) -> Packed:
    found = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in found}


def _unpack(packed: Packed, directory: Path) -> None:
    """Write what was packed. Raises ResultError for a path that leads elsewhere."""
    directory.mkdir()
    for name, content in packed.items():
        path = directory / name
        if ".." in Path(name).parts or not path.is_relative_to(directory):
            raise ResultError(f"a worker's result has a file {name!r}, which is not in its directory")
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
