"""The library that is loaded into the guest kernel's process, without a guest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fabric.world.virtual as virtual

_KEPT = 512 + 64
"""x87's and SSE's state and XSAVE's header: less than any processor with AVX has, as 2696 bytes are of AMX's."""
_TRACER = f"""
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def call(request, pid, address, data):
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

traced = os.fork()
if traced == 0:
    libc.ptrace(0, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(7)
os.waitpid(traced, 0)
state = ctypes.create_string_buffer({_KEPT})
vector = Vector(ctypes.addressof(state), len(state))
try:
    for _ in range(2):
        call(0x4204, traced, 0x202, ctypes.addressof(vector))
        state[160:164] = b"abcd"  # A program's XMM0.
        call(0x4205, traced, 0x202, ctypes.addressof(vector))
        state[160:164] = b"...."
    call(0x4204, traced, 0x202, ctypes.addressof(vector))
    print(state[160:164].decode())
    call(7, traced, None, None)
    print(os.waitstatus_to_exitcode(os.waitpid(traced, 0)[1]))
except OSError as error:
    print(error.strerror)
    os.kill(traced, signal.SIGKILL)
"""


def _traced(library: Path | None) -> list[str]:
    environment = {**os.environ, **({"LD_PRELOAD": str(library)} if library else {})}
    command = [sys.executable, "-c", _TRACER]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout.split("\n")[:-1]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library, built."""
    built = tmp_path_factory.mktemp("host") / "host.so"
    source = Path(virtual.__file__).with_name("host.c")
    command = [
        "gcc",
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(built),
        str(source),
        "-ldl",
    ]
    subprocess.run(command, timeout=60, check=True)
    return built


def test_vector_state_that_a_kernel_keeps_a_part_of_is_given_back_whole(library: Path) -> None:
    assert _traced(None) == ["Bad address"], "this host takes a part: the test shows nothing"
    assert _traced(library) == ["abcd", "7"]


_ORPHAN = """
import os
reading, writing = os.pipe2(0)
kernel = os.fork()
if kernel == 0:  # The library takes the process that loads it for the kernel: load it anew.
    os.execv({python!r}, [{python!r}, "-c", '''
import ctypes, os, time
kernel = os.getpid()
if os.fork() == 0:
    while os.getppid() == kernel:
        time.sleep(0.01)
    ctypes.CDLL(None).ptrace(0, 0, None, None)
    os.write({{}}, b"traced by another")
    os._exit(0)
'''.format(writing)])
os.close(writing)
os.waitpid(kernel, 0)
print(os.read(reading, 100).decode())
"""


def _said_by_an_orphan(library: Path | None) -> str:
    environment = {**os.environ, **({"LD_PRELOAD": str(library)} if library else {})}
    script = _ORPHAN.format(python=sys.executable)
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_a_programs_process_whose_kernel_has_ended_lets_nobody_else_trace_it(library: Path) -> None:
    """Init would, and would never let it go."""
    assert _said_by_an_orphan(None) == "traced by another"
    assert _said_by_an_orphan(library) == ""
