"""The number that a switch's port draws for each frame, and its digits, by which the switch chooses among ways. Pure.

A rule matches bits, and a number of ways need not be a power of two. So the number is given as its remainders by powers
of primes, each as digits in bits of their own: of twelve ways a frame takes the one that its remainders by four and by
three name. With :data:`MOST_WAYS` ways at most, the digits fill the 32 bits of a frame's mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

MOST_WAYS = 22
"""The most ways: a mark has room for the digits of any number of ways up to this, as failures leave them."""
_POWERS = {2: 4, 3: 2, 5: 1, 7: 1, 11: 1, 13: 1, 17: 1, 19: 1}
"""The digits of each prime."""


class Draw(Enum):
    """How a port draws: ``RANDOM``, for each frame; ``IN_TURN``, one more for each frame of a destination; by
    ``ENTROPY``, a hash of the frame's flow and of a number that its sender has put on it."""

    RANDOM = "random"
    IN_TURN = "in turn"
    ENTROPY = "entropy"


@dataclass(frozen=True)
class Digit:
    """The number divided by ``divisor``, modulo ``base``, in ``bits`` bits of the mark from bit ``first``."""

    base: int
    divisor: int
    first: int

    @property
    def bits(self) -> int:
        """How many bits it takes."""
        return (self.base - 1).bit_length()


def _all_digits() -> Iterator[Digit]:
    first = 0
    for base, count in _POWERS.items():
        for place in range(count):
            digit = Digit(base, base**place, first)
            yield digit
            first += digit.bits


DIGITS = tuple(_all_digits())
"""All digits, from bit 0 of the mark on."""


def digits_of(ways: int) -> tuple[Digit, ...]:
    """Return the digits that tell so many ways apart. Raises ValueError if there are none for them."""
    found, left = [], ways
    for digit in DIGITS:
        if left % digit.base == 0:
            found.append(digit)
            left //= digit.base
    if left != 1:
        raise ValueError(f"{ways} ways: a mark has digits for at most {MOST_WAYS}")
    return tuple(found)


def code_of(ways: int, number: int) -> int:
    """Return the digits of a number that tell ``ways`` apart, one beside the other from bit 0 on."""
    code, first = 0, 0
    for digit in digits_of(ways):
        code |= number // digit.divisor % digit.base << first
        first += digit.bits
    return code


def mark_of(number: int) -> int:
    """Return the mark of a drawn number."""
    return sum(number // digit.divisor % digit.base << digit.first for digit in DIGITS)
