"""Worlds: who may make one, and what is done in one only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabric.emulation.openvswitch import tool
from fabric.errors import EmulationError, UsageError
from fabric.world import inside, virtual_time
from fabric.world.engine import Front, Guest
from fabric.world.engines import NAMESPACE, VIRTUAL
from fabric.world.isolation import processes
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.virtual import bytecode, kernel
from fabric.world.virtual.guest import WAITING, Channels, GuestMachine, Start, Surroundings
from fabric.world.virtual.kernel import KernelPaths

ROOT = Path(__file__).parents[3]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], dict[str, str]]]:
    """What this process would have been replaced by."""
    found: list[tuple[str, list[str], dict[str, str]]] = []

    def execve(path: str, command: list[str], environment: dict[str, str]) -> None:
        found.append((path, command, environment))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    return found


def test_a_run_whose_sudo_is_killed_before_it_can_be_watched_ends(
    monkeypatch: pytest.MonkeyPatch, replaced: list[object], tmp_path: Path
) -> None:
    sudo = tmp_path / "sudo"
    shutil.copy("/bin/sleep", sudo)
    parent = subprocess.Popen([str(sudo), "60"])
    while Path(f"/proc/{parent.pid}/comm").read_text() != "sudo\n":  # Popen() returns a moment before it has its name.
        time.sleep(0.001)
    seen = iter([parent.pid, 1])  # A process without a parent is given to the first.
    monkeypatch.setattr(os, "getppid", lambda: next(seen))
    monkeypatch.setattr(processes._libc, "prctl", lambda *_: 0)
    try:
        with pytest.raises(SystemExit) as ended:
            NAMESPACE.enter(["list"], Guest(1), Front())
    finally:
        parent.kill()
        parent.wait(60)
    assert ended.value.code == 128 + 9
    assert replaced == []


@pytest.mark.parametrize(
    ("built", "otherwise"),
    [(True, "--engine virtual"), (False, "fabric virtual build (once), then --engine virtual")],
)
def test_a_world_needs_root_and_says_what_does_not(
    monkeypatch: pytest.MonkeyPatch, replaced: list[object], built: bool, otherwise: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(kernel, "find", lambda: KernelPaths(Path("/kernels/linux-6.1")) if built else None)
    with pytest.raises(UsageError) as refused:
        NAMESPACE.enter(["run", "isolation"], Guest(1), Front())
    needs = "real time needs root to make network namespaces: run it again with sudo"
    assert str(refused.value) == f"{needs}, or without root in virtual time: {otherwise}"
    assert replaced == []


def test_a_world_needs_unshare(monkeypatch: pytest.MonkeyPatch, replaced: list[object]) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(EmulationError) as refused:
        NAMESPACE.enter([], Guest(1), Front())
    assert str(refused.value) == "unshare is not installed; apt-get install util-linux"
    assert replaced == []


def test_a_run_goes_on_with_the_same_arguments_in_namespaces_that_end_with_it(
    replaced: list[tuple[str, list[str], dict[str, str]]],
) -> None:
    with pytest.raises(SystemExit):
        NAMESPACE.enter(["python3", "-m", "some.module", "a b", "--", "ls", "-l"], Guest(1), Front())
    ((path, command, environment),) = replaced
    flags = command[1 : command.index("python3")]
    assert path == command[0] == "/usr/bin/unshare"
    assert {"--net", "--mount", "--pid", "--fork", "--kill-child"} <= set(flags)
    assert command[len(flags) + 1 :] == ["python3", "-m", "some.module", "a b", "--", "ls", "-l"]
    assert environment["FABRIC_WORLD"] == "1"


def test_a_world_is_not_set_up_in_the_machines_own_network() -> None:
    assert not inside.is_inside()
    with pytest.raises(EmulationError) as refused:
        inside.set_up()
    assert str(refused.value) == "set_up() outside of a run's own namespaces or guest; an engine's enter() makes them"


def test_the_variable_alone_makes_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABRIC_WORLD", "1")
    assert not inside.is_inside()


def test_a_sysctl_that_this_kernel_does_not_have_is_no_error() -> None:
    assert write_sysctl("net/ipv4/no_such_thing", 1) is False


def test_a_missing_program_of_open_vswitch_is_told_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(EmulationError) as refused:
        tool("ovs-vsctl")
    assert str(refused.value) == "ovs-vsctl is not installed; apt-get install openvswitch-switch"


INSIDE = """
import json, os
from pathlib import Path
from fabric.world import inside
from fabric.world.kernel_api import netlink
inside.set_up()
inside.name_hosts([("10.0.0.1", "z0h000"), ("10.1.0.1", "z0h000")])
(Path("/run") / "only_here").touch()
with netlink.Netlink() as link:
    interfaces = sorted(link.link_counters())
print(json.dumps({
    "pid": os.getpid(),
    "interfaces": interfaces,
    "sys": sorted(path.name for path in Path("/sys/class/net").iterdir()),
    "run": sorted(path.name for path in Path("/run").iterdir()),
    "ipv6": Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").read_text().strip(),
    "hosts": Path("/etc/hosts").read_text(),
}))
"""


@pytest.mark.root
def test_a_world_has_a_network_processes_and_files_of_its_own() -> None:
    hosts = Path("/etc/hosts").read_text() if Path("/etc/hosts").exists() else None
    flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        ["unshare", *flags, sys.executable, "-c", INSIDE],
        env=os.environ | {"FABRIC_WORLD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["pid"] == 1
    assert seen["interfaces"] == seen["sys"] == ["lo"]
    assert seen["run"] == ["fabric", "only_here"]
    assert seen["ipv6"] in ("1", None)
    if hosts is not None:
        ours = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", "10.0.0.1 z0h000", "10.1.0.1 z0h000"]
        assert seen["hosts"].splitlines() == ours
        assert Path("/etc/hosts").read_text() == hosts
    assert not Path("/run/only_here").exists()


PLAYING = ("/usr/bin/python3", "-m", "some.module")


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What a guest would have been run with."""
    found: dict[str, Any] = {}

    def run_in_guest(
        argv: list[str], machine: GuestMachine, surroundings: Surroundings, channels: Channels, start: Start
    ) -> int:
        found.update(vars(surroundings), argv=argv)
        return 3

    monkeypatch.setattr(virtual_time, "run_in_guest", run_in_guest)
    monkeypatch.setattr(bytecode, "prepare", lambda tell: Path("/compiled"))
    built = tmp_path / "linux-6.12-abcdef01-0123456789ab"
    built.mkdir()
    (built / "kernel.json").write_text('{"release": "6.12.9"}')
    monkeypatch.setattr(kernel, "require", lambda: kernel.KernelPaths(built))
    return found


def test_our_programs_in_a_guest_have_an_environment_that_is_the_same_for_everybody(
    guest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/opt/tools:/usr/bin:/sbin")
    seen = []
    for home, more in (("/home/one", "x"), ("/home/another", "y" * 1000)):
        monkeypatch.setenv("HOME", home)
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", home)
        monkeypatch.setenv("MORE", more)
        with pytest.raises(SystemExit) as ended:
            VIRTUAL.enter([*PLAYING, "path"], Guest(7), Front())
        assert ended.value.code == 3
        environment = guest["environment"] | {"FABRIC_STARTED_AT": ""}
        seen.append((environment, guest["bytecode"], list(guest["handed"])))
    assert seen[0] == seen[1]
    assert seen[0][0]["PATH"] == "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin:/opt/tools"
    assert {"HOME": "/tmp", "FABRIC_WORLD": "1"}.items() <= seen[0][0].items()


def test_guests_of_several_commands_import_the_same_unless_they_cannot_be_forked(
    guest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WAITING, raising=False)

    def imported(front: Front) -> list[str]:
        with pytest.raises(SystemExit):
            VIRTUAL.enter([*PLAYING, "exec"], Guest(7), front)
        assert guest["argv"][1:3] == ["-m", "fabric.world.virtual.starting"]
        return list(guest["argv"][3:])

    own = Front(imports=("json",))
    assert imported(own) == ["json"]
    with VIRTUAL.several():
        assert imported(own) == ["json"]
    with VIRTUAL.several(("pathlib", "csv")):
        assert imported(own) == ["pathlib", "csv"]
        assert imported(replace(own, ask=lambda: None)) == ["json"], "one with a prompt boots"
    assert imported(own) == ["json"]


def test_the_users_programs_in_a_guest_have_the_users_environment_with_what_is_other_there(
    guest: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", "/home/one")
    monkeypatch.setenv("MORE", "a=b\nc")
    with pytest.raises(SystemExit):
        VIRTUAL.enter([*PLAYING, "exec"], Guest(7), Front())
    for name, content in guest["handed"].items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(virtual_time, "CONTROL", tmp_path)
    found = VIRTUAL.users_environment()
    assert {"HOME": "/home/one", "MORE": "a=b\nc", "PYTHONHASHSEED": "7", "FABRIC_WORLD": "1"}.items() <= found.items()
    assert found["TMPDIR"] == str(inside.TEMPORARY_DIR)
    assert VIRTUAL.repeatable_with() == {
        "guest_kernel": "6.12.9",
        "guest_kernel_changes": kernel.fingerprint(),
        "guest_memory": "4096 MiB",
        "software": bytecode.fingerprint(),
    }


def test_in_real_time_the_environment_is_the_users_and_nothing_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORE", "x")
    assert NAMESPACE.users_environment() == dict(os.environ)
    assert NAMESPACE.repeatable_with() is None
