"""Packets of one connection that overtake each other, as sprayed ones do: from when TCP takes a missing one for lost.

Linux does so by time (RACK): after a quarter of a round trip, which grows as it proves wrong. Where a connection's
packets take many paths, their queues differ by more, and what is late is sent twice. Without that, TCP counts what came
after the missing one, as RFC 6675 has it, and how many that must be can be said.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fabric.config import Strict
from traffic.transport.message_config import MessageConfig
from traffic.transport.queue_pairs import QueuePairConfig

_BY_TIME = {"tcp_recovery": "1", "tcp_max_reordering": "300", "tcp_reordering": "3"}
"""Linux' own."""


class TransportConfig(Strict):
    """What carries data between hosts, and what TCP of all hosts is like, beside its congestion control."""

    kind: Literal["tcp", "verbs", "messages"] = Field(
        default="tcp",
        description=(
            "What carries the data of collectives, graphs of work, storage, streams, fan-in and replayed flows: `tcp`, "
            "RDMA writes over soft RoCE v2 (`verbs`), in virtual time, or `messages` over UDP, whose packets may take "
            "any paths. Other programs hold TCP sockets."
        ),
    )
    reordering: Annotated[int, Field(ge=3, le=100_000)] | None = Field(
        default=None,
        description=(
            "How many later packets must arrive before TCP takes a missing one for lost, instead of by time (RACK): "
            "for sprayed packets. More than a window, if queues lose nothing. Likewise for queue pairs with selective "
            "repeat, and for messages; their default is one."
        ),
    )
    queue_pairs: QueuePairConfig = Field(
        default_factory=QueuePairConfig, description="What queue pairs are like, of all programs with RDMA."
    )

    messages: MessageConfig = Field(default_factory=MessageConfig, description="What messages are like.")

    @property
    def is_rdma(self) -> bool:
        """Whether RDMA carries the data of programs that can use it."""
        return self.kind == "verbs"


def sysctls(reordering: int | None) -> dict[str, str]:
    """Return the settings of a network namespace, the most that one may be before it; None: Linux' own. Connections
    made from then on go by them."""
    if reordering is None:
        return {f"net/ipv4/{name}": value for name, value in _BY_TIME.items()}
    count = str(reordering)
    return {"net/ipv4/tcp_recovery": "0", "net/ipv4/tcp_max_reordering": count, "net/ipv4/tcp_reordering": count}
