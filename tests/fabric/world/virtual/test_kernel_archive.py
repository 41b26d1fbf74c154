"""A built kernel as one file. The kernels here are small: nothing in them is run."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from fabric.errors import EmulationError, UsageError
from fabric.world.kernel_api import modules
from fabric.world.virtual import kernel
from fabric.world.virtual.kernel_archive import export_kernel, import_kernel

from .small_kernels import NAME, Use, small_kernel


@pytest.mark.parametrize("name", [NAME, f"{NAME}-pgo"])
def test_an_exported_kernel_is_there_once_it_is_imported(use: Use, tmp_path: Path, name: str) -> None:
    file = export_kernel(small_kernel(name=name), tmp_path / "kernel.tar.gz")
    use("there")
    assert kernel.find() is None
    found = import_kernel(file)
    assert kernel.find() == found
    assert found.directory.is_relative_to(tmp_path / "there")
    assert (found.release, found.kernel.read_text(), os.access(found.kernel, os.X_OK)) == ("6.1", "a program", True)
    assert (found.tree / "link").read_text() == "a program"
    assert found.module(modules.VL).read_text() == "a module"
    assert import_kernel(file) == found, "once more does no harm"
    assert sorted(path.name for path in kernel.cache_directory().iterdir()) == [name, "lock"]


def test_a_kernel_without_its_modules_is_not_exported(use: Use, tmp_path: Path) -> None:
    with pytest.raises(EmulationError, match="the modules of this kernel are not built"):
        export_kernel(small_kernel(with_module=False), tmp_path / "kernel.tar.gz")


def test_a_file_is_not_written_over(use: Use, tmp_path: Path) -> None:
    (tmp_path / "kernel.tar.gz").touch()
    with pytest.raises(UsageError, match="already exists"):
        export_kernel(small_kernel(), tmp_path / "kernel.tar.gz")


def archive(path: Path, *members: tuple[str, str]) -> Path:
    """Write an archive of files, or of links where the content begins with an arrow."""
    with tarfile.open(path, "w:gz") as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, content[2:]
                made.addfile(member)
            else:
                member.size = len(content)
                made.addfile(member, io.BytesIO(content.encode()))
    return path


WHOLE = (f"{NAME}/kernel.json", "{}")
FAULTS = {
    "nothing": ((("a", "b"),), "holds no guest kernel"),
    "half": (((f"{NAME}/linux", "x"),), "holds no guest kernel"),
    "another version": ((("linux-6.1-0a1b2c3d-000000000000/kernel.json", "{}"),), "of another version; this version"),
    "above": ((WHOLE, (f"{NAME}/../../evil", "x")), "is not a file of a kernel's own directory"),
    "absolute": ((WHOLE, ("/evil", "x")), "holds no guest kernel"),
    "link": ((WHOLE, (f"{NAME}/link", "->../../../evil")), "is not a file of a kernel's own directory"),
    "absolute link": ((WHOLE, (f"{NAME}/link", "->/etc")), "is not a file of a kernel's own directory"),
}


@pytest.mark.parametrize(("members", "words"), FAULTS.values(), ids=list(FAULTS))
def test_a_file_that_is_no_kernel_of_ours_is_refused(
    members: tuple[tuple[str, str], ...], words: str, use: Use, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        import_kernel(archive(tmp_path / "kernel.tar.gz", *members))
    assert list(kernel.cache_directory().iterdir()) == []


def test_a_file_that_is_not_whole_is_refused(use: Use, tmp_path: Path) -> None:
    file = export_kernel(small_kernel(), tmp_path / "kernel.tar.gz")
    (tmp_path / "half.tar.gz").write_bytes(file.read_bytes()[:200])
    use("there")
    for name in ("half.tar.gz", "none.tar.gz"):
        with pytest.raises(UsageError, match="cannot be read: "):
            import_kernel(tmp_path / name)
    assert kernel.find() is None
