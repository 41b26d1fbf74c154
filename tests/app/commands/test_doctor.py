"""What a machine can do: each thing that is missing has a remedy, and only what is needed stops experiments."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.commands import doctor
from app.commands.doctor import Diagnosis, examine, lacking
from fabric.emulation import mininet_place
from fabric.world.datapath import Datapath
from fabric.world.kernel_api import modules
from fabric.world.virtual import kernel
from fabric.world.virtual.kernel import KernelPaths

BOTH = ("namespace", "virtual")


def finding(subject: str, good: bool, *needed: str) -> Diagnosis:
    return Diagnosis(subject, good, needed, "detail", "" if good else "apt-get install x")


@pytest.mark.parametrize(
    ("findings", "without"),
    [
        ([], {"namespace": [], "virtual": []}),
        ([finding("a", True, *BOTH), finding("b", False)], {"namespace": [], "virtual": []}),
        ([finding("a", False, "namespace"), finding("b", True, *BOTH)], {"namespace": ["a"], "virtual": []}),
        ([finding("a", False, "virtual"), finding("b", False, *BOTH)], {"namespace": ["b"], "virtual": ["a", "b"]}),
    ],
)
def test_an_engine_can_run_if_all_that_it_needs_is_good(
    findings: list[Diagnosis], without: dict[str, list[str]]
) -> None:
    assert lacking(findings) == without


def found(look: Callable[[], Iterator[Diagnosis]]) -> dict[str, Diagnosis]:
    return {one.subject: one for one in look()}


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(doctor, "SCHEMA", tmp_path / "none")


def test_a_missing_program_is_told_with_the_package_that_has_it(nothing_installed: None) -> None:
    findings = found(doctor._programs)
    assert findings["ovs-vswitchd"] == Diagnosis(
        "ovs-vswitchd", False, BOTH, "not installed", "apt-get install openvswitch-switch"
    )
    assert findings["mnexec"].remedy == "apt-get install mininet"
    assert not any(one.good for one in findings.values())
    assert all(one.remedy.startswith("apt-get install ") for one in findings.values())


def test_programs_that_only_some_commands_use_are_not_needed(nothing_installed: None) -> None:
    needed = {one.subject: one.needed for one in found(doctor._programs).values()}
    assert {subject for subject, engines in needed.items() if not engines} == {"tcpdump", "iperf3"}
    assert {subject for subject, engines in needed.items() if engines == ("namespace",)} == {"unshare", "cc"}


@pytest.mark.parametrize(
    ("user", "good", "remedy"), [(0, True, ""), (1000, False, "sudo fabric ..., or --engine virtual")]
)
def test_root_is_needed_in_real_time(monkeypatch: pytest.MonkeyPatch, user: int, good: bool, remedy: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    (one,) = doctor._root()
    assert (one.good, one.needed, one.remedy) == (good, ("namespace",), remedy)


def test_what_cannot_be_tried_without_root_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    words = ("namespaces, veth, HTB", False, (), "not tried: that needs root", "sudo fabric doctor")
    assert list(doctor._namespaces()) == [Diagnosis(*words)]


@pytest.mark.parametrize("in_venv", [True, False])
def test_a_module_that_is_installed_and_hidden_is_told_from_one_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_venv: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "_SYSTEMS_PACKAGES", (tmp_path,))
    monkeypatch.setattr(sys, "prefix", "/venv" if in_venv else sys.base_prefix)
    missing = found(doctor._modules)["python: scapy"]
    assert (missing.detail, missing.remedy) == ("not installed", "make setup")
    (tmp_path / "scapy").mkdir()
    (tmp_path / "scapy" / "__init__.py").touch()
    findings = found(doctor._modules)
    hidden = findings["python: scapy"]
    if in_venv:
        assert hidden.detail == f"installed in {tmp_path}, which this virtual environment hides"
        assert hidden.remedy == "set include-system-site-packages = true in /venv/pyvenv.cfg"
    else:
        assert hidden.detail == f"installed in {tmp_path}, which {sys.executable} does not search"
        assert hidden.remedy == "use /usr/bin/python3"
    assert (hidden.good, hidden.needed) == (False, BOTH)
    assert findings["python: ryu or os_ken"].detail == "not installed"
    assert findings["python: ryu or os_ken"].remedy == "pip install os-ken"


def test_mininet_of_the_distribution_is_found_from_a_virtual_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(mininet_place, "OF_DISTRIBUTION", tmp_path)
    assert not found(doctor._modules)["python: mininet"].good
    (tmp_path / "mininet").mkdir()
    (tmp_path / "mininet" / "__init__.py").touch()
    assert found(doctor._modules)["python: mininet"].good


@pytest.mark.parametrize("library", ["ryu", "os_ken"])
def test_either_library_of_openflow_will_do(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name == library else None)
    assert found(doctor._modules)["python: ryu or os_ken"].good


@pytest.mark.parametrize(
    ("machine", "missing", "detail", "remedy"),
    [
        ("x86_64", [], "not built", "fabric virtual build (some 12 minutes, once)"),
        (
            "x86_64",
            ["bc", "flex"],
            "not built",
            "apt-get install bc flex; then fabric virtual build (some 12 minutes, once)",
        ),
        ("aarch64", [], "needs an x86-64 machine; this is aarch64", "--engine namespace"),
    ],
)
def test_virtual_time_needs_a_guest_kernel(
    monkeypatch: pytest.MonkeyPatch, machine: str, missing: list[str], detail: str, remedy: str
) -> None:
    monkeypatch.setattr(kernel, "find", lambda: None)
    monkeypatch.setattr(kernel, "missing_packages", lambda: missing)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert list(doctor._guest_kernel()) == [Diagnosis("guest kernel", False, ("virtual",), detail, remedy)]
    built = KernelPaths(Path("/kernels/linux-6.1"))
    monkeypatch.setattr(KernelPaths, "release", "6.1.192")
    monkeypatch.setattr(kernel, "find", lambda: built)
    words = ("guest kernel", True, ("virtual",), "6.1.192, /kernels/linux-6.1")
    assert list(doctor._guest_kernel()) == [Diagnosis(*words)]


def test_a_guest_kernel_that_was_chosen_and_is_not_built_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.CHOICE, "1.2")
    (one,) = doctor._guest_kernel()
    assert not one.good
    assert one.detail.startswith(f"{kernel.CHOICE}=1.2: no such guest kernel is built")


def test_namespaces_that_do_not_work_are_told_with_the_kernels_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "_try_in_namespaces", lambda _: ("unshare failed: Operation not permitted", False))
    (one,) = doctor._namespaces()
    assert (one.good, one.needed, one.detail) == (False, ("namespace",), "unshare failed: Operation not permitted")
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
    assert (one.good, one.needed) == (True, BOTH)
    tmp_path.chmod(0o777)
    (one,) = doctor._cache()
    assert (one.good, one.needed) == (False, BOTH)
    assert "can be written to by every account" in one.detail
    assert one.remedy == "unset XDG_CACHE_HOME, or run sudo without -E"
    assert "can be written to by every account" in found(doctor._lossless)["lossless queueing, virtual engine"].detail


def test_few_cores_and_little_memory_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[Any, int] = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**18}
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert list(doctor._resources()) == [
        Diagnosis("cores", False, (), "1", "results need 2 cores or lower rates"),
        Diagnosis("memory", False, (), "1.0 GiB", "2 GiB are wanted"),
    ]


def test_whatever_is_not_good_on_this_machine_has_a_remedy() -> None:
    findings = examine()
    assert len({one.subject for one in findings}) == len(findings) > 10
    assert all(one.good == (one.remedy == "") for one in findings)
