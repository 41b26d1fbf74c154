"""What a run's messages are like: who decides when their packets may be sent, on how many paths, and when one counts as
lost."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from fabric.config import SizeBytes, Strict, TimeS

MOST_PATHS = 256
"""As ``messages.h`` has it."""


class Control(Enum):
    """Who decides when a packet of a message may be sent."""

    LINE = "line"
    CREDITS = "credits"
    NSCC = "nscc"


class MessageConfig(Strict):
    """Messages over datagrams."""

    control: Annotated[Control, Field(strict=False)] = Field(
        default=Control.LINE,
        description=(
            "Who decides when a packet may be sent: nobody, beside the receive window (`line`), the receiver "
            "(`credits`, as EQDS), or its sender by marks and delay (`nscc`, as Ultra Ethernet)."
        ),
    )
    paths: Annotated[int, Field(ge=1, le=MOST_PATHS)] = Field(
        default=1,
        description=(
            "On how many UDP source ports the packets of a message leave in turn: for switches that hash (`ecmp`). A "
            "packet counts as lost once a later one of the same port has come; with one port, by `reordering`."
        ),
    )
    unsolicited: Annotated[SizeBytes, Field(ge=1, le=2**30)] = Field(
        default=200_000,
        description=(
            "How much a connection sends before there are credits, and the first window of `nscc`. Raise it for longer "
            "round trips or faster NICs."
        ),
    )
    timeout: Annotated[TimeS, Field(ge=1e-6, le=60)] = Field(
        default=0.001,
        description=(
            "How long a sender waits for news before it probes what has come; what was sent so long before counts as "
            "lost then. Doubled each time that nothing is heard."
        ),
    )
    round_trip: Annotated[TimeS, Field(ge=1e-9, le=10)] = Field(
        default=14e-6, description="Round trip through empty queues, by which `nscc` knows delay."
    )
