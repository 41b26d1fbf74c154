"""The program of a guest that measures: one function after the other, each in a process and namespaces of its own.

A request is a line ``["MODULE", "FUNCTION", [ARGUMENT, ...]]``; the answer is a line, ``result JSON`` or ``failed
REASON``, after what the function printed.
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

from fabric.world import modules
from fabric.world.mounts import mount
from fabric.world.netns import CLONE_NEWNET
from fabric.world.virtual.dialogue import next_line
from fabric.world.virtual.guest import CONTROL
from tests.vl.lab import load_module

_NEW_NAMESPACES = CLONE_NEWNET | 0x20000000 | 0x00020000  # CLONE_NEWPID, CLONE_NEWNS
_IMPORTED = ("budgets", "congestion", "edges", "fabrics", "leaks", "links", "marking", "rings")
_MOST_ORPHANS = Path("/proc/sys/net/ipv4/tcp_max_orphans")
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Answer requests until there are no more."""
    for name in _IMPORTED:  # Once, in place of in each process.
        importlib.import_module(f"tests.vl.{name}")
    while (request := next_line(CONTROL)) is not None:
        module, function, arguments = json.loads(request)
        in_child(partial(answer, module, function, arguments))
        unload_modules()


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


def answer(module: str, function: str, arguments: list[object]) -> None:
    """Measure in new namespaces, and print the result or why there is none; end this process."""
    if _libc.unshare(_NEW_NAMESPACES) != 0:
        raise OSError(ctypes.get_errno(), "making namespaces")
    in_child(partial(measure, module, function, arguments))  # The first process of the new ones: all end with it.


def measure(module: str, function: str, arguments: list[object]) -> None:
    """Do that, in them."""
    mount("proc", Path("/proc"), 0)
    mount("tmpfs", Path("/run"), 0, "mode=755")
    load_module()
    found = getattr(importlib.import_module(f"tests.vl.{module}"), function)(*arguments)
    print("\nresult", json.dumps(found), flush=True)


def in_child(play: Callable[[], None]) -> None:
    """Call a function in a forked process, wait for its end, and say so if it failed."""
    child = os.fork()
    if child == 0:
        try:
            play()
        except BaseException as error:
            traceback.print_exc(file=sys.stdout)
            print(f"failed {error!r}", flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
