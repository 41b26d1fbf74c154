"""What a machine can do: each thing that is missing has a remedy, and only what is needed stops experiments."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.commands import doctor
from experiments.commands.doctor import Diagnosis, can_run, examine
from fabric.world import modules
from fabric.world.datapath import Datapath

GOOD = Diagnosis("root", True, True, "running as root")


def finding(needed: bool, good: bool) -> Diagnosis:
    return Diagnosis("x", good, needed, "detail", "" if good else "apt-get install x")


@pytest.mark.parametrize(
    ("findings", "ready"),
    [
        ([], True),
        ([finding(True, True), finding(False, True)], True),
        ([finding(True, True), finding(False, False)], True),
        ([finding(True, False), finding(False, True)], False),
    ],
)
def test_experiments_can_run_if_all_that_is_needed_is_good(findings: list[Diagnosis], ready: bool) -> None:
    assert can_run(findings) is ready


def found(look: Callable[[], Iterator[Diagnosis]]) -> dict[str, Diagnosis]:
    return {one.subject: one for one in look()}


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(doctor, "SCHEMA", tmp_path / "none")


def test_a_missing_program_is_told_with_the_package_that_has_it(nothing_installed: None) -> None:
    findings = found(doctor._programs)
    assert findings["ovs-vswitchd"] == Diagnosis(
        "ovs-vswitchd", False, True, "not installed", "apt-get install openvswitch-switch"
    )
    assert findings["mnexec"].remedy == "apt-get install mininet"
    assert not any(one.good for one in findings.values())
    assert all(one.remedy.startswith("apt-get install ") for one in findings.values())


def test_programs_that_only_some_commands_use_are_not_needed(nothing_installed: None) -> None:
    assert {one.subject for one in found(doctor._programs).values() if not one.needed} == {"tcpdump", "iperf3"}


@pytest.mark.parametrize(("user", "good", "remedy"), [(0, True, ""), (1000, False, "sudo fabric ...")])
def test_root_is_needed(monkeypatch: pytest.MonkeyPatch, user: int, good: bool, remedy: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    (one,) = doctor._root()
    assert (one.good, one.needed, one.remedy) == (good, True, remedy)


def test_namespaces_that_do_not_work_are_told_with_the_kernels_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "_try_in_namespaces", lambda _: ("unshare failed: Operation not permitted", False))
    (one,) = doctor._namespaces()
    assert (one.good, one.needed, one.detail) == (False, True, "unshare failed: Operation not permitted")
    assert one.remedy == "run on a kernel with CONFIG_NET_NS, CONFIG_VETH and CONFIG_NET_SCH_HTB"


@pytest.mark.root
def test_a_script_is_tried_in_namespaces_of_its_own() -> None:
    assert doctor._try_in_namespaces("ip link add d0 type veth peer name d1") == ("tried, they work", True)
    assert doctor._try_in_namespaces("echo no such thing >&2; exit 1") == ("no such thing", False)
    assert not Path("/sys/class/net/d0").exists()


@pytest.mark.parametrize(
    ("datapath", "detail"),
    [
        (Datapath.KERNEL, "kernel module openvswitch"),
        (Datapath.USERSPACE, "userspace: no kernel module here; about 1 Gbit/s in total"),
    ],
)
def test_either_datapath_will_do(monkeypatch: pytest.MonkeyPatch, datapath: Datapath, detail: str) -> None:
    monkeypatch.setattr(doctor, "find_datapath", lambda: datapath)
    (one,) = doctor._datapath()
    assert (one.good, one.detail) == (True, detail)


def test_looking_for_a_datapath_that_loads_its_module_says_that_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([frozenset({"veth"}), frozenset({"veth", "openvswitch", "nsh"})])
    monkeypatch.setattr(modules, "loaded", lambda: next(seen))
    monkeypatch.setattr(doctor, "find_datapath", lambda: Datapath.KERNEL)
    (one,) = doctor._datapath()
    assert one.detail == "kernel module openvswitch; loaded just now, it stays until modprobe -r openvswitch"


def test_a_cache_that_others_can_write_to_stops_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (one,) = doctor._cache()
    assert (one.good, one.needed) == (True, True)
    tmp_path.chmod(0o777)
    (one,) = doctor._cache()
    assert (one.good, one.needed) == (False, True)
    assert "can be written to by every account" in one.detail
    assert one.remedy == "unset XDG_CACHE_HOME, or run sudo without -E"
    assert "can be written to by every account" in found(doctor._lossless)["lossless queueing, virtual engine"].detail


def test_few_cores_and_little_memory_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[Any, int] = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**18}
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert list(doctor._resources()) == [
        Diagnosis("cores", False, False, "1", "results need 2 cores or lower rates"),
        Diagnosis("memory", False, False, "1.0 GiB", "2 GiB are wanted"),
    ]


def test_whatever_is_not_good_on_this_machine_has_a_remedy() -> None:
    findings = examine()
    assert len({one.subject for one in findings}) == len(findings) > 10
    assert all(one.good == (one.remedy == "") for one in findings)
