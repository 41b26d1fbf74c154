"""The guest kernel of a release from a file, a URL or a package index: without a compiler.

A release has it as an archive (:mod:`fabric.world.virtual.kernel_archive`) and as a wheel with that archive inside,
which any package index can hold. The wheel's version ends in the kernel's fingerprint, so that one index serves several
versions of this program.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from importlib import metadata
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

from fabric.errors import UsageError
from fabric.world.virtual import kernel, kernel_archive
from fabric.world.virtual.kernel import KernelPaths

PACKAGE = "ai-fabric-emulator-guest"
"""What package indexes call the kernel."""
ARCHIVE, WHEEL = ".tar.gz", ".whl"
_SILENT_TIMEOUT_S = 60.0
"""How long a server may say nothing."""
_INDEX_TIMEOUT_S = 600
_HASH = "sha256="


def wheel_version() -> str:
    """Return the version of the wheel that holds a kernel for this version of the program."""
    return f"{metadata.version('ai-fabric-emulator')}+{kernel.fingerprint()}"


def fetch_kernel(where: str) -> KernelPaths:
    """Install the kernel of an archive or a wheel, each a file or a URL, or of a package index: a URL or a directory.

    A URL may end in ``#sha256=HEX``, which the file then has to have; an index's own hashes are verified. Raises
    UsageError if there is no kernel for this version of the program.
    """
    with tempfile.TemporaryDirectory(prefix="fabric-fetch-") as scratch:
        file = _file_of(where, Path(scratch))
        return kernel_archive.import_kernel(file if file.name.endswith(ARCHIVE) else _inside(file, Path(scratch)))


def _file_of(where: str, scratch: Path) -> Path:
    if not urldefrag(where).url.endswith((ARCHIVE, WHEEL)):
        return _of_index(where, scratch)
    return _downloaded(where, scratch) if "://" in where else Path(where)


def _downloaded(url: str, scratch: Path) -> Path:
    address, fragment = urldefrag(url)
    file = scratch / Path(urlsplit(address).path).name
    try:
        with urllib.request.urlopen(address, timeout=_SILENT_TIMEOUT_S) as answer, file.open("wb") as out:
            shutil.copyfileobj(answer, out)
    except (OSError, ValueError) as error:
        raise UsageError(f"{address}: cannot be fetched: {error}; name a file or URL of a release") from error
    if fragment:
        _require_hash(url, file, fragment)
    return file


def _require_hash(url: str, file: Path, fragment: str) -> None:
    if not fragment.startswith(_HASH):
        raise UsageError(f"{url}: {fragment!r} names no hash known here; write #{_HASH}HEX, as in SHA256SUMS")
    has = hashlib.sha256(file.read_bytes()).hexdigest()
    if has != fragment.removeprefix(_HASH).lower():
        raise UsageError(f"{url}: has SHA-256 {has}; do not use this file")


def _of_index(where: str, scratch: Path) -> Path:
    """Return the wheel of a package index, of a page of links, or of a directory."""
    if "://" not in where and not Path(where).is_dir():
        raise UsageError(f"{where}: not a directory, URL, {ARCHIVE} or {WHEEL}; name one of a release")
    wanted = f"{PACKAGE}=={wheel_version()}"
    places = ["--find-links", where, *(["--index-url", where] if "://" in where else ["--no-index"])]
    words = ["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", *places]
    try:
        done = subprocess.run(
            [sys.executable, *words, "--dest", str(scratch), wanted],
            capture_output=True,
            text=True,
            timeout=_INDEX_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{where}: no {wanted} within {_INDEX_TIMEOUT_S} s; name a file of a release") from error
    if done.returncode:
        reason = (done.stderr.strip() or f"pip ended with {done.returncode}").splitlines()[-1]
        raise UsageError(f"{where}: no {wanted} from there: {reason}; or build the kernel: fabric virtual build")
    return next(scratch.glob(f"*{WHEEL}"))


def _inside(wheel: Path, scratch: Path) -> Path:
    """Unpack the archive that a wheel holds; return it."""
    try:
        with zipfile.ZipFile(wheel) as files:
            names = [name for name in files.namelist() if name.endswith(ARCHIVE)]
            if len(names) != 1:
                raise UsageError(f"{wheel}: holds {len(names)} archives of kernels, not 1; name the wheel of a release")
            return Path(files.extract(names[0], scratch))
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{wheel}: cannot be read: {error}; name the wheel of a release") from error
