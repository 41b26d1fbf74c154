"""What a run is named by: the hash of all that decides its figures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DIGITS = 16


def run_key(config: Mapping[str, Any], seed: int, engine: str, kernel: str, memory_bytes: int | None = None) -> str:
    """Return the name of a run: the same for the same resolved config, seed, engine and kernel.

    ``memory_bytes``: of a guest, if it is not the usual one; it counts as a part of the engine, for figures may depend
    on it.
    """
    what = {"config": {**config, "seed": seed}, "engine": [engine, memory_bytes], "kernel": kernel}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:_DIGITS]
