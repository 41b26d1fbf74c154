"""The scheduler and the agents of a run as programs that failures hit: what they leave behind, and how they are begun
again."""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster.platform.ranks import signal_all
from fabric.errors import FabricError, TrafficError
from fabric.model.identity import NodeId
from traffic.program_group import ProgramGroup, ProgramLock

MOST_FAILURES, FAILURES_S = 3, 60.0
"""A program that fails by itself for so many times in so many seconds is not begun again."""


class SupervisedPrograms:
    """Programs of one kind, as :class:`fabric.failures.kinds.process.FailingPrograms`.

    ``again`` starts that of a host again. ``after_s``: what supervises them does so by itself so long after one was
    killed; None: it does not. ``ranks``: the folder with those of a host, which stop, go on and end with the agent:
    what falls silent or crashes is the node.
    """

    def __init__(
        self,
        group: ProgramGroup[NodeId],
        again: Callable[[str], None],
        after_s: float | None,
        ranks: Callable[[str], Path | None] = lambda host: None,
    ) -> None:
        self.group, self._again, self._after_s, self._ranks = group, again, after_s, ranks
        self.begun: Callable[[str], None] = lambda host: None
        """Is called with the host once what supervises them has begun one again."""
        self._starting = ProgramLock()
        self._waiting: dict[str, threading.Timer] = {}
        self._error: FabricError | None = None

    @property
    def hosts(self) -> frozenset[str]:
        """Where they live."""
        return self.group.hosts

    def stop_on(self, host: str) -> None:
        """Let the program on a host, and its ranks, run no longer."""
        self.group.stop_on(host)
        self._signal_ranks(host, signal.SIGSTOP)

    def resume_on(self, host: str) -> None:
        """Let them run again."""
        self._signal_ranks(host, signal.SIGCONT)
        self.group.resume_on(host)

    def kill_on(self, host: str) -> None:
        """End the program on a host at once, and its ranks with all that they have started."""
        self.group.kill_on(host)
        self._signal_ranks(host, signal.SIGKILL)
        if self._after_s is not None:
            self._waiting[host] = threading.Timer(self._after_s, self._begin_by_itself, [host])
            self._waiting[host].daemon = True
            self._waiting[host].start()

    def restart_on(self, host: str) -> None:
        """Start it again; one that lives has been begun again already. Raises TrafficError if it does not start."""
        with self._starting.of(host):
            if host not in self.group.hosts:
                self._again(host)

    def settle(self) -> None:
        """Begin those again at once that wait for it. Raises TrafficError if one did not start, now or before."""
        for host, timer in list(self._waiting.items()):
            timer.cancel()
            timer.join()
            self.restart_on(host)
        self._waiting.clear()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Begin none again any more, and end all."""
        for timer in self._waiting.values():
            timer.cancel()
        self.group.close()

    def _begin_by_itself(self, host: str) -> None:
        try:
            with self._starting.of(host):
                was_dead = host not in self.group.hosts
                self.restart_on(host)
        except FabricError as error:  # settle() raises it where the run sees it.
            self._error = error
        else:
            if was_dead:
                self.begun(host)

    def _signal_ranks(self, host: str, number: signal.Signals) -> None:
        if (folder := self._ranks(host)) is not None:
            signal_all(folder, number)


class Supervisor:
    """Begins programs of a cluster that is up again, as what supervises them does on machines: those that were killed,
    and those that have failed by themselves, of which it says why. ``say`` is told of each.

    A host whose program fails again and again is given up; it stays out. ``needed`` are those without which nothing
    goes on.
    """

    def __init__(
        self,
        programs: Sequence[SupervisedPrograms],
        needed: SupervisedPrograms,
        say: Callable[[str], None],
    ) -> None:
        self._programs, self._needed, self._say = programs, needed, say
        self._failed_s: dict[tuple[str, str], list[float]] = defaultdict(list)

    def look(self) -> None:
        """Begin those again that have ended since the last look. Raises TrafficError if one that is needed fails again
        and again."""
        for programs in self._programs:
            for handle in list(programs.group.living.values()):
                if not handle.pipe.poll():
                    continue
                try:
                    handle.receive(0, "word that was not asked for")
                except TrafficError as error:
                    self._begin_again(programs, handle, error)

    def _begin_again(self, programs: SupervisedPrograms, handle: Any, error: TrafficError) -> None:
        name, host = handle.name, handle.host
        programs.kill_on(host)
        if not self._is_to_be_begun(name, host, handle.process.exitcode):
            often = f"{name} on {host}: has failed {MOST_FAILURES} times within {FAILURES_S:g} s"
            if programs is self._needed:
                raise TrafficError(f"{often}, the last time:\n{error}") from error
            self._say(f"{error}\n{often}; its node stays out until the cluster comes up anew")
            return
        self._say(f"{error}\n{name} on {host} is begun again")
        try:
            programs.restart_on(host)
        except TrafficError as failed:
            self._say(str(failed))  # It is looked at again, as any that has ended.

    def _is_to_be_begun(self, name: str, host: str, code: int | None) -> bool:
        """Return whether a program that has ended is begun again, and count those that have failed by themselves."""
        if code is not None and code < 0:
            return True
        now_s = time.monotonic()
        failed_s = [at_s for at_s in self._failed_s[name, host] if now_s - at_s < FAILURES_S]
        self._failed_s[name, host] = [*failed_s, now_s]
        return len(failed_s) + 1 < MOST_FAILURES
