"""The program of a guest that measures: one function after the other, each in a process and namespaces of its own.

A request is a line ``["MODULE", "FUNCTION", [ARGUMENT, ...]]``. The answer is what the function prints, a line ``result
JSON``, unless it failed, and a line ``done`` once nothing of it is left.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fabric.world.isolation.mounts import mount
from fabric.world.isolation.netns import CLONE_NEWNET
from fabric.world.kernel_api import modules
from fabric.world.virtual.dialogue import next_line
from fabric.world.virtual.guest import CONTROL
from tests.vl.lab import load_module

_NEW_NAMESPACES = CLONE_NEWNET | 0x20000000 | 0x00020000  # CLONE_NEWPID, CLONE_NEWNS
_MOST_ORPHANS = Path("/proc/sys/net/ipv4/tcp_max_orphans")
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Answer requests until there are no more."""
    while (request := next_line(CONTROL)) is not None:
        module, function, arguments = json.loads(request)
        found = importlib.import_module(f"tests.vl.{module}")  # Here, so that its other functions have it, too.
        in_child(partial(measure_apart, partial(getattr(found, function), *arguments)))
        unload_modules()
        print("done", flush=True)


def unload_modules() -> None:
    """Take the project's modules out, once the connections that used them have gone.

    Those whose programs have ended send their last bytes again for minutes: the switches on their way have ended, too.
    """
    before = _MOST_ORPHANS.read_text()
    _MOST_ORPHANS.write_text("0")
    for name in (*modules.CONGESTION_CONTROLS.values(), modules.VL):
        if modules.is_loaded(name):
            modules.unload(name)
    _MOST_ORPHANS.write_text(before)


def measure_apart(function: Callable[[], object]) -> None:
    """Measure in new namespaces."""
    if _libc.unshare(_NEW_NAMESPACES) != 0:
        raise OSError(ctypes.get_errno(), "making namespaces")
    in_child(partial(measure, function))  # The first process of the new ones: all end with it.


def measure(function: Callable[[], object]) -> None:
    """Print what a function returns, in namespaces of its own."""
    mount("proc", Path("/proc"), 0)
    mount("tmpfs", Path("/run"), 0, "mode=755")
    load_module()
    print("\nresult", json.dumps(function()), flush=True)


def in_child(play: Callable[[], None]) -> None:
    """Call a function in a forked process, and wait for its end."""
    child = os.fork()
    if child == 0:
        try:
            play()
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
