"""How long packets wait at a link that come at random, beside theory: M/D/1, and Lindley's recursion. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabric.measures import Better, Measure

MEASURES = (
    Measure("theory_wait_s", "mean wait of such arrivals in theory (M/D/1)"),
    Measure("lost_packets", "packets that were sent and did not arrive", Better.LESS),
    Measure("mean_wait_s", "mean wait of packets at the link"),
    Measure("error_s", "standard error of the mean wait, of means of batches", Better.LESS),
    Measure("explained_wait_s", "mean wait that these arrivals explain, by Lindley's recursion"),
    Measure(
        "most_off_s", "most that the wait of a packet differs from what the arrivals before it explain", Better.LESS
    ),
    Measure("longest_wait_s", "longest wait of a packet"),
)
Seconds = npt.NDArray[np.float64]


def waits(sent_s: Seconds, came_s: Seconds, load: float, wire_s: float, sent: int, batches: int) -> dict[str, float]:
    """Return the mean wait of packets, its standard error, what theory says of such arrivals (M/D/1) and of these very
    ones. ``sent_s`` and ``came_s``: of each packet that came, in the order of sending, shape (n,); ``sent``: how many
    were sent; ``batches``: stretches of them, whose means give the error.

    What a packet takes that does not wait is the median of what each took beyond the wait that those before it explain.
    ``most_off_s`` is how far a single packet was from that.
    """
    found = {"theory_wait_s": load / (2 * (1 - load)) * wire_s, "lost_packets": float(sent - len(sent_s))}
    if len(sent_s) < batches:
        return found
    explained_s = lindley(sent_s, wire_s)
    beyond_s = came_s - sent_s - explained_s
    unhindered_s = float(np.median(beyond_s))
    waited_s = came_s - sent_s - unhindered_s
    means = [float(batch.mean()) for batch in np.array_split(waited_s, batches)]
    return found | {
        "mean_wait_s": float(waited_s.mean()),
        "error_s": float(np.std(means, ddof=1)) / len(means) ** 0.5,
        "explained_wait_s": float(explained_s.mean()),
        "most_off_s": float(np.abs(beyond_s - unhindered_s).max()),
        "longest_wait_s": float(waited_s.max()),
    }


def lindley(sent_s: Seconds, wire_s: float) -> Seconds:
    """Return how long each packet has to wait for those before it: W' = max(0, W + S - gap) (Lindley, 1952)."""
    found = np.zeros(len(sent_s))
    for number, gap_s in enumerate(np.diff(sent_s), start=1):
        found[number] = max(0.0, found[number - 1] + wire_s - gap_s)
    return found
