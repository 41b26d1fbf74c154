"""Whether the load of a phase was what was asked for: it played for the whole time, and what failed has a reason.

What a failure could touch that was asked for is excused, for as long as it could; the rest is judged as in a phase
without one. Whoever makes the evidence decides that (:mod:`runs.excuses`). The reasons for the limits are in
:mod:`fabric.measure.fidelity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fabric.measure.verdict import Check
from fabric.records.conservation import Conservation

OWN_NIC_DROPS = (0.0, 0.01)
NOT_PLAYED = (0.05, 0.10)
FAILED = (0.0, 0.01)
LOAD_CHECKS = frozenset({"own_nic_drops_fraction", "load_not_played_fraction", "failed_fraction"})
"""The names of all of them: none says how far the machine kept up."""
LEAST_OPERATIONS = 10
"""Of a load with fewer, nobody can tell a pause from an end."""
_WORTH_WORDS = 0.001
"""Less of its window is what orders take on their way."""
_MOST_WORDS = 4
PAUSES = 3
"""A load is idle for longer than it ever paused only from so many times its longest pause on. Of n random arrivals, the
chance of such a gap is n to the power of minus this."""


@dataclass(frozen=True)
class PlayedLoad:
    """What a job did in a window of a phase: how long it was told to play, how long nothing of it was under way at the
    begin and at the end of that, the longest such pause in between, and how many operations or steps it had.

    ``is_steady``: it does one thing after the other, so that it never pauses, however few they are. ``rests_s``: how
    long its config lets it rest between two operations. ``excused_s``: how long it was idle beside these while failures
    could touch it, ``asked``: which ones, in words.
    """

    job: str
    seconds: float
    idle_begin_s: float
    idle_end_s: float
    longest_pause_s: float
    operations: int
    is_steady: bool = False
    rests_s: float = 0.0
    excused_s: float = 0.0
    asked: Sequence[str] = ()

    @property
    def idle_fraction(self) -> float:
        """The part of its window in which it did not play, though it was told to; pauses that it makes are none."""
        if not (self.operations >= LEAST_OPERATIONS or (self.is_steady and self.operations)) or self.seconds <= 0:
            return 0.0
        long = max(PAUSES * self.longest_pause_s, self.rests_s)
        return sum(idle_s for idle_s in (self.idle_begin_s, self.idle_end_s) if idle_s > long) / self.seconds


def asked_words(words: Iterable[str]) -> str:
    """Return the first few failures that were asked for, each once."""
    found = list(dict.fromkeys(words))
    more = f" and {len(found) - _MOST_WORDS} more" if len(found) > _MOST_WORDS else ""
    return f"{', '.join(found[:_MOST_WORDS])}{more}"


@dataclass(frozen=True)
class FailedOperations:
    """What became of a kind of operation of a job in a phase: how many began, how many of them failed, and of these how
    many for no reason that the emulated network or a failure gives; how long the slowest took that completed.

    ``excused``: how many of those that failed a failure could touch that was asked for, ``asked``: which ones, in
    words. ``slowest_s`` is of those that none could touch.
    """

    job: str
    kind: str
    begun: int
    failed: int
    unexplained: int
    slowest_s: float
    excused: int = 0
    asked: Sequence[str] = ()


def own_nic_checks(counted: Conservation) -> list[Check]:
    """Return whether hosts' own NICs dropped what their programs sent."""
    places = counted.dropped_at_senders
    dropped = sum(places.values())
    worst = max(places, key=lambda port: places[port], default="")
    text = f"hosts' own NICs dropped {dropped} frames that their programs sent"
    if dropped:
        text += (
            f", {worst} {places[worst]} of them; a real host lets the socket wait instead, so these are losses of the "
            "emulation"
        )
    return [Check("own_nic_drops_fraction", dropped / max(1, counted.sent_packets + dropped), *OWN_NIC_DROPS, text)]


def load_checks(loads: Sequence[PlayedLoad]) -> list[Check]:
    """Return whether every load played for the time in which it should; nothing without loads."""
    if not loads:
        return []
    worst = max(loads, key=lambda one: one.idle_fraction)
    text = "every load played for the whole of its time"
    if worst.idle_fraction >= _WORTH_WORDS:
        text = (
            f"{worst.job} did not play for {worst.idle_fraction:.1%} of its {worst.seconds:.3g} s: "
            f"nothing of it was under way for {worst.idle_begin_s:.3g} s at the start and "
            f"{worst.idle_end_s:.3g} s at the end"
        )
    if worst.excused_s:
        beside = f"{worst.job} was idle for {worst.excused_s:.3g} s beside that"
        text += f"; {beside}, while failures could touch it that were asked for: {asked_words(worst.asked)}"
    return [Check("load_not_played_fraction", worst.idle_fraction, *NOT_PLAYED, text)]


def failed_checks(failed: Sequence[FailedOperations]) -> list[Check]:
    """Return whether operations failed that had no reason to."""
    if not failed:
        return []
    words = (f"{one.failed} of {one.begun} ({one.kind} of {one.job}{_excused_words(one)})" for one in failed)
    told = ", ".join(word for word, one in zip(words, failed, strict=True) if one.failed)
    text = f"operations failed: {told}" if told else "no operation failed"
    worst = max(failed, key=_unexplained_fraction)
    if worst.unexplained:
        slowest = f"the slowest {worst.kind} that completed took {worst.slowest_s:.3g} s"
        text += (
            f"; {worst.unexplained} {worst.kind} of {worst.job} for no reason that the network gives: {slowest}, and "
            "no failure that was asked for could touch them"
        )
    return [Check("failed_fraction", _unexplained_fraction(worst), *FAILED, text)]


def _excused_words(one: FailedOperations) -> str:
    return f", {one.excused} of them as asked for: {asked_words(one.asked)}" if one.excused else ""


def _unexplained_fraction(one: FailedOperations) -> float:
    return one.unexplained / max(1, one.begun)
