"""Kernels of a few files, which nobody runs."""

from __future__ import annotations

from collections.abc import Callable

from fabric.world.kernel_api import modules
from fabric.world.virtual import kernel
from fabric.world.virtual.kernel import KernelPaths

NAME = f"linux-6.1-0a1b2c3d-{kernel.fingerprint()}"
Use = Callable[[str], None]


def small_kernel(with_module: bool = True, name: str = NAME) -> KernelPaths:
    directory = kernel.cache_directory() / name
    (directory / "tree").mkdir(parents=True)
    (directory / "kernel.json").write_text('{"release": "6.1"}')
    (directory / "linux").write_text("a program")
    (directory / "linux").chmod(0o755)
    (directory / "tree" / "link").symlink_to("../linux")
    if with_module:
        (directory.parent / "sch_vl.ko").write_text("a module")
        modules.put(name, directory.parent)
    return KernelPaths(directory)
