"""How long frames waited to be switched, at least, from samples of queued and of switched packets.

A sample shows how much waits in front of the switches (of userspace ones in their sockets, of the kernel's in its
cores' queues), and then how many packets they have handed to their ports' queues so far. While something waits at
every sample, and fewer packets than waited in the first have been handed on since the sample before it, some that
waited then wait still: this is a proof, not an estimate, and it detects a switch that stands still though nothing new
arrives, which the length of the queue alone does not show. The kernel's queues hold frames on their way to hosts,
too, and those of others on the machine: there, what is proved is that much was late.

What passes within one period of sampling cannot be proved, and is 0 here; the mean wait (Little's law) has it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MEMORY_OF_FRAME = 2.5
"""Memory of a waiting frame over its size, at most: 2.14 for 4,214 bytes. Short ones take 768 bytes."""
_LEAST_MEMORY_BYTES = 1024


def waiting_packets(memory_bytes: npt.NDArray[np.int64], frame_bytes: int) -> npt.NDArray[np.int64]:
    """Return how many frames wait at least, from the memory that they take; ``frame_bytes`` is the largest frame."""
    of_frame = max(_LEAST_MEMORY_BYTES, round(_MEMORY_OF_FRAME * frame_bytes))
    return -(-memory_bytes // of_frame)


def least_waits_s(
    at_s: npt.NDArray[np.float64], waiting: npt.NDArray[np.int64], switched: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return, for each sample, how long the last of the frames ``waiting`` in it waited from then on, at least.

    ``switched`` is cumulative, and read after ``waiting``: the packets that switches have handed to ports' queues.
    """
    here = np.arange(len(at_s))
    before = switched[np.maximum(here - 1, 0)]  # What this sample says of it may include what waited in it.
    all_switched = np.searchsorted(switched, before + waiting, side="left")
    still_waiting = np.minimum(all_switched, _next_empty(waiting)) - 1
    return np.where(here > 0, at_s[np.maximum(here, still_waiting)] - at_s, 0.0)


def _next_empty(waiting: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return, for each sample, the first one from it on in which nothing waits; the number of samples if none is."""
    places = np.where(waiting == 0, np.arange(len(waiting)), len(waiting))
    return np.minimum.accumulate(places[::-1])[::-1]
