"""What a user's Python does as it starts: waits for ``import torch``, and lets that have GPUs that are not there."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from fabric.world.isolation.processes import stat_of
from traffic.torch_gpus.variables import GPU, NAN, VALUES

_TORCH = "torch"
_BACKWARD = "pt_autograd_"
_SLEEPS = "S"
_LOOKS, _LOOK_S = 3, 1e-4
_LIBRARIES = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")


def watch() -> None:
    """Let ``import torch`` have GPUs, if this process was asked to."""
    if GPU in os.environ and _TORCH not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where PyTorch is, with what comes before and after."""
        if fullname != _TORCH:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and spec.origin is not None:
            spec.loader = _Loading(spec.loader, Path(spec.origin).parent)
        return spec


class _Loading(Loader):
    """Loads PyTorch. The library comes first: what PyTorch asks of CUDA as it is imported, it does not ask again."""

    def __init__(self, real: Loader, home: Path) -> None:
        self._real, self._home = real, home

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module, which is not filled yet."""
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module."""
        from traffic.torch_gpus.library import device_library

        library = device_library(self._home)
        for name in _LIBRARIES:
            ctypes.CDLL(str(self._home / "lib" / name), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(library))
        self._real.exec_module(module)
        _install()


def _install() -> None:
    from traffic.torch_gpus.forking import fork_ranks, is_launcher
    from traffic.torch_gpus.machine import Machine
    from traffic.torch_gpus.replacements import install
    from traffic.torch_gpus.report import words_of
    from traffic.torch_gpus.router import Router
    from traffic.torch_gpus.streams import Here

    machine = Machine.from_environment()
    Here.router = Router.from_environment(os.environ)
    install(machine, os.environ.get(VALUES) == NAN)
    atexit.register(await_backward_threads)
    atexit.register(lambda: _tell(words_of(machine, os.environ.get("RANK", "0"), Here.communications)))
    if is_launcher(sys.orig_argv):
        fork_ranks()


def await_backward_threads(limit_s: float = 10.0) -> None:
    """Wait until PyTorch's threads of backward passes rest.

    After a pass they still let go of its modes, which are Python's objects. A thread that asks for Python's lock as
    Python ends is ended by it, in a destructor of C++: that ends the process (std::terminate). A thread that asks for
    the lock sleeps as one that rests does, but no longer once this one has let go of it.
    """
    deadline = time.monotonic() + limit_s
    rested = 0
    while rested < _LOOKS and any(states := _states_of_backward_threads()) and time.monotonic() < deadline:
        rested = rested + 1 if set(states) == {_SLEEPS} else 0
        time.sleep(_LOOK_S)


def _states_of_backward_threads() -> list[str]:
    """Return the state of each, as /proc has it."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            if (task / "comm").read_text().startswith(_BACKWARD):
                found += stat_of(int(task.name))[:1]
    return found


def _tell(words: Iterable[str]) -> None:
    if os.environ.get("RANK", "0") == "0" and (said := "\n".join(words)):
        print(said, file=sys.stderr, flush=True)
