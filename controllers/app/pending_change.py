"""What the controller's own thread waits for."""

from __future__ import annotations

from controllers.app.openflow import hub


class PendingChange:
    """What the keeper's thread waits for: that switches are brought to the plan, perhaps since links have changed."""

    def __init__(self) -> None:
        self.links_changed = False
        self._wanted = hub.Event()

    @property
    def is_pending(self) -> bool:
        """Whether something is wanted that has not been taken."""
        return bool(self._wanted.is_set())

    def want(self, links_changed: bool = False) -> None:
        """Ask for it; ``links_changed``: since links have changed."""
        self.links_changed |= links_changed
        self._wanted.set()

    def wait(self) -> None:
        """Wait until something is wanted."""
        self._wanted.wait()

    def take(self) -> None:
        """Want nothing more, for it is about to be done."""
        self._wanted.clear()
        self.links_changed = False
