"""What plays in a phase: reads, other jobs, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.storage_throughput.config import StorageThroughputConfig
from fabric.model.lanes import Queueing
from runs.cases import Case, axis
from runs.study import Found, Played
from traffic.storage.config import limit_words

PAPER_SHARE, BESIDE_SHARE = 8 / 9, 6.6 * 2**40 / 9e12
"""Of 9 TB/s reads reached 8 (arXiv 2408.14158v2, VI-B); 3FS's own measurement, with training behind it, reached so many
TiB/s of as many NICs (3FS's README)."""
AnyFound = Found[Any, StorageThroughputConfig]
AnyPlayed = Played[Any, StorageThroughputConfig]
OTHERS_ALONE = "{queueing}_others_alone"


@dataclass(frozen=True)
class OthersAlone(Case, name=OTHERS_ALONE, alone=OTHERS_ALONE, title="others alone, {queueing}"):
    """Other jobs without reads."""

    queueing: Queueing = axis(lambda config: config.queueings if config.beside else ())
    is_beside = True


@dataclass(frozen=True)
class Reads(Case, name="{queueing}_rts_{limit}{is_beside}", alone=OTHERS_ALONE, title="{limit}, {queueing}{is_beside}"):
    """Which limit reads have (None: none), in which queues; ``is_beside``: whether other jobs play, too."""

    queueing: Queueing = axis("queueings")
    limit: int | None = axis("request_to_send", words=limit_words, sets="storage.request_to_send")
    is_beside: bool = axis(
        lambda config: (False, True) if config.beside else (False,), "_beside".__mul__, ", beside others".__mul__
    )
