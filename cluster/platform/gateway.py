"""Where users of this machine reach a cluster that is up: a Unix socket, in a thread of the cluster's own.

It answers what concerns the cluster as a whole (``who``, ``down``), and passes all else on, over the fabric in the end.
Only its own user and root are answered: whoever may submit has programs run as that user.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cluster.platform.channel import Message
from cluster.platform.client import MOST_QUESTION_BYTES, PREFIX, peer_of
from cluster.platform.requests import DOWN, WHO
from cluster.platform.responses import COMING_UP, GOING_DOWN, RESPONSES, UP, AboutCluster, Done, Failed, Refused
from fabric.errors import EmulationError, FabricError
from fabric.world.isolation import netns

Answering = Callable[[Message], Awaitable[Message]]
_BACKLOG = 128
_STEP_S = 10.0
T = TypeVar("T")


def listening_socket() -> socket.socket:
    """Return a socket with a new name at which this user's cluster is found; nobody is answered yet."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"\0{PREFIX}{os.geteuid()}-{secrets.token_hex(4)}")
    listener.listen(_BACKLOG)
    return listener


class LoopThread:
    """A thread with an event loop, from when it is made until :meth:`close`, which cancels what is under way."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have a coroutine run in the thread; return its future, which any thread may wait for."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def enter(self, namespace: Path | None) -> None:
        """Move the thread into a host's network namespace: what it dials from now on goes out there. Raises
        EmulationError."""

        async def move() -> None:
            if namespace is not None:
                netns.enter(namespace)

        self.begin(move()).result(_STEP_S)

    def close(self) -> None:
        """End the thread. Raises EmulationError if it does not end in time."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STEP_S)
        if self._thread.is_alive():
            raise EmulationError(f"the thread {self._thread.name} has not ended within {_STEP_S:g} s")


class GatewayServer:
    """Answers questions from now on, in a thread's event loop.

    ``about``: what it says of the cluster. Until ``answering`` is set it is coming up, and answers nothing else.
    ``down``: set once a user has asked for the end; ``on_down`` is called then, too.
    """

    def __init__(
        self,
        thread: LoopThread,
        listener: socket.socket,
        about: AboutCluster,
        on_down: Callable[[], None] = lambda: None,
    ) -> None:
        self.down = threading.Event()
        self.answering: Answering | None = None
        self._about, self._on_down = about, on_down
        starting = asyncio.start_unix_server(self._serve, sock=listener, limit=MOST_QUESTION_BYTES)
        self._server = thread.begin(starting).result(_STEP_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if peer_of(writer.get_extra_info("socket")) not in (0, os.geteuid()):
                return
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):  # The user has gone, or sends what is not a question.
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Message:
        try:
            question = json.loads(line)
            kind = question["kind"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return RESPONSES.to_values(Refused(("is not a question: give an object with its kind",)))
        if kind == WHO:
            state = GOING_DOWN if self.down.is_set() else COMING_UP if self.answering is None else UP
            return RESPONSES.to_values(replace(self._about, state=state))
        if kind == DOWN:
            self.down.set()
            self._on_down()
            return RESPONSES.to_values(Done())
        if self.answering is None:
            return RESPONSES.to_values(Failed("the fabric is coming up; ask again in a moment"))
        try:
            return await self.answering(question)
        except FabricError as error:
            return RESPONSES.to_values(Failed(str(error)))
