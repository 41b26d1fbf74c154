from __future__ import annotations

import ctypes
import errno
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.world import cache as caches
from fabric.world.kernel_api import modules


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(caches, "SHARED", tmp_path / "shared")
    return tmp_path / "cache" / caches.NAME / modules.CACHE_NAME


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    for name in ("Kbuild", "sch_vl.c", "sch_vl.h", "notes.txt"):
        (directory / name).write_text(name)
    monkeypatch.setattr(modules, "SOURCE", directory)
    return directory


def compiler(directory: Path) -> list[str]:
    return ["sh", "-c", f"cd {directory} && ls > sch_vl.ko"]


def test_a_module_is_built_from_its_sources_once_and_then_found(source: Path, cache: Path) -> None:
    assert modules.find("linux-1") is None
    modules.build("linux-1", compiler)
    found = modules.find("linux-1")
    assert found is not None
    assert found.read_text().split() == ["Kbuild", "sch_vl.c", "sch_vl.h", "sch_vl.ko"]
    modules.build("linux-1", lambda directory: ["false"])
    assert [path.name for path in cache.iterdir()] == [found.parent.name]


def test_another_kernel_or_another_source_needs_another_module(source: Path) -> None:
    modules.build("linux-1", compiler)
    assert modules.find("linux-2") is None
    (source / "sch_vl.h").write_text("changed")
    assert modules.find("linux-1") is None


def test_a_module_that_root_built_serves_every_account(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    modules.build("linux-1", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert modules.find("linux-1") is not None


def test_what_the_compiler_says_is_passed_on_and_nothing_is_left(source: Path, cache: Path) -> None:
    with pytest.raises(EmulationError, match=r"failed with exit code 3:\nsch_vl.c:1: no such thing"):
        modules.build("linux-1", lambda directory: ["sh", "-c", "echo sch_vl.c:1: no such thing; exit 3"])
    assert list(cache.iterdir()) == []


@pytest.mark.timeout(60)
def test_of_several_builds_at_once_one_builds_and_no_module_goes_away(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, faults, was_there = [], list[str](), False

    def make(command: Sequence[str]) -> None:
        made.append(command[-1])
        time.sleep(0.05)
        Path(command[-1], "sch_vl.ko").write_bytes(b"module")

    def build() -> None:
        try:
            modules.build("linux-1", lambda directory: ["make", str(directory)])
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")

    monkeypatch.setattr(modules, "_make", make)
    builds = [threading.Thread(target=build) for _ in range(8)]
    for thread in builds:
        thread.start()
    while any(thread.is_alive() for thread in builds):
        is_there = modules.find("linux-1") is not None
        assert is_there or not was_there
        was_there = is_there
    assert faults == []
    assert len(made) == 1


def test_modules_that_are_there_stay_when_others_are_imported(source: Path, tmp_path: Path) -> None:
    """A run may be between finding and loading them."""
    modules.build("linux-1", compiler)
    found = modules.find("linux-1")
    assert found is not None
    before = found.stat()
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "sch_vl.ko").write_bytes(b"another")
    modules.put("linux-1", tmp_path / "others")
    assert found.stat() == before


@pytest.mark.timeout(60)
def test_a_build_that_another_one_holds_up_says_what_it_waited_for(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "_BUILD_TIMEOUT_S", 0.1)
    words = "building the kernel modules: another one at it has not ended within 0.1 s"
    with modules._alone(), pytest.raises(EmulationError, match=words):
        modules.build("linux-1", compiler)


def test_a_host_that_cannot_have_the_module_is_told_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"/proc/modules"}
    monkeypatch.setattr(Path, "exists", lambda path: str(path) in present)
    monkeypatch.setattr("platform.release", lambda: "6.1.0-99")
    assert "apt-get install linux-headers-6.1.0-99" in str(modules.why_not_on_host())
    present.clear()
    assert "takes no modules" in str(modules.why_not_on_host())


def test_a_host_that_loads_signed_modules_only_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lockdown = tmp_path / "lockdown"
    monkeypatch.setattr(
        modules, "_SIGNATURES", {lockdown: ("[integrity]", "[confidentiality]"), tmp_path / "none": ("Y",)}
    )
    monkeypatch.setattr(modules, "_MODULES", tmp_path)
    lockdown.write_text("none [integrity] confidentiality")
    assert "signed modules only" in str(modules.why_not_on_host())
    lockdown.write_text("[none] integrity confidentiality")
    assert "signed" not in str(modules.why_not_on_host())


def test_a_host_with_headers_and_a_compiler_can_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "6.1.0-99")
    present = {"/proc/modules", "/lib/modules/6.1.0-99/build/Makefile"}
    monkeypatch.setattr(Path, "exists", lambda path: str(path) in present)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert modules.why_not_on_host() is None


class FakeKernel:
    """A C library whose system calls say that a module is in use, so many times."""

    def __init__(self, refusals: int, fault: int = errno.EAGAIN) -> None:
        self._refusals = refusals
        self._fault = fault
        self.asked: list[bytes] = []

    def syscall(self, number: int, name: bytes, flags: int) -> int:
        self.asked.append(name)
        if len(self.asked) > self._refusals:
            return 0
        ctypes.set_errno(self._fault)
        return -1


def test_a_module_is_unloaded_once_its_last_user_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FakeKernel(refusals=3)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: kernel)
    modules.unload("tcp_dcqcn")
    assert kernel.asked == [b"tcp_dcqcn"] * 4


def test_a_module_that_stays_is_an_error_with_the_kernels_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(modules, "_UNLOAD_TIMEOUT_S", 0.0)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: FakeKernel(refusals=9))
    with pytest.raises(EmulationError, match=r"tcp_dcqcn: the kernel keeps it: Resource temporarily unavailable"):
        modules.unload("tcp_dcqcn")
    gone = FakeKernel(refusals=9, fault=errno.ENOENT)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: gone)
    with pytest.raises(EmulationError, match=r"No such file or directory"):
        modules.unload("tcp_dcqcn")
    assert len(gone.asked) == 1


def test_what_came_into_the_kernel_is_told_for_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(modules, "_MODULES", tmp_path / "modules")
    assert modules.loaded() == frozenset()
    (tmp_path / "modules").write_text("veth 1 0 - Live\n")
    before = modules.loaded()
    modules.tell_what_stays(before, said.append)
    assert said == []
    (tmp_path / "modules").write_text("veth 1 0 - Live\nsch_vl 2 0 - Live (OE)\nopenvswitch 3 4 - Live\n")
    modules.tell_what_stays(before, said.append)
    assert said == ["kernel modules loaded meanwhile, which stay: openvswitch, sch_vl; modprobe -r NAME takes one away"]


def test_the_sources_are_what_the_package_carries() -> None:
    assert {"vl_qdisc.c", "vl_abi.h", "Kbuild"} <= {path.name for path in modules._sources()}
