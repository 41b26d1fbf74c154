"""Ranks of a host, forked of one process that has imported PyTorch: ``torchrun`` would start a Python for each."""

from __future__ import annotations

import array
import atexit
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

_LAUNCHERS = ("torchrun", "accelerate", "torch.distributed.run", "torch.distributed.launch")
_WORD = 4
_FDS = 3
_IMPORTED = b"y"
_ENDED = 1
"""What a Python ends with after an error."""


def is_launcher(words: Sequence[str]) -> bool:
    """Return whether a Python with these words starts ranks by torchrun's agent."""
    return any(Path(word).name in _LAUNCHERS for word in words[1:3])


def fork_ranks() -> None:
    """Have torchrun's agent fork ranks from now on. Call it once PyTorch is there, in a process with one thread."""
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler
    from torch.distributed.launcher import api

    handler, launch = subprocess_handler.SubprocessHandler, api.launch_agent
    start = handler._popen

    def launch_agent(*arguments: Any, **named: Any) -> Any:
        """Fork the parent of ranks while this process has one thread, then go on."""
        parent = RanksParent()

        def popen(self: Any, args: Sequence[str], env: Mapping[str, str]) -> Any:
            if (words := script_words(args)) is None:
                return start(self, args, env)
            return parent.start(words, env, (self._stdout, self._stderr))

        handler._popen = popen
        return launch(*arguments, **named)

    api.launch_agent = launch_agent


def script_words(args: Sequence[str]) -> list[str] | None:
    """Return script (or ``-m`` and module) and arguments of words that start this Python; None if they start another,
    or one with options."""
    words = list(args)
    if Path(words[0]).resolve() != Path(sys.executable).resolve():
        return None
    words = words[2:] if words[1:2] == ["-u"] else words[1:]
    return words if words and (words[0] == "-m" or not words[0].startswith("-")) else None


class RanksParent:
    """The process of which ranks are forked, as its other end sees it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.fork() == 0:
            self._socket.close()
            _be_parent(theirs)
        theirs.close()

    def start(self, words: Sequence[str], env: Mapping[str, str], streams: Sequence[Any]) -> ForkedRank:
        """Fork a rank that runs a script. ``streams``: files of stdout and stderr; None for ours."""
        ends, theirs = os.pipe2(os.O_CLOEXEC)
        numbers = [own if one is None else one.fileno() for one, own in zip(streams, (1, 2), strict=True)]
        asked = json.dumps([list(words), dict(env), str(Path.cwd())]).encode()
        socket.send_fds(self._socket, [len(asked).to_bytes(_WORD, "big")], [*numbers, theirs])
        self._socket.sendall(asked)
        os.close(theirs)
        pid = int.from_bytes(_read(self._socket, _WORD), "big")
        return ForkedRank(list(words), pid, ends)


class ForkedRank:
    """A rank that was forked, with what the agent uses of ``subprocess.Popen``."""

    def __init__(self, args: list[str], pid: int, ends: int) -> None:
        self.args, self.pid, self._ends = args, pid, ends
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, once it has. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            said = os.read(self._ends, _WORD)
            os.close(self._ends)
            self.returncode = int.from_bytes(said, "big", signed=True) if said else -signal.SIGKILL
        return self.returncode

    def poll(self) -> int | None:
        """Return how it ended; None: it has not."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := sock.recv(size - len(data))):
            raise EOFError
        data += more
    return data


def _be_parent(control: socket.socket) -> NoReturn:
    """Fork ranks as asked, and say of each how it ended, until nobody can ask any more."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # The agent ends ranks, and us by its own end.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    ends: dict[int, int] = {}
    has_imported = False
    while True:
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 1 << 12)
            _tell_ends(ends)
        if control in ready:
            try:
                asked = _Asked.received(control)
            except EOFError:
                os._exit(0)
            if not has_imported:
                has_imported = True
                _import_as(control, asked)
            _start_one(control, asked, ends)


class _Asked(NamedTuple):
    """A rank that is to be started. ``files``: for its stdout, its stderr, and to say how it ended."""

    words: list[str]
    env: dict[str, str]
    directory: str
    files: tuple[int, int, int]

    @classmethod
    def received(cls, control: socket.socket) -> _Asked:
        """Return what was asked for. Raises EOFError if nobody can ask any more."""
        size, numbers, _, _ = socket.recv_fds(control, _WORD, _FDS)
        if not size:
            raise EOFError
        words, env, directory = json.loads(_read(control, int.from_bytes(size, "big")))
        out, err, told = array.array("i", numbers)
        return cls(words, env, directory, (out, err, told))


def _import_as(control: socket.socket, asked: _Asked) -> None:
    """Go on as a child that has imported what the ranks' script will, if that can be forked; as it is otherwise."""
    from traffic.torch_gpus.script_imports import forks_well, import_those_of

    said, say = os.pipe()
    if (child := os.fork()) == 0:
        os.close(said)
        os.chdir(asked.directory)
        with _OutputHeldBack() as output:
            fits = import_those_of(asked.words) and forks_well()
        if not fits:
            os._exit(0)
        output.write()
        os.write(say, _IMPORTED)
        os.close(say)
        return
    os.close(say)
    if os.read(said, 1) == _IMPORTED:
        control.close()
        for number in asked.files:
            os.close(number)
        os.waitpid(child, 0)
        os._exit(0)
    os.close(said)
    os.waitpid(child, 0)


class _OutputHeldBack:
    """Keeps what this process writes to its stdout and stderr, as a context; then that can be written."""

    def __enter__(self) -> _OutputHeldBack:
        self._kept = {number: (os.dup(number), os.memfd_create("imports")) for number in (1, 2)}
        for number, (_, file) in self._kept.items():
            os.dup2(file, number)
        return self

    def __exit__(self, *error: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, (own, _) in self._kept.items():
            os.dup2(own, number)
            os.close(own)

    def write(self) -> None:
        """Write it."""
        for number, (_, file) in self._kept.items():
            with os.fdopen(file, "rb") as text:
                text.seek(0)
                while left := text.read(1 << 16):
                    os.write(number, left)


def _start_one(control: socket.socket, asked: _Asked, ends: dict[int, int]) -> None:
    words, env, directory, (out, err, told) = asked
    # We ignore these: one that comes as soon as there is a rank is held until that does not.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    if (pid := os.fork()) == 0:
        control.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for ended in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(ended, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for number in (out, err, told, *ends.values()):
            os.close(number)
        _be_rank(words, env, directory)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ends[pid] = told
    os.close(out)
    os.close(err)
    control.sendall(pid.to_bytes(_WORD, "big"))


def _tell_ends(ends: dict[int, int]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        told = ends.pop(pid)
        os.write(told, os.waitstatus_to_exitcode(status).to_bytes(_WORD, "big", signed=True))
        os.close(told)


def _be_rank(words: list[str], env: dict[str, str], directory: str) -> NoReturn:
    """Run a script as a Python of its own would."""
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(env)
    random.seed()
    if threads := env.get("OMP_NUM_THREADS"):
        import torch

        torch.set_num_threads(int(threads))
    code: Any = 0
    try:
        _run(words)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = _ENDED
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = _ENDED
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


def _run(words: list[str]) -> None:
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], str(Path.cwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
    runpy.run_path(words[0], run_name="__main__")
