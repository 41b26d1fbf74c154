"""What ``make release`` writes, and that it is enough: an ordinary user without a compiler gets from it to a figure."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fabric.errors import EmulationError
from fabric.world.virtual import kernel
from fabric.world.virtual.kernel import KernelPaths

ROOT = Path(__file__).parents[2]
USER = 54321
"""An account that nothing on the machine belongs to."""
COMPILERS = ("cc", "gcc", "c99", "clang", "make", "as", "ld")
SHORT = ("queueings=[lossless]", "repeats=1", "warm_up=100 ms", "measured=200 ms")


def load_release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look their module up.
    spec.loader.exec_module(module)
    return module


release = load_release()


def test_sums_are_such_as_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"archive")
    (tmp_path / "b.txt").write_text("offer\n")
    (tmp_path / release.SUMS).write_text(release.sums(tmp_path))
    subprocess.run(["sha256sum", "--check", "--strict", release.SUMS], cwd=tmp_path, check=True, capture_output=True)
    assert len((tmp_path / release.SUMS).read_text().splitlines()) == 2


def test_an_earlier_release_goes_and_nothing_else(tmp_path: Path) -> None:
    old = tmp_path / "dist"
    release.clear(old)
    (old / "old.whl").touch()
    with pytest.raises(EmulationError, match=r"holds old\.whl and no SHA256SUMS"):
        release.clear(old)
    (old / release.SUMS).touch()
    release.clear(old)
    assert list(old.iterdir()) == []


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="this is neither Debian nor Ubuntu")
def test_the_package_of_a_file_is_named_with_its_versions(tmp_path: Path) -> None:
    origin = release.origin_of(Path("/usr/bin/dpkg-query"))
    assert (origin.package, origin.source_package) == ("dpkg", "dpkg")
    assert origin.version == origin.source_version
    with pytest.raises(EmulationError, match="of no package of the distribution"):
        release.origin_of(tmp_path / "linux-source-6.1.tar.xz")


def test_the_offer_names_both_parts_of_the_source_and_the_libraries_inside() -> None:
    origin = release.Origin("linux-source-6.1", "6.1.192-2", "linux", "6.1.192-2")
    one = KernelPaths(Path("linux-6.1-52eb4b95-f913d1fe2875"))
    source = Path("/usr/src/linux-source-6.1.tar.xz")
    text = release.source_offer(one, "guest.tar.gz", source, origin, "ai_fabric_emulator-0.1.0.tar.gz")
    for part in ("1. linux-source-6.1.tar.xz", "version 6.1.192-2", "2. ai_fabric_emulator-0.1.0.tar.gz", "libc6-dev"):
        assert part in text
    assert "{" not in text


def test_a_kernel_knows_the_archive_that_it_was_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "linux-source-6.1.tar.xz"
    archive.write_bytes(b"source")
    monkeypatch.setattr(kernel, "source_archives", lambda: [archive])
    name = kernel._name(archive)
    assert kernel.source_of(KernelPaths(tmp_path / name)) == archive
    assert kernel.source_of(KernelPaths(tmp_path / f"{name}-{kernel.PGO}")) == archive
    archive.write_bytes(b"a security update")
    assert kernel.source_of(KernelPaths(tmp_path / name)) is None


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account sees, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="fabric-release-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.soak  # Two or three minutes, and the network: pip installs all that the package needs.
@pytest.mark.root  # To become another user, and to hide compilers and the cache from it.
@pytest.mark.guest
@pytest.mark.timeout(900)
def test_an_ordinary_user_without_a_compiler_comes_from_a_release_to_a_figure(place: Path) -> None:
    dist, home = place / "dist", place / "home"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "release.py"), str(dist)], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = dist.glob("ai_fabric_emulator-*.whl")
    home.mkdir()
    os.chown(home, USER, USER)
    settings = " ".join(f"--set '{one}'" for one in SHORT)
    steps = f"""
        set -e
        cd {home}
        for one in {" ".join(COMPILERS)}; do ! $one --version 2> /dev/null || exit 9; done
        /usr/bin/python3 -m venv venv
        venv/bin/pip install -q {wheel}
        venv/bin/fabric virtual fetch {dist}
        venv/bin/fabric run head_of_line --engine virtual --out results/run {settings}
    """
    started_s = time.monotonic()
    done = _as_user(steps, home)
    print(f"{time.monotonic() - started_s:.0f} s from pip install to the figure")
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    figures = list((home / "results" / "run").rglob("*.png"))
    assert figures, sorted(path.name for path in (home / "results" / "run").iterdir())


def _as_user(steps: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run shell commands as an account of nothing, where no compiler starts and the shared cache is empty."""
    programs = {Path(found).resolve() for name in COMPILERS if (found := shutil.which(name))}
    hidden = [f"mount --bind /dev/null {program}" for program in sorted(programs)]
    hidden.append("mount -t tmpfs tmpfs /var/cache")
    user = f"setpriv --reuid={USER} --regid={USER} --clear-groups --no-new-privs --bounding-set=-all"
    script = "\n".join(["set -e", *hidden, f'exec {user} sh -c "$1"'])
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", steps],
        env={**kept, "HOME": str(home), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
