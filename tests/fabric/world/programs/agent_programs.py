"""Programs that test_agents.py starts in hosts: what a fresh process imports, and no more."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from fabric.world.programs.agents import Agent, StopRequested


def echo(agent: Agent, greeting: Any) -> None:
    """Report the greeting and the host, then whatever is ordered."""
    agent.report((greeting, agent.host, os.getpid()))
    while True:
        agent.report(agent.receive())


def count_collectable(agent: Agent, _: None) -> None:
    """Report how many objects a full collection would visit, and how many it leaves alone."""
    agent.report((len(gc.get_objects()), gc.get_freeze_count()))


STATE = "as imported"


def say_what_is_shared(agent: Agent, _: None) -> None:
    """Report the state of this module, and how the process that programs are forked from would take SIGTERM."""
    agent.report((STATE, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, os.getppid()))


def expect_begin(agent: Agent, _: None) -> None:
    agent.expect("begin")
    agent.report("begun")


def fail(agent: Agent, words: str) -> None:
    raise ValueError(words)


def exit_with(agent: Agent, code: int) -> None:
    os._exit(code)


def end_at_once(agent: Agent, _: None) -> None:
    return


def never_listen(agent: Agent, _: None) -> None:
    agent.report("busy")
    while True:
        time.sleep(60)


def wait_briefly(agent: Agent, timeout_s: float) -> None:
    try:
        agent.receive(timeout_s)
    except TimeoutError as error:
        agent.report(str(error))


def note_the_stop(agent: Agent, path: str) -> None:
    agent.report("ready")
    try:
        agent.receive()
    except StopRequested:
        Path(path).write_text("asked to stop")
        raise


def say_how_interrupts_are_handled(agent: Agent, _: None) -> None:
    agent.report(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))


def say_interfaces(agent: Agent, _: None) -> None:
    agent.report(Path("/proc/thread-self/net/dev").read_text())


def where(agent: Agent, arguments: Any) -> None:
    """Tell of this program's thread and process and what it was given, and again for each order."""
    while True:
        agent.report((threading.get_ident(), os.getpid(), arguments))
        agent.receive()
