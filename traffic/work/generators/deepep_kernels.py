"""What a call of DeepEP's kernels costs besides bytes over NICs, by its source and other numbers of its authors.

A call is timed whole: the kernel that makes all ranks wait for all and cleans buffers (``cached_notify``), then the one
that moves tokens. That one works by channels, each on two SMs, and hands tokens on in chunks: on the way back the NIC
has nothing to send until a chunk of each channel and node has crossed NVLink and been added up; on the way out the last
chunks cross NVLink once the NIC has brought them. Nothing here comes from what is compared with: bandwidth over nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTIFY_S = 60e-6
"""What ``cached_notify`` takes between nodes if no rank is late (deepseek-ai/DeepEP, issue 107)."""
NVLINK_BPS = {"dispatch": 153e9, "combine": 158e9}
"""Bytes per second inside a node of 8, a GPU's own part counted, as published of the same kernels in one node."""
PUBLISHED_BPS = {
    16: {"dispatch": 43e9, "combine": 43e9},
    32: {"dispatch": 58e9, "combine": 57e9},
    64: {"dispatch": 51e9, "combine": 50e9},
}
"""Bytes per second of all that a rank sends, its own node's part too, by ranks (deepseek-ai/DeepEP, docs/legacy.md)."""
CHANNELS = 12
"""Of the 24 SMs with which bandwidth was measured, two each."""
CHUNK_TOKENS = {
    16: {"dispatch": 20, "combine": 28},
    32: {"dispatch": 32, "combine": 20},
    64: {"dispatch": 28, "combine": 20},
}
"""Tokens of a message, by ranks: what ``get_dispatch_config`` and ``get_combine_config`` said when it was measured."""


@dataclass(frozen=True)
class CallTimes:
    """Times of a rank's call. ``nvlink_s``: all its tokens inside the node; ``first_s``, ``last_s``: before the NIC
    begins, and after it has ended."""

    notify_s: float
    nvlink_s: float
    first_s: float
    last_s: float


def call_times(what: str, shape: tuple[int, int], sizes: tuple[int, int], shrink: float) -> CallTimes:
    """Return the times of a dispatch or a combine. ``shape``: ranks, and nodes; ``sizes``: tokens that the rank sends
    over its rail, and bytes that it sends in its node, both with its own part; ``shrink``: by what tokens are fewer
    than they were when measured, and times shorter. A last chunk is half full on average."""
    (ranks, nodes), (tokens, in_node) = shape, sizes
    nvlink_s = in_node / NVLINK_BPS[what]
    in_chunks = CHUNK_TOKENS[ranks][what] * CHANNELS * nodes
    part_s = nvlink_s * min(1.0, in_chunks / (tokens * shrink)) if tokens else 0.0
    first_s, last_s = (part_s, 0.0) if what == "combine" else (0.0, part_s / 2)
    return CallTimes(NOTIFY_S / shrink, nvlink_s, first_s, last_s)
