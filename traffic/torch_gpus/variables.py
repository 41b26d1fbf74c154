"""Variables by which ``fabric exec`` says which GPUs hosts have."""

from fabric.errors import UsageError

GPU = "FABRIC_GPU"
"""Its name in the catalogue."""
COUNT = "FABRIC_GPUS"
"""How many a host has."""
VALUES = "FABRIC_GPU_VALUES"
"""What reads of values give: NAN for nan, 0 and False, else an error."""
NAN = "nan"
ROUTER = "FABRIC_GPU_ROUTER"
"""SEED or SEED:SKEW of tokens' experts, which no GPU chooses."""
TIMES = "FABRIC_GPU_TIMES"
"""The file of operators' measured times, our own CSV."""

_SEEDS, _MOST_SKEW = 2**32, 100.0


def seed_and_skew(text: str) -> tuple[int, float]:
    """Return what ROUTER says. Raises UsageError."""
    seed, colon, skew = text.partition(":")
    try:
        found = int(seed), float(skew) if colon else 0.0
    except ValueError:
        raise UsageError(f"--gpu-router {text}: is not SEED or SEED:SKEW; give e.g. 1 or 1:0.5") from None
    if not 0 <= found[0] < _SEEDS or not 0 <= found[1] <= _MOST_SKEW:
        raise UsageError(f"--gpu-router {text}: give a seed from 0 to {_SEEDS - 1}, a skew from 0 to {_MOST_SKEW:g}")
    return found
