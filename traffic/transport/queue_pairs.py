"""What a run's queue pairs are like: how they recover from losses, how long they wait, by which UDP ports ECMP tells
them; and what they have counted.

RoCE v2 sends each queue pair's frames from a UDP source port of its own. NICs compute it as Linux'
``rdma_get_udp_sport`` does: from the flow label of the queue pair, and without one from the numbers of both.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fabric.config import OFF_IS_NONE, NoneAs, Strict, TimeS
from fabric.errors import EmulationError
from fabric.world.programs import guest_calls

ROCE_PORT = 4791
MOST_LABELS = 0x3FFF
"""As many flow labels have source ports of their own."""
_FIRST_PORT = 0xC000
_LEAST_TIMEOUT_S, _MOST_EXPONENT = 4.096e-6, 31
_PARAMETERS = Path("/sys/module/rdma_rxe/parameters")
_COUNTS = Path("/proc/thread-self/net/rdma_queue_pairs")


FlowLabels = Annotated[Annotated[int, Field(ge=1, le=MOST_LABELS)] | None, OFF_IS_NONE, NoneAs("off")]


class Recovery(Enum):
    """What a queue pair sends again once a frame is missing."""

    GO_BACK_N = "go_back_n"
    SELECTIVE_REPEAT = "selective_repeat"


class QueuePairConfig(Strict):
    """Queue pairs of RDMA, in virtual time."""

    recovery: Annotated[Recovery, Field(strict=False)] = Field(
        default=Recovery.GO_BACK_N,
        description=(
            "What is sent again after a loss: all from the missing frame on (`go_back_n`, as InfiniBand has it), or "
            "what is missing (`selective_repeat`, as IRN: receivers keep what comes early, and name it)."
        ),
    )
    ack_timeout: Annotated[TimeS, Field(ge=_LEAST_TIMEOUT_S, le=8800)] = Field(
        default=_LEAST_TIMEOUT_S * 2**14,
        description="How long a queue pair waits for an acknowledgement; rounded up to 4.096 us times a power of 2.",
    )
    retries: Annotated[int, Field(ge=0, le=7)] = Field(
        default=7, description="Timeouts in a row after which a queue pair gives up, and its connection fails."
    )
    flow_labels: FlowLabels = Field(
        default=None,
        description=(
            "From how many flow labels, and so UDP source ports, each queue pair draws one; `off`: NICs compute "
            "ports from the numbers of both queue pairs."
        ),
    )

    @property
    def timeout_exponent(self) -> int:
        """The timeout as verbs have it: of 2, in 4.096 us, and no less than asked for."""
        fitting = (n for n in range(1, _MOST_EXPONENT) if _LEAST_TIMEOUT_S * 2**n >= self.ack_timeout * (1 - 1e-9))
        return next(fitting, _MOST_EXPONENT)

    def flow_label(self, ends: str) -> int:
        """Return the label of the queue pair that ``ends`` name, the same each time; 0: the NIC computes its port."""
        return 0 if self.flow_labels is None else 1 + random.Random(ends).randrange(self.flow_labels)


def udp_source_port(flow_label: int, own: int, peer: int) -> int:
    """Return the UDP source port of a queue pair, by its number and its peer's, as ``rdma_get_udp_sport`` does."""
    if not flow_label:
        product = own * peer & 0xFFFFFFFFFFFFFFFF
        product ^= product >> 20
        product ^= product >> 40
        flow_label = product & 0xFFFFF
    return (flow_label & 0x3FFF) ^ (flow_label >> 14) | _FIRST_PORT


def use(config: QueuePairConfig, reordering: int | None) -> None:
    """Let queue pairs of all hosts recover so from now on. With selective repeat a frame counts as lost once
    ``reordering`` later ones have come; None: one. Raises EmulationError where the guest's kernel cannot."""
    guest_calls.everywhere(_use_here, config.recovery is Recovery.SELECTIVE_REPEAT, reordering or 1)


def _use_here(is_selective: bool, reordering: int) -> None:
    if not (_PARAMETERS / "selective_repeat").exists():
        if not is_selective:
            return
        raise EmulationError(
            "transport.queue_pairs.recovery: selective_repeat: this guest's kernel sends all again from the missing "
            "frame on; FABRIC_GUEST_KERNEL=6.1 chooses one that can do otherwise"
        )
    (_PARAMETERS / "reordering").write_text(f"{reordering}\n")
    (_PARAMETERS / "selective_repeat").write_text(f"{int(is_selective)}\n")


@dataclass(frozen=True)
class QueuePairCounts:
    """What a queue pair has counted: frames sent again, negative acknowledgements that came, timeouts of
    acknowledgements, CNPs that came and that it sent, requests that came again, and requests that came early."""

    resent: int
    naks: int
    timeouts: int
    cnps_received: int
    cnps_sent: int
    duplicates: int
    early: int


def counts_of(number: int) -> QueuePairCounts | None:
    """Return the counts of a queue pair of this host, by its number; None: the kernel does not keep them."""
    return _counts_at(time.monotonic()).get(number)


@lru_cache(maxsize=1)
def _counts_at(now: float) -> dict[int, QueuePairCounts]:
    """Read all of the host's, once for those who ask at the same time: in virtual time, those of a sample."""
    try:
        lines = _COUNTS.read_text().splitlines()
    except OSError:
        return {}
    rows = ([int(word) for word in line.split()] for line in lines[1:])
    return {number: QueuePairCounts(*counts) for number, *counts in rows}
