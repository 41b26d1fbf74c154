"""Captures on stdout, without a fabric: what is refused, and that a command's capture arrives whole and it ends as it
would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from app.commands.streams import begin_streams, in_words
from experiments import RunSpec
from fabric.errors import UsageError
from fabric.world.engines import NAMESPACE, VIRTUAL
from runs.captures import require_captures
from runs.launching.spec import prepare
from tests.app.commands.streaming import NO_SFLOW, PIECE, PIECES
from tests.waiting import until
from topologies.load import load_fabric

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("streaming.py")
WHOLE = PIECE * PIECES
SMALL = load_fabric("fire_flyer_2_small")
_PATIENCE_S = 30.0


# What is refused ------------------------------------------------------------------------------------------------------


def test_a_terminal_gets_no_pcap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 1)
    with pytest.raises(UsageError, match=r"z0l00:1=-: stdout is a terminal.*\| wireshark -k -i - \(or"):
        begin_streams(["z0l00:1=-"], NO_SFLOW)


def test_stdout_has_room_for_one() -> None:
    with pytest.raises(UsageError, match=r"--capture z0l00:1=-, z0l00:2=-: stdout has room for one"):
        begin_streams(["z0l00:1=-", "z0l00:3=a.pcap", "z0l00:2=-"], NO_SFLOW)


def test_without_one_on_stdout_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process was started"))
    assert begin_streams(["z0l00:1=a.pcap", "z0l00:2=./-"], NO_SFLOW).captures == ["z0l00:1=a.pcap", "z0l00:2=./-"]


def test_from_python_there_is_no_stdout_to_have_it() -> None:
    with pytest.raises(UsageError, match="only fabric run, replay and exec can have a capture on stdout; give a file"):
        prepare(RunSpec("isolation", captures=["z0l00:1=-"], engine="virtual"), ())


def test_a_fifo_is_taken_in_real_time_only(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    require_captures(SMALL, [f"z0l00:1={fifo}"], NAMESPACE)
    with pytest.raises(UsageError, match=f"{fifo} is a FIFO, which a guest cannot write to; give a file, or - for"):
        require_captures(SMALL, [f"z0l00:1={fifo}"], VIRTUAL)


@pytest.mark.parametrize("engine", [NAMESPACE, VIRTUAL], ids=str)
@pytest.mark.parametrize(
    ("file", "words"),
    [
        (".", "is neither a file nor a FIFO"),
        ("/dev/stdout", "/dev is private to a run, and what is written there is lost"),
        ("/run/a.pcap", "/run is private to a run"),
    ],
)
def test_what_a_world_cannot_write_to_is_refused(engine: object, file: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        require_captures(SMALL, [f"z0l00:1={file}"], engine)  # type: ignore[arg-type]


def test_shared_memory_is_a_guests_host_only() -> None:
    require_captures(SMALL, ["z0l00:1=/dev/shm/a.pcap"], VIRTUAL)
    with pytest.raises(UsageError, match="/dev is private to a run"):
        require_captures(SMALL, ["z0l00:1=/dev/shm/a.pcap"], NAMESPACE)


# The words of a command -----------------------------------------------------------------------------------------------


def test_words_have_the_file_in_place_of_stdout_and_a_programs_own_stay() -> None:
    words = ["exec", "tiny", "--capture", "a:1=-", "--capture=a:1=-", "--capture", "b:1=-x", "--", "p", "a:1=-"]
    found = in_words(words, ["a:1=-", "b:1=-x"], ["a:1=/t/port.pcap", "b:1=-x"])
    assert found[2:6] == ["--capture", "a:1=/t/port.pcap", "--capture=a:1=/t/port.pcap", "--capture"]
    assert found[6:] == words[6:]


# The command and who passes its capture on ----------------------------------------------------------------------------


@contextmanager
def started(what: str, temporary: Path, stdout: int | IO[bytes] = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SCRIPT), what]
    with subprocess.Popen(
        command,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(what: str, temporary: Path) -> tuple[bytes, bytes, int]:
    with started(what, temporary) as process:
        out, err = process.communicate(timeout=_PATIENCE_S)
        return out, err, process.returncode


def words_of(process: subprocess.Popen[bytes], last: bytes) -> list[list[bytes]]:
    """Return the words of each line that a command says, up to a line."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.split())
        if line.strip() == last:
            break
    return lines


def test_the_whole_capture_arrives_all_else_is_on_stderr_and_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    out, err, code = ended("ends", tmp_path)
    assert (out == WHOLE, code) == (True, 3)
    assert err.startswith(b"command ")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_stdout_leads_to_is_whole_when_the_command_ends(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    with (tmp_path / "a.pcap").open("wb") as file, started("ends", tmp_path / "temporary", file) as process:
        assert process.wait(_PATIENCE_S) == 3
        assert (tmp_path / "a.pcap").read_bytes() == WHOLE


def test_a_command_that_a_signal_ends_is_told_as_such(tmp_path: Path) -> None:
    out, _, code = ended("is killed", tmp_path)
    assert (out == WHOLE, code) == (True, -signal.SIGUSR1)
    assert list(tmp_path.iterdir()) == []


def test_sigterm_reaches_the_command_and_its_capture_is_still_passed_on(tmp_path: Path) -> None:
    with started("waits", tmp_path) as process:
        words_of(process, b"waits")
        process.terminate()
        out, _ = process.communicate(timeout=_PATIENCE_S)
    assert (out == WHOLE, process.returncode) == (True, 5)
    assert list(tmp_path.iterdir()) == []


def test_sigkill_takes_the_command_and_the_file_with_it(tmp_path: Path) -> None:
    with started("waits", tmp_path) as process:
        (_, command, directory), *_ = words_of(process, b"waits")
        assert Path(directory.decode()).is_dir()
        process.kill()
        process.wait(_PATIENCE_S)
        until(lambda: not Path("/proc", command.decode()).exists(), "the end of the command")
        until(lambda: not list(tmp_path.iterdir()), "the end of the directory")


def test_a_reader_that_goes_is_told_and_the_command_goes_on(tmp_path: Path) -> None:
    with started("ends", tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10) == WHOLE[:10]
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(_PATIENCE_S) == 3
    assert b"capture: the reader of stdout has gone\n" in err
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_does_not_read_on_is_waited_for_until_ctrl_c(tmp_path: Path) -> None:
    """More than a pipe holds: the command has ended, its capture has not been read."""
    with started("ends", tmp_path) as process:
        assert process.stderr is not None
        _, command, _ = process.stderr.readline().split()
        until(lambda: not Path("/proc", command.decode()).exists(), "the end of the command")
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(_PATIENCE_S) == 3
        until(lambda: not list(tmp_path.iterdir()), "the end of the directory")
