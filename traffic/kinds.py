"""The kinds of jobs of this package. A new one stands in the folder of its programs, and here.

A config may name these and those of packages above: ``runs/kinds.py`` lists them all.
"""

from __future__ import annotations

from traffic.collectives.kinds import HFREDUCE, NCCL
from traffic.flows.kinds import BACKGROUND
from traffic.job_kind import JobKind
from traffic.programs.kinds import PROGRAM
from traffic.sorting.kinds import SORT
from traffic.storage.kinds import STORAGE
from traffic.storage.kv_cache.kinds import KV_CACHE
from traffic.storage.metadata.kinds import FILES
from traffic.work.kinds import TRAINING, WORK

TRAFFIC_KINDS: tuple[JobKind, ...] = (
    HFREDUCE, NCCL, STORAGE, FILES, KV_CACHE, BACKGROUND, PROGRAM, WORK, TRAINING, SORT,
)  # fmt: skip
"""In the order in which references list them."""
