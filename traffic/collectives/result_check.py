"""The check of a rank's result."""

from __future__ import annotations

import numpy as np

from fabric.errors import TrafficError
from traffic.collectives.dataset import Buffer
from traffic.collectives.elements import Elements


class SumCheck:
    """Compares a rank's result with the expected sum, every element of it, as its pieces are finished."""

    def __init__(self, expected: Buffer, elements: int) -> None:
        self._expected = expected
        self._elements = elements
        self._who = ""
        self._checked: list[tuple[int, int]] = []

    def begin(self, who: str) -> None:
        """Begin a result, which messages will call ``who``."""
        self._who = who
        self._checked = []

    def piece(self, piece: slice, found: Elements) -> None:
        """Check a piece. Raises TrafficError naming its first element that is not as expected."""
        expected = self._expected[piece]
        if not np.logical_and.reduce(found == expected):
            wrong = np.flatnonzero(found != expected)
            first = int(wrong[0])
            raise TrafficError(
                f"{self._who}: element {piece.start + first} of {self._elements} is {float(found[first]):g}, expected "
                f"{float(expected[first]):g} ({len(wrong)} wrong elements in its chunk); the sum is not to be trusted"
            )
        self._checked.append((piece.start, piece.stop))

    def end(self) -> None:
        """Raise TrafficError unless every element was checked, and once."""
        reached = 0
        for start, stop in sorted(self._checked):
            if start != reached:
                break
            reached = stop
        if reached != self._elements or sum(stop - start for start, stop in self._checked) != self._elements:
            raise TrafficError(
                f"{self._who}: the result from element {reached} of {self._elements} on did not come, or came twice"
            )
