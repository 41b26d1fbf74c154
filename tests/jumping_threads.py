"""Threads in time that jumps: one runs at a time, in an order that is always the same, and once all of them wait the
clock moves to the next deadline. Nothing but waiting takes time."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

MOST_S = 1e5


class _Task:
    def __init__(self, name: str) -> None:
        self.name = name
        self.go = threading.Event()
        self.is_waiting = self.was_woken = False
        self.waits = 0


class JumpingThreads:
    """What stands for ``threading`` and ``time`` in modules under test."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.main = self.current = _Task("the test")
        self.stuck = False
        self._ready: deque[_Task] = deque()
        self._deadlines: list[tuple[float, int, _Task, int]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.wait(self.now_s + max(0.0, seconds))

    def wait(self, until_s: float = math.inf) -> bool:
        """Let others run until this thread is woken, or a time; return whether it was woken."""
        me = self.current
        me.is_waiting, me.was_woken = True, False
        me.waits += 1
        if until_s < math.inf:
            heapq.heappush(self._deadlines, (until_s, next(self._numbers), me, me.waits))
        self._go_on(me)
        assert not (self.stuck and me is self.main), "all threads wait forever"
        return me.was_woken

    def wake(self, task: _Task) -> None:
        """Let a thread that waits go on once this one waits."""
        if task.is_waiting:
            task.is_waiting, task.was_woken = False, True
            self._ready.append(task)

    def begin(self, target: Callable[..., None], args: Sequence[Any], name: str) -> tuple[_Task, threading.Thread]:
        task = _Task(name)

        def run() -> None:
            task.go.wait()
            try:
                target(*args)
            finally:
                self.current = self._next()
                self.current.go.set()

        thread = threading.Thread(target=run, daemon=True, name=name)
        thread.start()
        self._ready.append(task)
        return task, thread

    def _go_on(self, me: _Task) -> None:
        following = self._next()
        if following is not me:
            me.go.clear()
            self.current = following
            following.go.set()
            me.go.wait()

    def _next(self) -> _Task:
        if self._ready:
            return self._ready.popleft()
        while self._deadlines:
            until_s, _, task, waits = heapq.heappop(self._deadlines)
            if task.is_waiting and task.waits == waits:
                task.is_waiting = False
                self.now_s = max(self.now_s, until_s)
                assert self.now_s < MOST_S, "it does not come to an end"
                return task
        self.stuck = True
        self.main.is_waiting = False
        return self.main


class Condition:
    """One of ``threading``'s, with a lock that may be taken again."""

    def __init__(self, threads: JumpingThreads) -> None:
        self._threads = threads
        self._owner: _Task | None = None
        self._depth = 0
        self._waiting: list[_Task] = []
        self._locked_out: deque[_Task] = deque()

    def __enter__(self) -> Condition:
        me = self._threads.current
        while self._owner not in (None, me):
            self._locked_out.append(me)
            self._threads.wait()
        self._owner = me
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            if self._locked_out:
                self._threads.wake(self._locked_out.popleft())

    def wait(self, timeout: float | None = None) -> bool:
        me, depth = self._threads.current, self._depth
        self._waiting.append(me)
        self._depth = 1
        self.__exit__()
        until_s = math.inf if timeout is None else self._threads.now_s + timeout
        was_woken = self._threads.wait(until_s)
        if me in self._waiting:
            self._waiting.remove(me)
        self.__enter__()
        self._depth = depth
        return was_woken

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until_s = math.inf if timeout is None else self._threads.now_s + timeout
        while not (found := predicate()) and self._threads.now_s < until_s:
            self.wait(None if timeout is None else until_s - self._threads.now_s)
        return found

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._threads.wake(task)


class Thread:
    """One of ``threading``'s."""

    def __init__(
        self, threads: JumpingThreads, target: Callable[..., None], args: Sequence[Any] = (), **more: Any
    ) -> None:
        self._threads, self._target, self._args, self._name = threads, target, args, str(more.get("name", ""))
        self._over = Condition(threads)
        self._has_ended = False

    def start(self) -> None:
        self._threads.begin(self._run, self._args, self._name)

    def _run(self, *args: Any) -> None:
        try:
            self._target(*args)
        finally:
            with self._over:
                self._has_ended = True
                self._over.notify_all()

    def join(self, timeout: float | None = None) -> None:
        with self._over:
            self._over.wait_for(lambda: self._has_ended, timeout)

    def is_alive(self) -> bool:
        return not self._has_ended


@contextmanager
def jumping(*modules: ModuleType) -> Iterator[JumpingThreads]:
    """Let modules have threads and time that jump."""
    threads = JumpingThreads()
    stands_for = SimpleNamespace(
        Condition=lambda: Condition(threads),
        Thread=lambda **given: Thread(threads, **given),
        get_ident=lambda: id(threads.current),
        Event=threading.Event,
    )
    clock = SimpleNamespace(monotonic=threads.monotonic, sleep=threads.sleep, time=time.time)
    with ExitStack() as patches:
        for module in modules:
            for name, value in (("threading", stands_for), ("time", clock)):
                if hasattr(module, name):
                    patches.enter_context(mock.patch.object(module, name, value))
        yield threads
