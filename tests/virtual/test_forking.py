"""Guests that are forked of one that waits: what runs in them is the same as in one that boots, and nothing outlives
who keeps them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fabric.results import COST_FILE
from fabric.world import cache
from fabric.world.engines import VIRTUAL
from fabric.world.virtual import bytecode, forking
from fabric.world.virtual.guest import WAITING
from runs.launching.launcher import launch
from runs.launching.spec import RunSpec
from tests.virtual.command import ROOT, TINY
from tests.virtual.guests import below, parent_of, processes
from tests.waiting import until

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
SIZES = (
    f"topology={TINY}",
    "topology.compute=4",
    "queueings=[lossless_lanes]",
    "nccl_nodes=2",
    "hfreduce.size=256 KiB",
    "alone_time=0.05",
    "together_time=0.05",
    "background.load=0.4",
)
IN_HOSTS = 5
"""Processes of a guest in which hosts are up."""
_NOT_COMPUTED = {COST_FILE, "manifest.json"}
"""What says when a run was and what it cost."""


def played(directory: Path, seed: int) -> dict[str, bytes]:
    """Play a run of training beside storage, without loss; return what it computed, by the names of its files."""
    done = launch(RunSpec("isolation", overrides=SIZES, seed=seed, engine="virtual", directory=directory, draws=False))
    files = [path for path in done.directory.rglob("*") if path.suffix in (".parquet", ".json", ".yaml")]
    return {path.name: path.read_bytes() for path in files if path.name not in _NOT_COMPUTED}


def test_figures_are_those_of_a_guest_that_boots_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAITING, "")
    booted = [played(tmp_path / f"booted{seed}", seed) for seed in (3, 4)]
    assert len(booted[0]) > 15
    assert booted[0]["operations.parquet"] != booted[1]["operations.parquet"], "seeds are to differ"
    with VIRTUAL.several():
        for seed in (4, 3):
            forked = played(tmp_path / f"forked{seed}", seed)
            assert {name for name, content in forked.items() if content != booted[seed - 3][name]} == set()
            assert forks(os.getpid()), "none was forked"


def test_what_is_drawn_at_random_follows_the_seed_though_the_fabric_stood_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Among it ports of TCP, of which the kernel decides by its first connection how it draws them."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(WAITING, "")
    booted = {seed: drawn(seed) for seed in (1, 2)}
    assert not set(booted[1]["tcp_ports"]) & set(booted[2]["tcp_ports"])
    assert booted[1]["kernel"] != booted[2]["kernel"]
    assert booted[1]["python"] != booted[2]["python"]
    with VIRTUAL.several():
        assert [drawn(seed) for seed in (2, 1)] == [booted[2], booted[1]]


def drawn(seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.virtual.drawn", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=1200)
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def forks(keeper: int) -> bool:
    """Return whether guests with a groundwork, which a process keeps, have had others forked of them, which then took
    CPU time."""
    kept = [process for process in below(keeper) if parent_of(process) == keeper]
    with_groundwork = [process for process in below(keeper) if parent_of(process) in kept]
    words = [Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split() for process in with_groundwork]
    return any(int(values[13]) + int(values[14]) > os.sysconf("SC_CLK_TCK") for values in words)


KEEPER = """
import subprocess, sys
from fabric.world.engines import VIRTUAL
with VIRTUAL.several():
    sys.exit(subprocess.run([sys.executable, "-m", "app.cli", *sys.argv[1:]]).returncode)
"""
LOOPS = ("exec", TINY, "z0h000", "--engine", "virtual", "--", "sh", "-c", "while :; do :; done")


@pytest.mark.parametrize("killed", ["keeper", "waits", "stands", "forked", "command"])
def test_nothing_outlives_who_is_killed(tmp_path: Path, killed: str) -> None:
    environment = os.environ | {WAITING: "", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", KEEPER, *LOOPS]
    with subprocess.Popen(line, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as keeper:
        forked = until(lambda: forked_below(keeper.pid), "a guest that is forked", 300)
        until(lambda: len(below(forked)) > IN_HOSTS, "its hosts", 300)
        guests, stands = below(keeper.pid), parent_of(forked)
        numbers = {"keeper": keeper.pid, "waits": parent_of(stands), "stands": stands, "forked": forked}
        numbers["command"] = command_below(keeper.pid)
        os.kill(numbers[killed], signal.SIGKILL)
        _, err = keeper.communicate(timeout=300)
    assert keeper.returncode != 0
    assert ("the guest's kernel was killed" in err) == (killed != "command"), err
    until(lambda: not guests & processes() and not list(tmp_path.iterdir()), "the end of all")


def forked_below(keeper: int) -> int | None:
    """Return the guest of a run, once it runs programs: it was forked of one with a groundwork, and that of one that a
    process keeps."""
    guests = below(keeper)
    parents = {process: parent_of(process) for process in guests}
    with_groundwork = [one for one in guests if parents[one] in guests and parents[parents[one]] not in guests]
    return next((one for one in guests if parents[one] in with_groundwork and one in parents.values()), None)


def command_below(keeper: int) -> int:
    """Return the command that a process runs."""
    children = (int(entry.name) for entry in Path("/proc").glob("[0-9]*") if parent_of(int(entry.name)) == keeper)
    return next(child for child in children if "app.cli" in Path(f"/proc/{child}/cmdline").read_text())


def own_cache(directory: Path) -> Path:
    """Make a cache in which all is that is built, and nothing that waits; return its XDG_CACHE_HOME."""
    own = directory / cache.NAME
    own.mkdir()
    for entry in cache.own().iterdir():
        if not entry.name.startswith("warm-guests"):
            (own / entry.name).symlink_to(entry)
    return directory


@contextmanager
def keeping_warm(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Keep guests warm for the commands that have this environment, from when they do."""
    place = Path(environment["XDG_CACHE_HOME"]) / cache.NAME / "warm-guests"
    line = [sys.executable, "-m", "app.cli", "virtual", "warm"]
    with subprocess.Popen(line, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as keeper:
        try:
            until(place.exists, "guests that wait", 300)
            yield keeper
        finally:
            keeper.kill()


def test_commands_of_the_account_start_in_forks_of_guests_that_are_kept_warm(tmp_path: Path) -> None:
    """And those that play when they are to be kept no longer are let end."""
    environment = os.environ | {"XDG_CACHE_HOME": str(own_cache(tmp_path)), "PYTHONPATH": str(ROOT)}
    environment.pop(WAITING, None)
    go, started = tmp_path / "go", tmp_path / "started"
    loop = ("sh", "-c", f"echo > {started}; while [ ! -e {go} ]; do sleep 0.1; done; echo through")
    line = [sys.executable, "-m", "app.cli", "exec", TINY, "z0h000", "--engine", "virtual", "--share", str(tmp_path)]
    with keeping_warm(environment) as keeper:
        with subprocess.Popen(
            [*line, "--", *loop], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as command:
            until(started.exists, "the program", 300)
            assert forked_below(keeper.pid) and not below(command.pid), "its guest was to be forked of one that waits"
            keeper.send_signal(signal.SIGINT)
            until(lambda: not (tmp_path / cache.NAME / "warm-guests").is_symlink(), "no more to wait", 300)
            assert keeper.poll() is None and command.poll() is None
            go.touch()
            said, _ = command.communicate(timeout=300)
        assert (command.returncode, said.strip()) == (0, "through")
        _, told = keeper.communicate(timeout=300)
        assert keeper.returncode == 0, told
        assert "waiting for those that run" in told


def test_who_is_kept_warm_serves_only_the_modules_that_it_has_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(own_cache(tmp_path)), "PYTHONPATH": str(ROOT)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(WAITING, raising=False)
    with keeping_warm(environment) as keeper:
        assert "runs.launching.play" in forking.imports_of_all()
        monkeypatch.setattr(bytecode, "fingerprint", lambda: "of sources that have changed since")
        assert forking.imports_of_all() == ()
        monkeypatch.undo()
        second = subprocess.run(
            keeper.args, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert second.returncode == 1 and "keeping guests warm: another one at it has not ended" in second.stderr
