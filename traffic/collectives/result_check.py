"""The check of a rank's result: every element of it, against what its collective says that it is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from fabric.errors import TrafficError
from traffic.collectives.collective import Expected
from traffic.collectives.dataset import Buffer, Dataset
from traffic.collectives.elements import Elements, are_equal


class ResultCheck:
    """Compares a rank's result with what is expected, every element of it, as its pieces are finished.

    ``stretches``: what the result consists of, with what has its elements. ``elements``: those of the size, for
    messages.
    """

    def __init__(self, stretches: Sequence[tuple[Expected, Buffer]], elements: int) -> None:
        self._stretches = sorted(
            (one for one in stretches if one[0].place.stop > one[0].place.start), key=lambda one: one[0].place.start
        )
        self._starts = [expected.place.start for expected, _ in self._stretches]
        self._elements = max([elements, *(expected.place.stop for expected, _ in self._stretches)])
        self._who = ""
        self._checked: list[tuple[int, int]] = []

    @classmethod
    def of(cls, dataset: Dataset, expected: Sequence[Expected], elements: int) -> ResultCheck:
        """Return the check of a result of a dataset's data."""
        buffers = dataset.sums_of(one.ranks for one in expected)
        return cls(list(zip(expected, buffers, strict=True)), elements)

    def begin(self, who: str) -> None:
        """Begin a result, which messages will call ``who``."""
        self._who = who
        self._checked = []

    def piece(self, piece: slice, found: Elements) -> None:
        """Check a piece. Raises TrafficError naming its first element that is not as expected."""
        start, stop = piece.start, piece.stop
        if found.size != stop - start:
            raise TrafficError(f"{self._who}: {found.size} elements came for {stop - start} from {start} on")
        while start < stop:
            expected, buffer = self._stretch_at(start)
            end = expected.place.stop
            if end >= stop:  # As a rule: pieces are made so that they do not reach over stretches.
                self._compare(start, found, expected, buffer)
                break
            self._compare(start, found[: end - start], expected, buffer)
            start, found = end, found[end - start :]
        if piece.start < stop:
            self._checked.append((piece.start, stop))

    def _stretch_at(self, start: int) -> tuple[Expected, Buffer]:
        """Return the stretch of the result that has an element. Raises TrafficError if there is none."""
        number = bisect_right(self._starts, start) - 1
        if number < 0 or start >= self._stretches[number][0].place.stop:
            raise TrafficError(
                f"{self._who}: element {start} of {self._elements} came, which does not belong to this rank's result"
            )
        return self._stretches[number]

    def _compare(self, start: int, found: Elements, expected: Expected, buffer: Buffer) -> None:
        first = start + expected.first - expected.place.start
        right = buffer[slice(first, first + found.size)]
        if not are_equal(found, right):
            raise self._wrong(start, found, right, expected)

    def _wrong(self, start: int, found: Elements, right: Elements, expected: Expected) -> TrafficError:
        wrong = np.flatnonzero(found != right)
        first = int(wrong[0])
        return TrafficError(
            f"{self._who}: element {start + first} of {self._elements} is {float(found[first]):g}, expected "
            f"{float(right[first]):g} ({len(wrong)} wrong elements in its chunk of {expected}); "
            "the result is not to be trusted"
        )

    def end(self) -> None:
        """Raise TrafficError unless every element was checked, and once."""
        reached, checked = 0, sorted(self._checked)
        taken = 0
        for start, stop in self._joined():
            reached = start
            while taken < len(checked) and checked[taken][0] == reached:
                reached = checked[taken][1]
                taken += 1
            if reached != stop:
                break
        else:
            if taken == len(checked):
                return
        raise TrafficError(
            f"{self._who}: the result from element {reached} of {self._elements} on did not come, or came twice"
        )

    def _joined(self) -> list[tuple[int, int]]:
        """Return the stretches of the result, those joined of which one begins where another ends."""
        found: list[tuple[int, int]] = []
        for expected, _ in self._stretches:
            start, stop = expected.place.start, expected.place.stop
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, stop))
        return found
