"""Threads for tasks side by side, which do not keep a process whose main thread has ended."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future


class DaemonThreads:
    """As many threads as there are tasks at once, used again and again. Those of an executor of the standard library
    would be waited for as the process ends, however long a peer is silent."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._busy = 0

    def submit(self, task: Callable[[], None]) -> Future[None]:
        """Have a task done at once, by a thread that is free or a new one."""
        with self._lock:
            self._busy += 1
            if self._busy > self._threads:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name} {self._threads}", daemon=True).start()
        future: Future[None] = Future()
        self._tasks.put((future, task))
        return future

    def _work(self) -> None:
        while (one := self._tasks.get()) is not None:
            future, task = one
            try:
                task()
            except BaseException as error:
                self._is_free()
                future.set_exception(error)
            else:
                self._is_free()
                future.set_result(None)

    def _is_free(self) -> None:
        with self._lock:
            self._busy -= 1

    def close(self) -> None:
        """End the threads, each once its task has ended."""
        for _ in range(self._threads):
            self._tasks.put(None)
