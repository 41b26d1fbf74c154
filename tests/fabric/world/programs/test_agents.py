"""Programs in hosts: how they answer, fail, are stopped and killed, and what the run is told of it."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fabric.errors import TrafficError
from fabric.world.programs.agents import AgentHandle, AgentPool, ProgramStart

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentPool]:
    monkeypatch.syspath_prepend(str(HERE))  # Where a fresh process finds agent_programs, as this one does.
    made = AgentPool()
    yield made
    made.stop(timeout_s=0)
    assert not made.handles


def start(pool: AgentPool, program: str, arguments: Any = None, namespace: Path | None = None) -> AgentHandle:
    found = getattr(importlib.import_module("agent_programs"), program)
    return pool.start("test program", "z0h000", found, arguments, namespace)


def test_a_program_reports_and_takes_orders(pool: AgentPool) -> None:
    handle = start(pool, "echo", {"a": [1, 2]})
    greeting, host, pid = handle.receive(20, "greeting")
    assert (greeting, host) == ({"a": [1, 2]}, "z0h000")
    assert pid == handle.process.pid != os.getpid()
    for order in ("x", 5, [None]):
        handle.send(order)
        assert handle.receive(20, "echo") == order


def test_a_collection_in_a_program_visits_no_object_of_the_process_it_is_forked_from(pool: AgentPool) -> None:
    visited, left_alone = start(pool, "count_collectable").receive(20, "counts")
    assert visited < 5000 < left_alone


def test_a_program_that_raises_is_told_with_its_words(pool: AgentPool) -> None:
    handle = start(pool, "fail", "the disk is on fire")
    with pytest.raises(TrafficError) as told:
        handle.receive(20, "report that it is ready")
    first, *_, last = str(told.value).rstrip().splitlines()
    assert first == "test program on z0h000: failed before report that it is ready:"
    assert last == "ValueError: the disk is on fire"
    assert "in fail\n    raise ValueError(words)\n" in str(told.value)
    handle.process.join(60)
    assert handle.process.exitcode == 1


def test_a_program_that_vanishes_is_told_with_its_exit_code(pool: AgentPool) -> None:
    with pytest.raises(TrafficError) as told:
        start(pool, "exit_with", 17).receive(20, "greeting")
    assert str(told.value) == "test program on z0h000: ended with 17 before greeting"


def test_a_program_that_ends_too_early_is_told(pool: AgentPool) -> None:
    with pytest.raises(TrafficError) as told:
        start(pool, "end_at_once").receive(20, "rows")
    assert str(told.value) == "test program on z0h000: ended with 0 before rows"


def test_a_program_that_does_not_answer_is_told_with_what_was_waited_for(pool: AgentPool) -> None:
    handle = start(pool, "never_listen")
    assert handle.receive(20, "report that it runs") == "busy"
    with pytest.raises(TrafficError) as told:
        handle.receive(0.05, "rows")
    assert str(told.value) == "test program on z0h000: no rows within 0.05 s"


def test_an_order_to_a_program_that_has_gone_is_told(pool: AgentPool) -> None:
    handle = start(pool, "end_at_once")
    handle.process.join(60)
    with pytest.raises(TrafficError) as told:
        handle.send("work")
    assert str(told.value) == "test program on z0h000: has gone (exit code 0)"


def test_an_order_to_a_program_that_failed_is_told_with_its_words(pool: AgentPool) -> None:
    handle = start(pool, "fail", "the disk is on fire")
    handle.process.join(60)
    with pytest.raises(TrafficError) as told:
        handle.send("work")
    first, *_, last = str(told.value).rstrip().splitlines()
    assert first == "test program on z0h000: has gone (exit code 1):"
    assert last == "ValueError: the disk is on fire"


def test_a_program_waits_for_orders_no_longer_than_it_wants(pool: AgentPool) -> None:
    assert start(pool, "wait_briefly", 0.05).receive(20, "its error") == "z0h000: no order from the run within 0.05 s"


def test_a_program_asked_to_stop_sees_it_and_ends_well(pool: AgentPool, tmp_path: Path) -> None:
    handle = start(pool, "note_the_stop", str(tmp_path / "note"))
    handle.receive(20, "report that it is ready")
    process = handle.process
    pool.stop([handle], timeout_s=60)
    assert (tmp_path / "note").read_text() == "asked to stop"
    assert process.exitcode == 0
    assert pool.handles == []


def test_a_program_whose_run_has_gone_is_asked_to_stop(pool: AgentPool, tmp_path: Path) -> None:
    handle = start(pool, "note_the_stop", str(tmp_path / "note"))
    handle.receive(20, "report that it is ready")
    handle.pipe.close()
    handle.process.join(60)
    assert (tmp_path / "note").read_text() == "asked to stop"
    assert handle.process.exitcode == 0


def test_a_program_that_does_not_listen_is_killed_in_time(pool: AgentPool) -> None:
    handles = [start(pool, "never_listen") for _ in range(2)]
    for handle in handles:
        handle.receive(20, "report that it runs")
    started = time.monotonic()
    pool.stop(timeout_s=0.1)
    assert time.monotonic() - started < 30
    assert [handle.process.exitcode for handle in handles] == [-signal.SIGKILL] * 2


def test_a_killed_program_is_dead_at_once_and_can_be_killed_again(pool: AgentPool) -> None:
    handle = start(pool, "never_listen")
    handle.receive(20, "report that it runs")
    handle.kill()
    handle.kill()
    assert handle.process.exitcode == -signal.SIGKILL
    with pytest.raises(TrafficError) as told:
        handle.receive(20, "rows")
    assert str(told.value) == "test program on z0h000: ended with -9 before rows"


def _gone(pool: AgentPool) -> AgentHandle:
    """Return a program that has ended and been reaped, of which its handle does not know yet."""
    handle = start(pool, "echo")
    _, _, pid = handle.receive(20, "greeting")
    handle.pipe.send(None)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the program did not end"
        time.sleep(0.005)
    return handle


def test_a_program_that_ends_while_it_is_being_killed_is_no_fault(
    pool: AgentPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = _gone(pool)
    with monkeypatch.context() as patched:
        patched.setattr(handle.process, "is_alive", lambda: True)  # As it was a moment ago.
        handle.kill()
    assert handle.process.exitcode == 0


def test_a_signal_reaches_a_program_and_one_that_has_gone_is_named(pool: AgentPool) -> None:
    handle = start(pool, "never_listen")
    handle.receive(20, "report that it runs")
    handle.send_signal(signal.SIGTERM)
    handle.process.join(60)
    assert handle.process.exitcode == -signal.SIGTERM
    with pytest.raises(TrafficError) as told:
        _gone(pool).send_signal(signal.SIGSTOP)
    assert str(told.value) == "test program on z0h000: has gone (exit code 0) before SIGSTOP"


def test_programs_that_were_stopped_already_are_left_alone(pool: AgentPool) -> None:
    handles = [start(pool, "echo") for _ in range(2)]
    pool.stop(handles[:1], timeout_s=60)
    pool.stop(handles, timeout_s=60)
    assert pool.handles == []


def test_an_order_or_a_message_that_is_not_the_expected_one_is_shown(pool: AgentPool) -> None:
    handle = start(pool, "expect_begin")
    handle.send("end")
    with pytest.raises(TrafficError, match="TrafficError: z0h000: expected the order 'begin', got 'end'"):
        handle.receive(20, "answer")
    handle = start(pool, "echo", "x" * 1000)
    with pytest.raises(TrafficError, match=r"test program on z0h000: expected int, got \('xxx.*x\.\.\.$") as told:
        handle.receive_a(int, 20, "number")
    assert len(str(told.value)) < 300
    handle.send(5)
    assert handle.receive_a(int, 20, "number") == 5


def test_stopping_some_programs_leaves_the_others(pool: AgentPool) -> None:
    first, second = start(pool, "echo"), start(pool, "echo")
    for handle in (first, second):
        handle.receive(20, "greeting")
    pool.stop([first], timeout_s=60)
    second.send("still there?")
    assert second.receive(20, "echo") == "still there?"
    assert pool.handles == [second]


def test_interrupts_are_left_to_the_run(pool: AgentPool) -> None:
    assert start(pool, "say_how_interrupts_are_handled").receive(20, "answer") is True


def output_of(*arguments: str) -> list[str]:
    """Return the lines that a Python of its own prints; it may not complain."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{HERE}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_programs_do_not_run_the_callers_script_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from fabric.world.programs.agents import AgentPool\n"
        "from agent_programs import echo\n"
        "print('script runs as', __name__)\n"
        "pool = AgentPool()\n"
        "handles = [pool.start('p', 'h', echo, number, None) for number in range(2)]\n"
        "print([handle.receive(20, 'greeting')[0] for handle in handles])\n"
        "pool.stop()\n"
        "print('then', __name__)\n"
    )
    assert output_of(str(script)) == ["script runs as __main__", "[0, 1]", "then __main__"]


def run_script(*lines: str) -> list[str]:
    """Run lines of Python; return what they print."""
    return output_of("-c", "\n".join(lines))


FORKED = (
    "import os, select, signal, threading",
    "import agent_programs",
    "from fabric.world.programs.agents import AgentPool, fork_server",
    "from agent_programs import say_what_is_shared",
    "signal.signal(signal.SIGTERM, lambda number, frame: None)",
    "agent_programs.STATE = 'as it was left'",
    "reader, writer = os.pipe()",
)
"""A process with a state, a handler and an open file."""


def test_a_forked_server_has_what_its_process_imported_and_none_of_its_handlers_and_files() -> None:
    state, default, ended = run_script(
        *FORKED,
        "fork_server()",
        "agent_programs.STATE = 'as it is now'",
        "pool = AgentPool()",
        "state, default, server = pool.start('p', 'h', say_what_is_shared, None, None).receive(20, 'answer')",
        "print(state, default, sep='\\n')",
        "os.close(writer)",
        "print(select.select([reader], [], [], 20)[0] == [reader])",
        "pool.stop()",
    )
    assert (state, default, ended) == ("as it was left", "True", "True")


def test_a_server_that_is_started_knows_nothing_of_its_process() -> None:
    (answer,) = run_script(
        *FORKED,
        "pool = AgentPool()",
        "print(pool.start('p', 'h', say_what_is_shared, None, None).receive(20, 'answer')[:2])",
        "pool.stop()",
    )
    assert answer == "('as imported', True)"


def test_a_forked_server_ends_with_its_process() -> None:
    (server,) = run_script(
        *FORKED,
        "fork_server()",
        "pool = AgentPool()",
        "print(pool.start('p', 'h', say_what_is_shared, None, None).receive(20, 'answer')[2])",
        "pool.stop()",
    )
    deadline = time.monotonic() + 20
    while Path("/proc", server).exists():
        assert time.monotonic() < deadline, f"the fork server, process {server}, goes on"
        time.sleep(0.01)


def test_a_process_with_threads_is_not_copied() -> None:
    (refused,) = run_script(
        *FORKED,
        "thread = threading.Thread(target=os.read, args=(reader, 1))",
        "thread.start()",
        "try: fork_server()",
        "except RuntimeError as error: print(error)",
        "os.write(writer, b'x')",
        "thread.join()",
    )
    assert refused.startswith("the fork server is to be a copy of this process, which has threads: [")


@contextmanager
def network_with(interface: str) -> Iterator[Path]:
    """A network namespace with an interface of that name."""
    words = f"ip link add {interface} type veth peer name there; echo; read _"
    host = subprocess.Popen(["unshare", "--net", "sh", "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert host.stdout is not None
    host.stdout.readline()
    yield Path(f"/proc/{host.pid}/ns/net")
    host.communicate(b"\n", timeout=60)


@pytest.mark.root
def test_a_program_runs_in_the_network_of_its_host(pool: AgentPool) -> None:
    with network_with("only_here") as namespace:
        seen = start(pool, "say_interfaces", namespace=namespace).receive(20, "interfaces")
    assert "only_here:" in seen


@pytest.mark.root
def test_programs_of_one_process_are_each_in_the_network_of_their_host(pool: AgentPool) -> None:
    with network_with("first") as one, network_with("second") as other:
        handles = pool.start_together(together("say_interfaces", "say_interfaces", namespaces=[one, other]))
        first, second = (handle.receive(20, "interfaces") for handle in handles)
    assert ("first:" in first, "second:" in first) == (True, False)
    assert ("first:" in second, "second:" in second) == (False, True)


@pytest.mark.root
def test_a_host_that_cannot_be_entered_is_told(pool: AgentPool, tmp_path: Path) -> None:
    with pytest.raises(TrafficError) as told:
        start(pool, "echo", namespace=tmp_path / "none").receive(20, "greeting")
    assert (
        str(told.value).rstrip().endswith(f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/none'")
    )


def together(*programs: str, namespaces: Sequence[Path | None] = ()) -> list[ProgramStart]:
    found = importlib.import_module("agent_programs")
    places = namespaces or [None] * len(programs)
    return [
        ProgramStart(f"program {number}", f"z0h00{number}", getattr(found, program), str(number), place)
        for number, (program, place) in enumerate(zip(programs, places, strict=True))
    ]


def test_programs_of_one_process_are_told_and_answer_apart(pool: AgentPool) -> None:
    handles = pool.start_together(together("where", "where", "where"))
    told = [handle.receive(20, "where it is") for handle in handles]
    assert [number for _, _, number in told] == ["0", "1", "2"]
    assert {pid for _, pid, _ in told} == {handles[0].process.pid}
    assert len({thread for thread, _, _ in told}) == 3
    handles[1].send("again")
    assert handles[1].receive(20, "answer") == told[1]
    assert not handles[0].pipe.poll()
    pool.stop(handles, timeout_s=20)
    assert handles[0].process.exitcode == 0


def test_one_that_fails_is_told_with_its_words_and_the_others_of_its_process_go_on(pool: AgentPool) -> None:
    whole, failing = pool.start_together(together("where", "fail"))
    with pytest.raises(TrafficError, match=r"program 1 on z0h001: failed before its report:\n(?s:.*)ValueError: 1"):
        failing.receive(20, "its report")
    with pytest.raises(TrafficError, match=r"program 1 on z0h001: ended before rows:\n(?s:.*)ValueError: 1"):
        failing.receive(20, "rows")
    for _ in range(2):
        assert whole.receive(20, "where it is")[2] == "0"
        whole.send("again")
    whole.stop()
    whole.process.join(20)
    assert whole.process.exitcode == 1


def test_more_programs_than_one_process_takes_are_refused(pool: AgentPool) -> None:
    with pytest.raises(TrafficError, match="201 programs in one process; at most 200"):
        pool.start_together(together("where") * 201)
