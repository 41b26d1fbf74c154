"""Where BPF programs in C cannot be had, the reason and what mends it are said before anything is built."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.world.kernel_api import libbpf


@pytest.fixture(autouse=True)
def complete_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that has all of it, of which each test takes something away."""
    there = tmp_path / "there"
    there.write_text("1")
    monkeypatch.setattr(platform, "release", lambda: "6.4.0-1-amd64")
    for name in ("_BTF", "_JIT", "_HEADERS"):
        monkeypatch.setattr(libbpf, name, there)
    monkeypatch.setattr(libbpf, "_library", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def test_a_complete_machine_can_have_them() -> None:
    assert libbpf.why_not() is None


@pytest.mark.parametrize("release", ["6.1.0-25-amd64", "5.15.0", "6.3-rc1"])
def test_an_older_kernel_cannot(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert libbpf.why_not() == f"BPF programs need Linux 6.4 or newer, and this is {release}"


@pytest.mark.parametrize("release", ["6.10.0", "7.0-rc1", "6.18.44-fc"])
def test_a_newer_one_can(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert libbpf.why_not() is None


@pytest.mark.parametrize(
    ("missing", "said"), [("_BTF", "CONFIG_DEBUG_INFO_BTF"), ("_HEADERS", "apt-get install clang")]
)
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, said: str) -> None:
    monkeypatch.setattr(libbpf, missing, tmp_path / "missing")
    assert said in (libbpf.why_not() or "")


def test_a_machine_that_does_not_compile_them_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "off").write_text("0\n")
    monkeypatch.setattr(libbpf, "_JIT", tmp_path / "off")
    assert "sysctl net.core.bpf_jit_enable=1" in (libbpf.why_not() or "")


def test_a_missing_library_or_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "apt-get install clang libbpf-dev" in (libbpf.why_not() or "")

    def missing() -> None:
        raise OSError

    monkeypatch.setattr(libbpf, "_library", missing)
    assert "libbpf.so.1 is not installed; apt-get install clang libbpf-dev" in (libbpf.why_not() or "")


def test_what_does_not_compile_is_an_error_with_the_compilers_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if libbpf.why_not() is not None:
        pytest.skip(str(libbpf.why_not()))
    (tmp_path / "wrong.bpf.c").write_text("int wrong(void) { return missing; }\n")
    with pytest.raises(EmulationError, match=r"building the BPF programs wrong failed[^$]*undeclared identifier"):
        libbpf.build("wrong", tmp_path)
