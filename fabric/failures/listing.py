"""The list of all kinds of failures."""

from __future__ import annotations

from collections.abc import Sequence

from fabric.failures.kind import FailureKind
from fabric.failures.kinds import disk, gpu, link, process, silent
from fabric.failures.line import FailureConfig

LINES: Sequence[type[FailureConfig]] = (
    link.LinkFailureConfig,
    silent.SilentFailureConfig,
    process.ProcessFailureConfig,
    disk.DiskFailureConfig,
    gpu.GpuFailureConfig,
)
"""What a line of ``failures`` may be, in the order of their targets in messages."""
KINDS: Sequence[FailureKind] = (link.KIND, process.KIND, disk.KIND, gpu.KIND)
"""What is carried out. Links come first: their process lives as long as the run, and plays every schedule."""
