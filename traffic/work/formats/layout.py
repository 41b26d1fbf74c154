"""Which ranks form a group, from the sizes of a layout: tensor parallel ranks are neighbours, then expert and data
parallel ones, then stages, as Megatron numbers them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Layout:
    """Sizes of axes, that of neighbours first; the ranks are all points of them. ``kinds``: the axes of each kind of
    group, by its name."""

    axes: Mapping[str, int]
    kinds: Mapping[str, Collection[str]]
    _strides: Mapping[str, int] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        strides, stride = {}, 1
        for name, size in self.axes.items():
            strides[name] = stride
            stride *= size
        object.__setattr__(self, "_strides", strides)

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        found = 1
        for size in self.axes.values():
            found *= size
        return found

    def size(self, kind: str) -> int:
        """Return how many ranks a group of a kind has."""
        found = 1
        for axis in self.kinds[kind]:
            found *= self.axes[axis]
        return found

    def group_of(self, rank: int, kind: str) -> str:
        """Return the name of the group of a kind that a rank is in: that of its first rank."""
        return f"{kind} {self._first(rank, kind)}"

    def groups(self, kinds: Collection[str]) -> dict[str, tuple[int, ...]]:
        """Return the groups of kinds, by their names."""
        return {
            f"{kind} {first}": self._members(first, kind)
            for kind in kinds
            for first in range(self.ranks)
            if self._first(first, kind) == first
        }

    def _first(self, rank: int, kind: str) -> int:
        for axis in self.kinds[kind]:
            rank -= rank // self._strides[axis] % self.axes[axis] * self._strides[axis]
        return rank

    def _members(self, first: int, kind: str) -> tuple[int, ...]:
        found: Sequence[int] = (first,)
        for axis in self.axes:
            if axis in self.kinds[kind]:
                found = [one + place * self._strides[axis] for place in range(self.axes[axis]) for one in found]
        return tuple(found)


def divisors(number: int) -> Iterator[int]:
    """Yield the divisors of a number, for messages that say what would fit."""
    yield from (one for one in range(1, number + 1) if number % one == 0)
