"""Keys that all topologies have in common, and what they mean."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fabric.config import RateBps, Strict, TimeS

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[RateBps, Field(ge=1)]
Delay = Annotated[TimeS, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
Price = Annotated[float, Field(gt=0)]


class PriceSpec(Strict):
    """Relative prices, in the units of Table III of arXiv 2408.14158v2: of a switch with its cables, and of a node."""

    switch: Price | None = None
    node: Price | None = None


def nanoseconds(time_s: float) -> int:
    """Return a time in whole nanoseconds, as links have it."""
    return round(time_s * 1e9)
