"""The outcome of reading acknowledged writes back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verification:
    """Copies of acknowledged writes that a client looked for, one for each replica.

    A line for each that was ``lost``: gone, damaged, or older than what was acknowledged; and for each that was
    ``out_of_reach``: its server did not answer, or did not yet let it be read, so nothing is known of it.
    """

    checked: int = 0
    lost: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many of each there are, as a result tells them."""
        return {"checked": self.checked, "lost": len(self.lost), "out_of_reach": len(self.out_of_reach)}

    @property
    def sentence(self) -> str:
        """The finding in words."""
        unknown = f" {len(self.out_of_reach)} were unreachable." if self.out_of_reach else ""
        return f"Of {self.checked} acknowledged writes {len(self.lost)} were lost.{unknown}"

    def __add__(self, other: Verification) -> Verification:
        return Verification(
            self.checked + other.checked, self.lost + other.lost, self.out_of_reach + other.out_of_reach
        )
