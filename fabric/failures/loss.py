"""Random loss of frames on a port, counted exactly, by a small BPF program on its way out (clsact).

This works without netem. A lost frame is taken before the port's queues, so the link carries less by the frames that it
loses; the sender is told nothing, as on a real wire (``TC_ACT_STOLEN``: a drop would make a host's TCP slow
down without having missed an acknowledgement). Layouts: linux/{bpf,pkt_cls,pkt_sched}.h.
"""

from __future__ import annotations

import os
import struct

from fabric.world.kernel_api import bpf
from fabric.world.kernel_api.bpf import EXIT, TC_ACT_OK, TC_ACT_STOLEN, Way, instruction
from fabric.world.kernel_api.netlink import Request

_WHAT = "random loss"
_THRESHOLD = struct.Struct("=Q")
"""The program's first memory: lose a frame if a random 32-bit number is below it."""
_LOST = struct.Struct("=QQ")
"""Its second, which it alone writes, so that no frame goes uncounted: frames and bytes lost so far."""


def _program(threshold: int, lost: int) -> bytes:
    """Return the program over two maps of one value: r6 the frame, r7 the threshold, r8 the counters."""
    lose = [
        instruction(0xB7, to=1, immediate=1),  # r1 = 1
        instruction(0xDB, to=8, source=1, offset=0),  # frames lost += r1, atomically
        instruction(0x61, to=1, source=6, offset=0),  # r1 = length of the frame
        instruction(0xDB, to=8, source=1, offset=8),  # bytes lost += r1, atomically
        instruction(0xB7, immediate=TC_ACT_STOLEN),
        instruction(EXIT),  # exit
    ]
    return b"".join(
        [
            instruction(0xBF, to=6, source=1),
            instruction(0x18, to=7, source=2, immediate=threshold) + instruction(0),  # r7 = the map's value itself
            instruction(0x18, to=8, source=2, immediate=lost) + instruction(0),
            instruction(0x85, immediate=7),  # r0 = bpf_get_prandom_u32()
            instruction(0x79, to=1, source=7, offset=0),  # r1 = threshold
            instruction(0x3D, source=1, offset=len(lose)),  # if r0 >= r1: pass
            *lose,
            instruction(0xB7, immediate=TC_ACT_OK),
            instruction(EXIT),
        ]
    )


class LossProgram:
    """A loaded program with its memory. Raises EmulationError, with the kernel's reason, if it cannot be."""

    def __init__(self) -> None:
        self._threshold, self._lost = (bpf.memory_of(value.size, _WHAT) for value in (_THRESHOLD, _LOST))
        self._descriptor = bpf.load(_program(self._threshold, self._lost), _WHAT)

    def set_fraction(self, fraction: float) -> None:
        """Lose this part of the frames from now on; what was lost stays counted."""
        bpf.write(self._threshold, _THRESHOLD.pack(round(fraction * 2**32)), _WHAT)

    def lost(self) -> tuple[int, int]:
        """Return the frames and bytes lost so far."""
        frames, size_bytes = _LOST.unpack(bpf.read(self._lost, _LOST.size, _WHAT))
        return frames, size_bytes

    def install_requests(self, index: int, interface: str) -> list[Request]:
        """Return what puts the program on a port's way out."""
        return bpf.install_requests(self._descriptor, index, interface, Way.OUT, _WHAT)

    def close(self) -> None:
        """Let go of it; where it is installed it stays until it is taken off."""
        os.close(self._descriptor)
        os.close(self._threshold)
        os.close(self._lost)


def remove_request(index: int, interface: str) -> Request:
    """Return what takes the program off a port."""
    return bpf.remove_request(index, interface, Way.OUT, _WHAT)
