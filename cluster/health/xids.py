"""GPU errors by their Xid: what each asks for, and the lines of the kernel's log that tell them.

The classes are Fire-Flyer 2's (arXiv 2408.14158v2, Table VI), what to do NVIDIA's (Xid Errors, r555, its catalog):
errors of software end the program and leave the GPU as it was; others ask for a reset or a repair, and take the node
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Ask(str, Enum):
    """What an error asks for."""

    RESTART = "restart"
    """The program has ended, or must be; the GPU is sound."""
    RESET = "reset"
    """The GPU must be reset before anything else runs on it: the node is taken out."""
    REPAIR = "repair"
    """A part is broken, or may be."""


@dataclass(frozen=True)
class XidClass:
    """A class of errors: what it is called, what it asks for, and whether it is of the GPU's memory."""

    words: str
    ask: Ask
    is_memory: bool = False

    @property
    def takes_out(self) -> bool:
        """Whether a node with such an error is taken out."""
        return self.ask is not Ask.RESTART


XIDS: dict[int, XidClass] = {
    13: XidClass("exception of the graphics engine", Ask.RESTART),
    31: XidClass("memory page fault of the program", Ask.RESTART),
    43: XidClass("the program's channel was reset", Ask.RESTART),
    45: XidClass("the program was ended after an error before", Ask.RESTART),
    44: XidClass("fault while switching contexts", Ask.RESET),
    48: XidClass("uncorrectable ECC error", Ask.RESET, is_memory=True),
    61: XidClass("breakpoint of the internal micro-controller", Ask.RESET),
    62: XidClass("halt of the internal micro-controller", Ask.RESET),
    63: XidClass("row remapped", Ask.RESET, is_memory=True),
    64: XidClass("row remapping failed", Ask.REPAIR, is_memory=True),
    69: XidClass("class error of the graphics engine", Ask.RESET),
    74: XidClass("NVLink error", Ask.RESET),
    79: XidClass("GPU has fallen off the bus", Ask.REPAIR),
    94: XidClass("contained ECC error", Ask.RESET, is_memory=True),
    95: XidClass("uncontained ECC error", Ask.RESET, is_memory=True),
    119: XidClass("GSP did not answer", Ask.RESET),
}
"""Every Xid of Table VI."""
_LINE = re.compile(r"^\[\s*(\d+\.\d+)\] NVRM: Xid \(PCI:0000:([0-9a-f]{2}):00\): (\d+), (.*)$")


@dataclass(frozen=True)
class GpuError:
    """An error of a GPU, by the node's clock (``time.monotonic()``)."""

    at_s: float
    gpu: int
    xid: int

    @property
    def kind(self) -> XidClass:
        """Its class; of an Xid that is not known, one that asks for a repair."""
        return XIDS.get(self.xid, XidClass("not known here", Ask.REPAIR))

    @property
    def words(self) -> str:
        """The GPU and its error, such as ``GPU 2: Xid 79: GPU has fallen off the bus``."""
        return f"GPU {self.gpu}: Xid {self.xid}: {self.kind.words}"

    def line(self) -> str:
        """Return the line of the kernel's log, as NVIDIA's driver writes it, without its end."""
        return f"[{self.at_s:12.6f}] NVRM: Xid (PCI:0000:{self.gpu:02x}:00): {self.xid}, {self.kind.words}"


def errors_in(log: str) -> Iterator[GpuError]:
    """Yield the errors that a kernel's log tells; what else is in it is passed over."""
    for line in log.splitlines():
        if (found := _LINE.match(line)) is not None:
            at_s, gpu, xid, _ = found.groups()
            yield GpuError(float(at_s), int(gpu, 16), int(xid))
