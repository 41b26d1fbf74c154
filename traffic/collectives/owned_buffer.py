"""A rank's own memory for a collective in place: its input is there first, and its result takes that place."""

from __future__ import annotations

import numpy as np

from traffic.collectives.dataset import Buffer, pieces
from traffic.collectives.elements import Elements
from traffic.collectives.schedule import Finished, Schedule


class OwnedBuffer:
    """The elements of a rank, of all of the size: what a schedule reads of them is what they are by then."""

    def __init__(self, original: Buffer, schedule: Schedule) -> None:
        self._original = original
        self._piece = max(1, schedule.longest_piece)
        self._elements: Elements = np.empty(schedule.elements, schedule.dtype.numpy)

    def __getitem__(self, piece: slice, /) -> Elements:
        """Return a view."""
        return self._elements[piece]

    def fill(self) -> None:
        """Put the input there again."""
        for piece in pieces(0, self._elements.size, self._piece):
            self._elements[piece] = self._original[piece]

    def taking(self, finished: Finished) -> Finished:
        """Return what puts each piece of a result into its place, and then gives it on."""

        def take(piece: slice, found: Elements) -> None:
            self._elements[piece] = found
            finished(piece, found)

        return take
