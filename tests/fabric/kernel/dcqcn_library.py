"""``fabric/kernel/dcqcn.c`` compiled for this process: the very code that runs in kernels, behind ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, ClassVar

from fabric.world.kernel_api.modules import SOURCE
from tests.fabric.kernel.dcqcn_reference import Parameters

_WIDE_PARAMETERS = 8
"""The first members of ``struct dcqcn_parameters`` have 64 bits, the others 32."""
_STATE = (
    *((name, ctypes.c_uint64) for name in ("rate_bps", "target_bps", "alpha_due_ns", "stage_due_ns", "cnp_at_ns")),
    ("bytes", ctypes.c_uint64),
    *((name, ctypes.c_uint32) for name in ("alpha", "time_stages", "byte_stages", "limited")),
)


class CParameters(ctypes.Structure):
    """``struct dcqcn_parameters``."""

    _fields_: ClassVar[Any] = [
        (one.name, ctypes.c_uint64 if place < _WIDE_PARAMETERS else ctypes.c_uint32)
        for place, one in enumerate(fields(Parameters))
    ]


class CFlowState(ctypes.Structure):
    """``struct dcqcn``."""

    _fields_: ClassVar[Any] = list(_STATE)

    def members(self) -> tuple[int, ...]:
        """Return all members."""
        return tuple(getattr(self, name) for name, _ in _STATE)


class Library:
    """The functions of ``dcqcn.h``."""

    def __init__(self, directory: Path) -> None:
        path = directory / "dcqcn.so"
        command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
        subprocess.run([*command, "-shared", "-fPIC", "-o", path, SOURCE / "dcqcn.c"], check=True, timeout=60)
        self._c = ctypes.CDLL(str(path))
        self._c.dcqcn_fault.restype = ctypes.c_char_p
        self._c.dcqcn_advance.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
        self._c.dcqcn_hear.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]

    def fault(self, parameters: Parameters) -> str | None:
        """Return why parameters cannot be; None: they can."""
        found: bytes | None = self._c.dcqcn_fault(ctypes.byref(CParameters(*astuple(parameters))))
        return None if found is None else found.decode()

    def flow(self, parameters: Parameters) -> CFlow:
        """Return a flow that has not sent anything."""
        return CFlow(self._c, parameters)


class CFlow:
    """A ``struct dcqcn``, with the methods of :class:`tests.fabric.kernel.dcqcn_reference.ReactionPoint`."""

    def __init__(self, library: ctypes.CDLL, parameters: Parameters) -> None:
        self._c = library
        self._parameters = CParameters(*astuple(parameters))
        self._flow = CFlowState()
        self._at = ctypes.addressof(self._flow), ctypes.addressof(self._parameters)
        self._c.dcqcn_start(ctypes.byref(self._flow), ctypes.byref(self._parameters))

    def advance(self, now_ns: int, sent_bytes: int) -> None:
        """Let time pass and count bytes."""
        self._c.dcqcn_advance(*self._at, now_ns, sent_bytes)

    def hear(self, now_ns: int) -> bool:
        """Hear of a marked frame; return whether it cut the rate."""
        return bool(self._c.dcqcn_hear(*self._at, now_ns))

    def state(self) -> tuple[int, ...]:
        """Return all members."""
        return self._flow.members()
