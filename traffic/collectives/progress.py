"""How far a rank's two threads are in a step, one that takes and one that sends, and how they wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable

from traffic.program_group import PeerGoneError, StalledError

EVERYTHING = 1 << 62
_NOTHING = (-1, 0)


class Progress:
    """How far the two threads of a rank are in a step, and how they wait for each other."""

    def __init__(self, name: str, timeout_s: float) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._taken = _NOTHING
        self._sending = self._taking = -1
        self._aborted = False

    def begin(self) -> None:
        """Begin a step."""
        with self._changed:
            self._taken, self._sending, self._taking = _NOTHING, -1, -1

    def taken(self, until: tuple[int, int]) -> None:
        """Say which move was taken last, by time slot and number."""
        with self._changed:
            self._taken = until
            self._changed.notify()

    def sending(self, time_slot: int) -> None:
        """Say that all is sent of the time slots before this one."""
        with self._changed:
            self._sending = time_slot
            self._changed.notify()

    def all_sent(self) -> None:
        """Say that nothing more is sent."""
        self.sending(EVERYTHING)

    def taking(self, time_slot: int) -> None:
        """Say that all is taken of the time slots before this one."""
        if time_slot != self._taking:
            with self._changed:
                self._taking = time_slot
                self._changed.notify()

    def is_taking_after(self, time_slot: int) -> bool:
        """Return whether all of a time slot was taken."""
        return self._taking > time_slot

    def await_taking_after(self, time_slot: int) -> None:
        """Wait until all of a time slot was taken. Raises as :meth:`await_taken`."""
        self._await(lambda: self.is_taking_after(time_slot), "pieces of peers")

    def has_taken(self, until: tuple[int, int]) -> bool:
        """Return whether a move was taken."""
        return self._taken >= until

    def await_taken(self, until: tuple[int, int]) -> None:
        """Wait until a move was taken. Raises PeerGoneError if it will not be, StalledError if it takes too long."""
        self._await(lambda: self.has_taken(until), "piece to send")

    def await_sent(self, time_slot: int) -> None:
        """Wait until all of a time slot was sent: what it read may be overwritten. Raises as :meth:`await_taken`."""
        if self._sending <= time_slot:
            self._await(lambda: self._sending > time_slot, "room for a piece")

    def _await(self, is_there: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._aborted or is_there(), self._timeout_s):
                raise StalledError(f"{self._name}: {what}: none within {self._timeout_s:g} s; raise step_timeout")
            if self._aborted:
                raise PeerGoneError(f"{self._name}: {what}: its thread failed")

    def abort(self) -> None:
        """Wake who waits, with PeerGoneError."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()
