"""The highest rate that a machine carries with room to spare, from few measurements. Pure: the caller measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fabric.errors import EmulationError
from fabric.units import format_rate

LOWEST_BPS = 1_000_000
CLOSE = 1.1
"""The search ends when the highest rate that holds and the lowest that does not are this close, as a ratio."""
MOST_MEASUREMENTS = 8
_CAUTION = 0.97
_LEAST_STEP, _LONGEST_STEP = 1.25, 8.0


@dataclass(frozen=True)
class Strain:
    """What a rate asks of the machine, over what it may ask: up to 1 it holds. ``limit`` says what is nearest to it."""

    rate_bps: int
    value: float
    limit: str

    @property
    def holds(self) -> bool:
        """Whether the machine carries the rate with room to spare."""
        return self.value <= 1


def find_rate(measure: Callable[[int], Strain], start_bps: int, ceiling_bps: int) -> Strain:
    """Return the highest rate found to hold, of at most ``ceiling_bps``, to two digits.

    CPU time grows about as rates do: each measurement says where to look next. Raises EmulationError if none holds.
    """
    found = [measure(_two_digits(min(start_bps, ceiling_bps)))]
    while (rate := next(_candidates(found, ceiling_bps), None)) is not None and len(found) < MOST_MEASUREMENTS:
        found.append(measure(rate))
    holding = [strain for strain in found if strain.holds]
    if not holding:
        lowest = min(found, key=lambda strain: strain.rate_bps)
        text = f"at {format_rate(lowest.rate_bps)} it does not keep up: {lowest.limit}"
        raise EmulationError(f"this machine, as busy as it is, carries no rate tried; {text}; try a smaller topology")
    return max(holding, key=lambda strain: strain.rate_bps)


def _candidates(found: list[Strain], ceiling_bps: int) -> Iterator[int]:
    """Yield the next rate to try; nothing once the search is at its end."""
    failing = min((one for one in found if not one.holds), key=lambda one: one.rate_bps, default=None)
    holding = max(
        (one for one in found if one.holds and (failing is None or one.rate_bps < failing.rate_bps)),
        key=lambda one: one.rate_bps,
        default=None,
    )
    rate = _two_digits(_next_rate(holding, failing, ceiling_bps))
    if rate not in {one.rate_bps for one in found}:
        yield rate


def _next_rate(holding: Strain | None, failing: Strain | None, ceiling_bps: int) -> float:
    if failing is None:
        assert holding is not None
        step = min(max(_CAUTION / max(holding.value, 1e-9), _LEAST_STEP), _LONGEST_STEP)
        return min(holding.rate_bps * step, ceiling_bps)
    if holding is None:
        step = min(max(failing.value / _CAUTION, _LEAST_STEP), _LONGEST_STEP)
        return max(failing.rate_bps / step, LOWEST_BPS)
    if failing.rate_bps / holding.rate_bps <= CLOSE:
        return holding.rate_bps
    return float((failing.rate_bps * holding.rate_bps) ** 0.5)


def _two_digits(rate_bps: float) -> int:
    unit = int(10 ** max(0, len(str(int(rate_bps))) - 2))
    return int(rate_bps // unit) * unit
