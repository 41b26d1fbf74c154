"""Runs on this machine: as many at a time as its cores and memory take, each on a core of its own."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

from app.sweeps.executor import SweepWatch
from app.sweeps.planning import PlannedRun, SweepPlan
from app.sweeps.store import Store
from fabric.errors import FabricError, UsageError
from fabric.free_memory import available_bytes
from fabric.world.engines import engine_named
from runs.launching.events import Event
from runs.launching.launcher import launch
from runs.launching.spec import RunSpec

Launch = Callable[[RunSpec, Callable[[Event], None]], object]


class _StoppedError(Exception):
    """Raised in a run's own thread, to end it."""


class LocalExecutor:
    """``jobs``: how many runs at a time, at most; None: as many as cores and memory take. ``play``: what runs one."""

    def __init__(self, jobs: int | None = None, play: Launch = launch) -> None:
        self._jobs = jobs
        self._play = play

    def run(self, plan: SweepPlan, missing: Sequence[PlannedRun], store: Store, watch: SweepWatch) -> None:
        """Run those that are missing. If the caller is interrupted, what runs is ended first.

        In real time their order has nothing to do with the grid, or a machine that grows busier or warmer would look
        like an effect of an axis. It is that of their keys, which are hashes of what they are.
        """
        cores = cores_for(plan, self._jobs)
        in_order = sorted(missing, key=lambda run: run.key) if engine_named(plan.engine).takes_machine else missing
        free: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
        for core in cores:
            free.put(core)
        watch.tell(_told(cores))
        done: queue.SimpleQueue[tuple[PlannedRun, str | None]] = queue.SimpleQueue()
        stopping = threading.Event()

        def play(run: PlannedRun) -> None:
            core = free.get()
            try:
                error = None if stopping.is_set() else self._played(run, store, core, stopping)
                done.put((run, error))
            except BaseException as error:  # It would be lost in this thread, and the caller would wait forever.
                done.put((run, f"{type(error).__name__}: {error}"))
            finally:
                free.put(core)

        together = engine_named(plan.engine).several() if len(missing) > 1 else nullcontext()
        with together, ThreadPoolExecutor(len(cores)) as pool:
            try:
                for run in in_order:
                    pool.submit(play, run)
                for left in range(len(missing), 0, -1):
                    watch.running(min(left, len(cores)))
                    watch.ended(*done.get())
            except BaseException:
                stopping.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _played(self, run: PlannedRun, store: Store, core: set[int], stopping: threading.Event) -> str | None:
        """Run one; return why it failed."""
        if core:
            os.sched_setaffinity(0, core)  # Of this thread, and of the processes that it starts.

        def stop_if_asked(event: Event) -> None:
            if stopping.is_set():
                raise _StoppedError("the sweep was ended")

        try:
            self._play(replace(run.spec, directory=store.run_directory(run.key)), stop_if_asked)
        except FabricError as error:
            return str(error)
        return None


def cores_for(plan: SweepPlan, jobs: int | None) -> list[set[int]]:
    """Return the cores of each run that may go on at a time; of one that takes the whole machine, none is named.

    Raises UsageError if not even one fits, or more are asked for than there are cores.
    """
    engine = engine_named(plan.engine)
    if engine.takes_machine:
        if jobs is not None and jobs > 1:
            raise UsageError(f"--jobs {jobs}: in {engine.clock}, runs at a time disturb each other; omit it")
        return [set()]
    usable = sorted(os.sched_getaffinity(0))
    if jobs is not None and not 1 <= jobs <= len(usable):
        raise UsageError(f"--jobs {jobs}: must be from 1 to {len(usable)}, the cores that this process may use")
    fit = available_bytes() // plan.memory_bytes
    if fit < 1:
        needed, there = (f"{size / 2**30:.1f} GiB" for size in (plan.memory_bytes, available_bytes()))
        raise UsageError(f"a run may take {needed} of memory, and {there} are free; give it less (memory: 2 GiB)")
    return [{core} for core in usable[: min(jobs or len(usable), fit)]]


def _told(cores: Sequence[set[int]]) -> str:
    if not cores[0]:
        return "one run at a time"
    return f"{len(cores)} at a time, on cores {', '.join(str(*core) for core in cores)}"
