"""Programs as jobs: how they start, end and fail, what they are told, and that their sockets use a lane."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fabric.config import checked
from fabric.errors import ConfigError, TrafficError
from fabric.model.lanes import ServiceLevel
from fabric.world import inside
from fabric.world.programs.agents import AgentPool
from tests.rows import columns_of_programs
from tests.waiting import have_ended, is_alive, until
from topologies.load import load_fabric
from traffic.job import FiniteJob, Stage
from traffic.programs.job import EndingProgramJob, ProcessArguments, ProgramConfig, ProgramJob, _Process

FABRIC = load_fabric("fire_flyer_2_tiny")
HOSTS = FABRIC.computes[:2]
SAY_TOS = (
    "import socket as s; u, t = s.socket(type=s.SOCK_DGRAM), s.socket(); six = s.socket(s.AF_INET6)\n"
    "six.bind(('::', 0)); six.listen(); t.connect(('127.0.0.1', six.getsockname()[1])); got, _ = six.accept()\n"
    "print('tos', *(sock.getsockopt(s.IPPROTO_IP, s.IP_TOS) for sock in (u, t, got)))"
)
Make = Callable[..., ProgramJob]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes jobs on this machine, without a fabric that is up, and starts them."""
    monkeypatch.setattr(inside, "RUN_DIR", tmp_path)
    pool = AgentPool(["traffic.programs.job"])
    made: list[ProgramJob] = []

    def make_job(
        command: str, level: ServiceLevel = ServiceLevel.OTHER, kind: type[ProgramJob] = ProgramJob
    ) -> ProgramJob:
        stage = Stage(FABRIC, pool, lambda _: None, seed=1, logs=tmp_path / "logs")
        job = kind(stage, ProgramConfig(command=command), HOSTS, level, "mine")
        made.append(job)
        job.start()
        return job

    yield make_job
    for job in made:
        job.close()
    pool.stop()


def output(directory: Path, host: str) -> str:
    return (directory / "logs" / "programs" / f"mine-{host}.log").read_text()


def have_said(directory: Path, words: str = "") -> Callable[[], bool]:
    """Return whether the programs of all hosts have said something, with some words in it, for :func:`until`."""
    return lambda: all(words in (said := output(directory, host.name)) and said for host in HOSTS)


def test_one_process_per_host_knows_its_number_and_the_others(make: Make, tmp_path: Path) -> None:
    job = make("sh -c 'echo $FABRIC_RANK $FABRIC_HOST of $FABRIC_HOSTS $FABRIC_ADDRESSES'")
    job.play("first")
    until(have_said(tmp_path), "what both programs say")
    assert output(tmp_path, "z0h001") == "1 z0h001 of z0h000,z0h001 10.0.0.1,10.0.0.2\n"
    until(lambda: have_ended(job), "the end of both programs")
    time.sleep(1.0)  # The thread that notes their end may have to wait for its turn.
    asked_s = time.monotonic()
    rows = job.halt().rows("operations")
    assert [(row["host"], row["operation"], row["phase"]) for row in rows] == [
        ("z0h000", "program", "first"),
        ("z0h001", "program", "first"),
    ]
    assert set(rows[0]) == set(columns_of_programs("operations"))
    assert all(row["ended_s"] < asked_s for row in rows), "when it ended, not when it was asked"


def test_a_program_that_goes_on_is_ended_with_its_window_and_all_that_it_started(make: Make, tmp_path: Path) -> None:
    job = make("sh -c 'sleep 300 & echo $!; wait'")
    job.play("p")
    until(have_said(tmp_path), "what both programs say")
    rows = job.halt().rows("operations")
    assert {row["operation"] for row in rows} == {"program_stopped"}
    for host in HOSTS:
        number = int(output(tmp_path, host.name))
        until(lambda number=number: not is_alive(number), f"the end of process {number}")  # type: ignore[misc]
    job.play("again")
    assert {row["phase"] for row in job.halt().rows("operations")} == {"again"}


def test_a_program_that_fails_is_told_with_its_last_words(make: Make) -> None:
    job = make("sh -c 'echo no such peer >&2; exit 3'")
    job.play("p")
    until(lambda: have_ended(job), "the end of both programs")
    with pytest.raises(TrafficError, match=r"z0h000: sh -c .* ended with exit code 3; it said last:\nno such peer"):
        job.halt()


def test_a_program_has_ended_though_the_thread_that_waits_for_it_is_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    watch = _Process._watch
    is_asked = threading.Event()

    def late(self: _Process, process: subprocess.Popen[bytes]) -> None:
        with process._waitpid_lock:  # type: ignore[attr-defined] # As wait() does, for as long as it waits.
            assert is_asked.wait(60)
        watch(self, process)

    monkeypatch.setattr(_Process, "_watch", late)
    process = _Process(ProcessArguments("h", ("false",), {}, tmp_path / "said", ServiceLevel.OTHER))
    process.start("p")
    assert process._process is not None
    os.waitid(os.P_PID, process._process.pid, os.WEXITED | os.WNOWAIT)
    stop = process.stop

    def stop_late() -> None:
        is_asked.set()
        stop()

    monkeypatch.setattr(process, "stop", stop_late)
    with pytest.raises(TrafficError, match="false ended with exit code 1"):
        process.end()


def test_a_program_that_is_none_is_told_without_a_traceback(make: Make) -> None:
    job = make("no-such-program --help")
    with pytest.raises(TrafficError) as failed:
        job.play("p")
    assert str(failed.value).startswith("z0h000: cannot start 'no-such-program': No such file or directory")
    assert "Traceback" not in str(failed.value)


@pytest.mark.parametrize(("level", "tos"), [(ServiceLevel.STORAGE, 32), (ServiceLevel.OTHER, 0)])
def test_its_sockets_have_the_tos_of_the_service_level(
    make: Make, tmp_path: Path, level: ServiceLevel, tos: int
) -> None:
    (tmp_path / "say.py").write_text(SAY_TOS)
    job = make(f"{sys.executable} {tmp_path}/say.py", level)
    job.play("p")
    until(have_said(tmp_path, "tos"), "what both programs say")
    until(lambda: have_ended(job), "the end of both programs")
    assert output(tmp_path, "z0h000") == f"tos {tos} {tos} {tos}\n"
    assert {row["service_level"] for row in job.halt().rows("operations")} == {level.label}


def test_without_a_compiler_a_lane_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(Exception, match="a lane for a program needs a C library of ours built: apt-get install gcc"):
        make("true", ServiceLevel.NCCL)


@pytest.mark.parametrize("command", ["", "  ", "sh -c 'unclosed"])
def test_a_command_that_is_none_is_refused(command: str) -> None:
    with pytest.raises(ConfigError, match="command"):
        checked(ProgramConfig, {"command": command}, "test")


def test_a_program_that_is_waited_for_has_ended_by_itself(make: Make, tmp_path: Path) -> None:
    job = make("sh -c 'sleep 0.3; echo done'", kind=EndingProgramJob)
    assert isinstance(job, FiniteJob)
    job.play("p")
    job.finish()
    assert {row["operation"] for row in job.halt().rows("operations")} == {"program"}
    assert job.output_of(HOSTS[1]).read_text() == "done\n"


def test_a_program_that_does_not_end_is_waited_for_only_so_long(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EndingProgramJob, "timeout_s", 0.5)
    job = make("sh -c 'echo still here; sleep 300'", kind=EndingProgramJob)
    assert isinstance(job, FiniteJob)
    job.play("p")
    with pytest.raises(TrafficError, match=r"z0h00\d: sh -c .* still runs after 0.5 s; it said last:\nstill here"):
        job.finish()
