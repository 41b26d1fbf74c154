from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from fabric.errors import EmulationError, UsageError
from fabric.world import cache as caches
from fabric.world.virtual import edits, kernel, kernel_build
from fabric.world.virtual.edits import Edit
from fabric.world.virtual_time import VirtualEngine

FRAGMENT = (kernel.HERE / "kernel.config").read_text()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(caches, "SHARED", tmp_path / "shared")
    monkeypatch.setattr(kernel, "source_archives", lambda: [])
    monkeypatch.delenv(kernel.CHOICE, raising=False)
    return kernel.cache_directory()


def make_kernel(directory: Path) -> None:
    directory.mkdir(parents=True)
    facts = {"release": "6.1.0", "clock_address": 0x60001000, "running_address": 0x60002000}
    (directory / "kernel.json").write_text(json.dumps(facts))


def test_a_cache_without_a_kernel_says_how_to_build_one(cache: Path) -> None:
    assert kernel.find() is None
    with pytest.raises(
        EmulationError, match="build it: fabric virtual build, or fetch that of a release: fabric virtual fetch"
    ):
        kernel.require()


def test_a_complete_kernel_is_found_with_its_facts(cache: Path) -> None:
    make_kernel(cache / f"linux-6.1-abcdef01-{kernel.fingerprint()}")
    found = kernel.require()
    assert (found.release, found.version) == ("6.1.0", "6.1")
    assert (found.clock_address, found.running_address) == (0x60001000, 0x60002000)
    assert found.module_command(Path("/m"))[-2:] == ["M=/m", "modules"]


def test_a_kernel_that_root_built_serves_every_account(cache: Path, tmp_path: Path) -> None:
    make_kernel(tmp_path / "shared" / caches.NAME / kernel.CACHE_NAME / f"linux-6.1-abcdef01-{kernel.fingerprint()}")
    assert kernel.find() is not None


def test_a_kernel_of_another_config_or_half_built_is_not_used(cache: Path) -> None:
    make_kernel(cache / "linux-6.1-abcdef01-0123456789ab")
    make_kernel(cache / ".building-xyz")
    (cache / f"linux-6.1-abcdef01-{kernel.fingerprint()}").mkdir()
    assert kernel.find() is None


def test_sources_that_were_tried_come_first_then_newer_ones_in_either_distribution(tmp_path: Path) -> None:
    names = ["linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz", "linux-source-6.8.0/linux-source-6.8.0.tar.bz2"]
    names += ["linux-source-6.16.tar.xz"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "linux-source-6.8.0.tar.bz2").symlink_to("linux-source-6.8.0/linux-source-6.8.0.tar.bz2")
    (tmp_path / "linux-source-6.1.tar.sig").touch()
    found = [path.name for path in kernel.source_archives(tmp_path)]
    tried, others = found[:2], found[2:]
    assert tried == ["linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz"]
    assert others == ["linux-source-6.16.tar.xz", "linux-source-6.8.0.tar.bz2"]


def test_kernels_of_several_versions_lie_side_by_side_and_one_can_be_chosen(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("6.1", "6.12", "6.8.0"):
        make_kernel(cache / f"linux-{version}-abcdef01-{kernel.fingerprint()}")
    assert [one.version for one in kernel.built()] == ["6.1", "6.12", "6.8.0"]
    assert kernel.require().version == "6.1"
    monkeypatch.setenv(kernel.CHOICE, "6.12")
    assert kernel.require().version == "6.12"
    monkeypatch.setenv(kernel.CHOICE, "5.15.0")
    with pytest.raises(
        UsageError, match=r"FABRIC_GUEST_KERNEL=5.15.0: no such guest kernel is built \(6.1, 6.12, 6.8.0"
    ):
        kernel.require()


def test_in_a_guest_of_a_kernel_that_was_chosen_it_is_that_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of a run do not see who chose it."""
    for version in ("6.1", "6.12"):
        place = cache / f"linux-{version}-abcdef01-{kernel.fingerprint()}"
        make_kernel(place)
        (place / "kernel.json").write_text(json.dumps({"release": f"{version}.99"}))
    monkeypatch.setattr("platform.release", lambda: "6.12.99")
    assert kernel.running().version == "6.12"
    monkeypatch.setattr("platform.release", lambda: "6.16.1")
    with pytest.raises(EmulationError, match=r"this guest's kernel, 6\.16\.1, is not built any more"):
        kernel.running()


def test_the_kernel_built_by_a_profile_is_preferred_and_either_can_be_chosen(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = f"linux-6.1-abcdef01-{kernel.fingerprint()}"
    for name in (plain, f"{plain}-pgo", f"linux-6.12-abcdef01-{kernel.fingerprint()}-pgo"):
        make_kernel(cache / name)
    assert [one.name for one in kernel.built()] == ["6.1-pgo", "6.1", "6.12-pgo"]
    assert kernel.require().directory.name == f"{plain}-pgo"
    monkeypatch.setenv(kernel.CHOICE, "6.1")
    assert kernel.require().directory.name == plain
    monkeypatch.setenv(kernel.CHOICE, "6.12-pgo")
    assert kernel.require().version == "6.12"
    monkeypatch.setenv(kernel.CHOICE, "6.12")
    with pytest.raises(UsageError, match=r"KERNEL=6\.12: no such guest kernel is built \(6\.1-pgo, 6\.1, 6\.12-pgo\)"):
        kernel.require()


def test_a_kernel_whose_profile_is_taken_runs_only_what_it_is_told_to(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = cache / f"linux-6.1-abcdef01-{kernel.fingerprint()}-trial"
    make_kernel(trial)
    (trial / "kernel.json").write_text(json.dumps({"release": "6.1.0-trial"}))
    assert kernel.built() == [] and kernel.find() is None
    monkeypatch.setenv(kernel.CHOICE, "6.1-trial")
    assert kernel.require().directory == trial
    monkeypatch.delenv(kernel.CHOICE)
    monkeypatch.setattr("platform.release", lambda: "6.1.0-trial")
    assert kernel.running().directory == trial


def test_a_guest_has_the_modules_of_the_kernel_that_it_runs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = cache / f"linux-6.1-abcdef01-{kernel.fingerprint()}-trial"
    make_kernel(trial)
    monkeypatch.setattr("fabric.world.kernel_api.modules.find", lambda name: cache if name == trial.name else None)
    monkeypatch.setattr("platform.release", lambda: "6.1.0")
    engine = VirtualEngine()
    assert engine.why_no_modules() == "the guest kernel's modules are not built; build them with: fabric virtual build"
    monkeypatch.setenv("FABRIC_GUEST", "1")
    assert engine.why_no_modules() is None


def test_of_one_version_the_kernel_of_the_source_that_is_installed_is_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tmp_path / "linux-source-6.1.tar.xz"
    archive.touch()
    monkeypatch.setattr(kernel, "source_archives", lambda: [archive])
    for name in (f"linux-6.1-ffffffff-{kernel.fingerprint()}", kernel._name(archive)):
        make_kernel(cache / name)
    assert kernel.require().directory.name == kernel._name(archive)


def test_the_version_that_is_chosen_is_the_one_that_is_built(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archives = [tmp_path / f"linux-source-{version}.tar.xz" for version in ("6.1", "6.12")]
    for archive in archives:
        archive.touch()
        make_kernel(cache / kernel._name(archive))
    monkeypatch.setattr(kernel, "source_archives", lambda: archives)
    monkeypatch.setattr(kernel, "missing_packages", lambda source: [])
    monkeypatch.setattr("fabric.world.kernel_api.modules.build", lambda *_: None)
    monkeypatch.delenv(kernel.CHOICE, raising=False)
    assert kernel.build().version == "6.1"
    monkeypatch.setenv(kernel.CHOICE, "6.12")
    assert kernel.build().version == "6.12"
    monkeypatch.setenv(kernel.CHOICE, "6.13")
    with pytest.raises(UsageError, match=r"FABRIC_GUEST_KERNEL=6\.13: no source of this version .* \(6\.1, 6\.12\)"):
        kernel.build()


def test_a_kernel_built_by_a_profile_does_for_one_without_unless_that_is_chosen(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tmp_path / "linux-source-6.1.tar.xz"
    archive.touch()
    built: list[str] = []
    monkeypatch.setattr(kernel, "source_archives", lambda: [archive])
    monkeypatch.setattr(kernel, "missing_packages", lambda source: [])
    monkeypatch.setattr(kernel, "build_into", lambda final, *_: built.append(final.name))
    modules_of: list[str] = []
    monkeypatch.setattr("fabric.world.kernel_api.modules.build", lambda name, _: modules_of.append(name))
    monkeypatch.setenv(kernel.CHOICE, "6.1-pgo")
    with pytest.raises(UsageError, match=r"6\.1-pgo: no such guest kernel is built; fabric virtual build --pgo"):
        kernel.build()
    make_kernel(cache / f"{kernel._name(archive)}-pgo")
    assert kernel.build().name == "6.1-pgo"
    monkeypatch.delenv(kernel.CHOICE)
    assert kernel.build().name == "6.1-pgo"
    assert built == [] and modules_of == [f"{kernel._name(archive)}-pgo"] * 2
    monkeypatch.setenv(kernel.CHOICE, "6.1")
    assert kernel.build().name == "6.1"
    assert built == [kernel._name(archive)]


def archive_of(path: Path, texts: dict[str, str]) -> Path:
    """Make an archive of a kernel's source with these files."""
    root = path.name.split(".tar")[0]
    with tarfile.open(path, "w:xz") as archive:
        for name, text in {"Makefile": "all:\n", **texts}.items():
            info = tarfile.TarInfo(f"{root}/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def fitting(made: Iterable[Edit]) -> dict[str, str]:
    """Return the files of a source that has a place for each change."""
    texts: dict[str, str] = {}
    for edit in made:
        texts[edit.file] = "\n".join([texts.get(edit.file, ""), *(part.old for part in edit.ways[0])])
    return texts


def test_a_source_that_the_changes_do_not_fit_is_refused_before_it_is_compiled(cache: Path, tmp_path: Path) -> None:
    if missing := kernel.missing_packages(Path("linux-source-5.10.tar.xz")):
        pytest.skip(f"building needs {missing}")
    texts = fitting(edits.EDITS)
    texts["arch/um/kernel/skas/syscall.c"] = "another kernel"
    del texts["arch/um/Kconfig"]
    source = archive_of(tmp_path / "linux-source-5.10.tar.xz", texts)
    said: list[str] = []
    with pytest.raises(EmulationError) as refused:
        kernel.build(said.append, source=source)
    assert f"{source}: no guest kernel can be built from it" in str(refused.value)
    assert "do not fit arch/um/kernel/skas/syscall.c, arch/um/Kconfig." in str(refused.value)
    assert "Debian's linux-source-6.1 and linux-source-6.12" in str(refused.value)
    assert said == ["unpacking linux-source-5.10.tar.xz"]


def test_what_is_no_source_is_named(tmp_path: Path) -> None:
    for name in ("linux-source-6.12.tar.xz", "notes.txt"):
        with pytest.raises(UsageError, match=f"{name}: not an archive of a kernel's source"):
            kernel.build(source=tmp_path / name)


@pytest.mark.parametrize("version", ["6.8.0", "5.15.0"])
@pytest.mark.parametrize("linked", [True, False], ids=["linked", "in its directory only"])
def test_the_source_of_ubuntus_package_is_found_once(tmp_path: Path, version: str, linked: bool) -> None:
    """Beside the archive are the package's ``debian`` and ``debian.master``, with files of similar names."""
    package = f"linux-source-{version}"
    archive = tmp_path / package / f"{package}.tar.bz2"
    (tmp_path / package / "debian").mkdir(parents=True)
    (tmp_path / package / "debian" / f"{package}.install").touch()
    archive.touch()
    if linked:
        (tmp_path / archive.name).symlink_to(f"{package}/{archive.name}")
    assert kernel.source_archives(tmp_path) == [archive]
    assert kernel._name(archive).startswith(f"linux-{version}-")


def test_ubuntus_archive_needs_bzip2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "linux-source-6.8.0" / "linux-source-6.8.0.tar.bz2"
    monkeypatch.setattr(kernel, "source_archives", lambda: [archive])
    monkeypatch.setattr("shutil.which", lambda name: None if name == "bzip2" else f"/bin/{name}")
    assert kernel.missing_packages() == ["bzip2"]


def test_a_security_update_of_the_source_gives_another_kernel(tmp_path: Path) -> None:
    archive = tmp_path / "linux-source-6.1.tar.xz"
    archive.write_bytes(b"1")
    before = kernel._name(archive)
    os.utime(archive, (1, 1))
    assert before.startswith("linux-6.1-")
    assert kernel._name(archive) != before


def test_every_missing_package_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "source_archives", lambda: [])
    monkeypatch.setattr("shutil.which", lambda name: None if name in ("gcc", "make", "bc") else f"/bin/{name}")
    assert kernel.missing_packages() == ["bc", "build-essential", "linux-source"]
    with pytest.raises(EmulationError, match="apt-get install bc build-essential linux-source"):
        kernel.build()


def test_an_option_that_was_not_granted_is_named_unless_it_is_optional() -> None:
    granted = "\n".join(line for line in FRAGMENT.splitlines() if "NETEM" not in line and "MPTCP" not in line)
    assert kernel_build.lacking_options(FRAGMENT, granted) == ["CONFIG_NET_SCH_NETEM=y"]


@pytest.mark.parametrize("name", ["HTB", "TBF", "NETEM", "RED", "PRIO", "ETS", "FQ", "FQ_CODEL", "PLUG"])
def test_the_guest_has_every_queueing_discipline_of_the_design(name: str) -> None:
    assert f"CONFIG_NET_SCH_{name}=y" in FRAGMENT.splitlines()


def test_a_source_without_a_place_for_a_profile_is_refused_before_it_is_compiled(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := kernel.missing_packages(Path("linux-source-6.1.tar.xz")):
        pytest.skip(f"building needs {missing}")
    texts = fitting(edits.EDITS)
    source = archive_of(tmp_path / "linux-source-6.1.tar.xz", {**texts, edits.COMPILED_BY: "no place\n"})
    monkeypatch.setattr(kernel_build, "_configure", lambda maker: None)
    with pytest.raises(EmulationError, match="this source cannot be built by a profile; build it without: --pgo"):
        kernel.build_by_profile(lambda name: pytest.fail(f"{name} was run"), source=source)
    assert sorted(path.name for path in cache.iterdir()) == ["build.log", "lock"]


def test_a_kernel_that_leaves_no_profile_is_not_taken_for_one_that_was_profiled(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source makes a program in place of a kernel, with the symbols that are looked for."""
    if missing := kernel.missing_packages(Path("linux-source-6.1.tar.xz")):
        pytest.skip(f"building needs {missing}")
    texts = fitting([*edits.EDITS, *edits.edits_of("profile")])
    texts["Makefile"] = (
        "linux:\n\tgcc -o linux one.c\nmodules_prepare modules:\n"
        "\tmkdir -p include/config; echo 6.1$(LOCALVERSION) > include/config/kernel.release\n"
    )
    texts["one.c"] = "long time_travel_time, time_travel_running;\nint main(void) { return 0; }\n"
    source = archive_of(tmp_path / "linux-source-6.1.tar.xz", texts)
    monkeypatch.setattr(kernel_build, "_configure", lambda maker: None)
    monkeypatch.setattr("fabric.world.kernel_api.modules.build", lambda *_: None)
    seen: list[tuple[str, str]] = []

    def train(name: str) -> None:
        monkeypatch.setenv(kernel.CHOICE, name)
        seen.append((name, kernel.require().release))

    with pytest.raises(EmulationError, match="the kernel that was profiled left no profile in"):
        kernel.build_by_profile(train, source=source)
    assert seen == [("6.1-trial", "6.1-trial")]
    assert sorted(path.name for path in cache.iterdir()) == ["build.log", "lock"]
