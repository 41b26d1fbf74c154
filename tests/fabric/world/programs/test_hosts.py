"""What stands before a command that runs on a host, and which commands are refused before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fabric.world import cache
from fabric.world.programs import hosts

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is provided: words only are looked at."""
    monkeypatch.setattr(hosts, "provide", lambda: Path("/enter"))


def test_a_command_starts_in_its_directory_on_its_host(tmp_path: Path) -> None:
    (tmp_path / "own.sh").write_text("#!/bin/sh\n")
    (tmp_path / "own.sh").chmod(0o755)
    assert hosts.on_host("h0", ["true", "x"], PATH, tmp_path) == ["/enter", "enter", "h0", str(tmp_path), "true", "x"]
    assert hosts.on_host("h0", ["./own.sh"], PATH, tmp_path)[4:] == ["./own.sh"]
    assert hosts.on_host("h0", ["true"], PATH)[3] == str(Path.cwd())


@pytest.mark.parametrize(
    ("command", "directory", "error", "named"),
    [
        ("no-such-program", "", FileNotFoundError, "no-such-program"),
        ("./missing", "", FileNotFoundError, "./missing"),
        ("./plain.txt", "", PermissionError, "./plain.txt"),
        ("true", "missing", FileNotFoundError, "/missing"),
    ],
)
def test_what_cannot_start_is_refused_as_without_a_host(
    tmp_path: Path, command: str, directory: str, error: type[OSError], named: str
) -> None:
    (tmp_path / "plain.txt").touch()
    with pytest.raises(error) as raised:
        hosts.on_host("h0", [command], PATH, tmp_path / directory)
    assert type(raised.value) is error
    assert str(raised.value.filename).endswith(named)


def test_speeds_are_whole_mbit_per_s_or_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "FOLDER", tmp_path)
    monkeypatch.setattr(hosts, "NICS", tmp_path / "nics")
    hosts.describe_nics([("h0", "eth0", 200 * 10**9), ("h0", "eth1", 2_500_000), ("h1", "eth0", 999_999)])
    assert (tmp_path / "nics").read_text() == "h0 eth0 200000\nh0 eth1 2\nh1 eth0 -1\n"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler: apt-get install gcc libc6-dev")
def test_what_hosts_are_furnished_with_is_built_where_there_is_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "own", lambda: tmp_path)
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        hosts.build()
    assert list(tmp_path.iterdir()) == []
    hosts.build()
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["host", "seeded_random"]
