from __future__ import annotations

import io
import os
import signal
from pathlib import Path

import pytest

from fabric.errors import EmulationError, UsageError
from fabric.world.virtual import guest
from fabric.world.virtual.kernel import KernelPaths


def test_only_directories_that_the_guest_hides_are_kept_and_none_twice() -> None:
    paths = [Path("/tmp/results/a"), Path("/usr/bin"), Path("/tmp/results"), Path("/dev/shm/x")]
    assert guest.directories_to_keep(paths) == (Path("/tmp/results"), Path("/dev/shm/x"))


def test_what_the_guest_needs_for_itself_cannot_be_kept() -> None:
    with pytest.raises(UsageError, match="/run is the guest's own"):
        guest.directories_to_keep([Path("/run")])


def test_the_job_is_a_row_of_strings_with_counted_lists() -> None:
    job = guest._Job(("/bin/echo", "a b", ""), Path("/work"), (Path("/tmp/x"),), {"A": "1"}, seed=7)
    fields = job.encoded().split(b"\0")
    expected = [b"12000", b"7", b"/work", b"1", b"/tmp/x", b"3", b"/bin/echo", b"a b", b"", b"1", b"A=1", b""]
    assert fields[1:] == expected


def test_an_argument_that_cannot_be_passed_on_is_refused() -> None:
    job = guest._Job(("/bin/echo", "a\0b"), Path("/"), (), {}, seed=0)
    with pytest.raises(UsageError, match="NUL"):
        job.encoded()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "fix_range_common: failed, killing current process: 25"),
        (
            signal.SIGSEGV,
            "UML ran out of memory on the host side! ... or vm.max_map_count has been reached.",
        ),
    ],
    ids=["6.1", "6.12"],
)
def test_a_program_whose_memory_the_host_will_not_map_is_told_so_by_each_kernel(
    tmp_path: Path, number: signal.Signals, said: str
) -> None:
    (tmp_path / "status").write_text(f"exit {128 + number}\n")
    (tmp_path / "console").write_text("")
    assert guest._exit_code(tmp_path, 0, 1 << 30) == 128 + number
    (tmp_path / "console").write_text(said)
    with pytest.raises(EmulationError, match=r"needed more mappings than this host allows.*sysctl vm\.max_map_count"):
        guest._exit_code(tmp_path, 0, 1 << 30)


def test_a_program_that_fails_once_another_was_killed_for_want_of_mappings_is_told_so(tmp_path: Path) -> None:
    """As a run whose switches' process was."""
    console, said = tmp_path / "console", io.BytesIO()
    console.write_text("")
    guest._tell_of_others(tmp_path, 1, said)
    console.write_text("fix_range_common: failed, killing current process: 25")
    guest._tell_of_others(tmp_path, 0, said)
    assert said.getvalue() == b""
    guest._tell_of_others(tmp_path, 1, said)
    assert b"needed more mappings than this host allows; raise it: sudo sysctl vm.max_map_count" in said.getvalue()


def test_a_guest_that_is_ended_left_word_of_the_hosts_with_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guest._with_hosts(tmp_path, "not done") == "not done"
    monkeypatch.setattr(guest, "CONTROL", tmp_path)
    guest.leave_hosts("z0h000, z0h002")
    assert guest._with_hosts(tmp_path, "not done") == "not done; programs still run on z0h000, z0h002"
    guest.leave_hosts("")
    assert guest._with_hosts(tmp_path, "not done") == "not done"


def test_the_same_seed_gives_the_same_command_line_whatever_the_run() -> None:
    command = guest.kernel_command(KernelPaths(Path("/cache/k 1")), 1 << 30, ["loglevel=7"])
    assert {"mem=1048576K", "time-travel=inf-cpu", "time-travel-start=1700000000000000000", "loglevel=7"} <= set(
        command
    )
    assert command[0] == "/cache/k 1/linux"
    assert not any("/cache" in word for word in command[1:]), "a kernel's random numbers are drawn by its command line"
    assert not any("fabric-guest" in part for part in command)


def test_programs_of_the_system_are_on_the_path_of_an_ordinary_user() -> None:
    environment = guest.guest_environment(
        {"PATH": "/opt/x:/usr/bin", "XDG_RUNTIME_DIR": "/run/user/1", "HOME": "/h", guest.WAITING: "/tmp/w"}, 3
    )
    assert environment["PATH"].split(":")[:4] == ["/opt/x", "/usr/bin", "/usr/local/sbin", "/usr/sbin"]
    assert environment["PYTHONHASHSEED"] == "3"
    assert not {"XDG_RUNTIME_DIR", guest.WAITING} & environment.keys(), "what is another one in each run"


def test_a_place_for_the_memory_is_looked_for_and_what_was_found_is_said(tmp_path: Path) -> None:
    assert guest.memory_directory(1, [tmp_path / "none", tmp_path]) == tmp_path
    with pytest.raises(EmulationError, match="GiB free; make room, set TMPDIR or give the guest less memory"):
        guest.memory_directory(1 << 60, [tmp_path])


def test_a_place_that_cannot_be_written_to_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/shm of a bare root file system is a directory of root's."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    assert guest.memory_directory(1, [tmp_path, other]) == other
    with pytest.raises(EmulationError, match=f"{tmp_path} cannot be written to"):
        guest.memory_directory(1, [tmp_path])


@pytest.mark.parametrize(
    ("console", "code", "reason"),
    [
        ("Kernel panic - not syncing: Out of memory: system-wide", -6, "ran out of its 2.0 GiB"),
        ("Kernel panic - not syncing: Attempted to kill init!", -6, "panicked: Attempted to kill init!"),
        ("UML ran out of memory on the host side! vm.max_map_count has been reached", 1, "sysctl vm.max_map_count"),
        ("", -signal.SIGBUS, "the host has no room left"),
        ("", -signal.SIGKILL, "was killed"),
        ("some last words", 1, "some last words"),
    ],
)
def test_a_dead_guest_is_explained(console: str, code: int, reason: str) -> None:
    assert reason in guest.explain_failure(console, code, 2 << 30)


def test_a_program_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="no-such-program: not found"):
        guest.run_in_guest(["no-such-program"], guest.GuestMachine(0, kernel=KernelPaths(Path("/none"))))


def test_of_a_commands_words_the_directories_are_kept_that_the_guest_would_hide(tmp_path: Path) -> None:
    """tmp_path is below /tmp, unless somebody has pytest put it elsewhere."""
    if not tmp_path.is_relative_to("/tmp"):
        pytest.skip("tmp_path is not below /tmp")
    script, data = tmp_path / "job.py", tmp_path / "data"
    script.touch()
    data.mkdir()
    named = guest.directories_named
    assert named(["python3", str(script)]) == (tmp_path,)
    assert named([f"z0h000=python3 {script} --out={data}/new", f"z0l00:1={tmp_path}/a.pcap"]) == (tmp_path, data)
    assert named(["cat", "/tmp/no-such-directory/file", "/dev/null", "/run/x", "/usr/bin/env", f"/a{tmp_path}/x"]) == ()
    assert named(["ls", "/tmp", "/tmpfile", "x/tmp/y"]) == (Path("/tmp"),)
