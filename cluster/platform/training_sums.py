"""What ranks of :mod:`cluster.platform.training_steps` and :mod:`cluster.platform.graph_steps` must come to in a step,
computed apart from them. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache

from cluster.platform.gang import LANE_BYTES
from cluster.platform.graph_jobs import PROGRAM as GRAPH_PROGRAM
from cluster.platform.graph_jobs import SAMPLES as GRAPH_SAMPLES
from cluster.platform.graph_jobs import values_of
from cluster.platform.training_steps import SAMPLES, VALUES, factor, pattern

_PROGRAM = "cluster.platform.training_steps"


def sum_of(command: Sequence[str]) -> Callable[[int], str] | None:
    """Return the checksum that each rank prints of a step, as a function of the step; None for another program."""
    words = list(command)
    if GRAPH_PROGRAM in words[:-1] and (of_graph := values_of(words[-1])) is not None:
        return lambda step: checksum(step, of_graph, GRAPH_SAMPLES)
    if _PROGRAM not in words:
        return None
    values = int(words[words.index("--values") + 1]) if "--values" in words else VALUES
    return lambda step: checksum(step, values)


@cache
def checksum(step: int, values: int, samples: int = SAMPLES) -> str:
    """Return the CRC-32 of the sum of a step over all samples, in hexadecimal."""
    total = _pattern(values) * factor(step, range(samples))
    return f"{zlib.crc32(total.to_bytes(LANE_BYTES * values, 'little')):08x}"


_pattern = cache(pattern)
