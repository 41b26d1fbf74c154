"""What a reader should know of a study beside its verdict: its figures are right, and may not show what they seem to.

Each note is a value with its numbers and names. Their words are made here alone, a line each; none changes the verdict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from fabric.estimates import CONFIDENCE, LEAST_FOR_CONFIDENCE
from fabric.units import format_size, format_time

LEAST_FOR_MEDIAN = 10
"""A median or percentile of fewer steps or operations may be any of them."""
EVEN = 0.05
"""By which part of the least the bytes of NICs may differ that carry the same."""
_MOST_NAMED = 4


def few_named(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


class Note(ABC):
    """A note, as a frozen value."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def words(self) -> str:
        """What it says, in a line."""

    def as_json(self) -> dict[str, Any]:
        """Return it as a manifest holds it: its name, its values and its words."""
        return {"name": self.name, **self._values, "text": self.words}

    @property
    def _values(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # All of them are dataclasses.


@dataclass(frozen=True)
class UnusedNics(Note):
    """NICs over which no job sent or received anything: for each job, those of its hosts and how many these have."""

    name: ClassVar[str] = "unused_nics"
    unused: Mapping[str, int]
    nics: Mapping[str, int]

    @property
    def words(self) -> str:
        """What it says, in a line."""
        found = [f"{count} of the {self.nics[job]} of {job}'s hosts" for job, count in self.unused.items()]
        return f"NICs that no job used: {few_named(found)}"


@dataclass(frozen=True)
class NicsUsed(Note):
    """What jobs of hosts with several NICs moved over these: for each job, the bytes that NICs of each number carried,
    over all of its hosts, both ways and in its lanes, in all phases."""

    name: ClassVar[str] = "nics_used"
    carried_bytes: Mapping[str, tuple[int, ...]]

    @property
    def words(self) -> str:
        """What it says, in a line."""
        return f"NICs of each host that jobs used: {few_named([self._of(job) for job in self.carried_bytes])}"

    def _of(self, job: str) -> str:
        carried = self.carried_bytes[job]
        used = [size for size in carried if size]
        if not self.is_even(job):
            return f"{job} unevenly {' and '.join(map(format_size, carried))}"
        return f"{job} {'all' if len(used) == len(carried) else f'{len(used)} of'} {len(carried)}"

    def is_even(self, job: str) -> bool:
        """Return whether those of a job's NICs that carried anything differ by :data:`EVEN` at most."""
        used = [size for size in self.carried_bytes[job] if size]
        return not used or max(used) <= (1 + EVEN) * min(used)


@dataclass(frozen=True)
class FewValues:
    """That few ``what`` of a job are behind its medians in some phases: in one of them so many, ``least`` to
    ``most``."""

    job: str
    what: str
    least: int
    most: int
    phases: tuple[str, ...]

    @property
    def words(self) -> str:
        """As a part of a line."""
        numbers = f"{self.least} to {self.most}" if self.most > self.least else f"{self.least}"
        where = self.phases[0] if len(self.phases) == 1 else f"each of {len(self.phases)} phases"
        what = self.what if self.most > 1 else self.what.removesuffix("s")
        return f"{numbers} {what} of {self.job} in {where}"


@dataclass(frozen=True)
class FewBehindMedians(Note):
    """Medians and percentiles that stand on fewer than :data:`LEAST_FOR_MEDIAN` values."""

    name: ClassVar[str] = "few_behind_medians"
    found: tuple[FewValues, ...]

    @property
    def words(self) -> str:
        """What it says, in a line."""
        parts = few_named([one.words for one in self.found])
        return f"medians and percentiles of fewer than {LEAST_FOR_MEDIAN} values: {parts}; play for longer"


@dataclass(frozen=True)
class FewSeeds(Note):
    """That medians are of fewer than :data:`fabric.estimates.LEAST_FOR_CONFIDENCE` seeds."""

    name: ClassVar[str] = "few_seeds"
    seeds: int

    @property
    def words(self) -> str:
        """What it says, in a line."""
        sure = 1 - 2 / 2**self.seeds
        return (
            f"{self.seeds} seeds are too few for a {CONFIDENCE:.0%} interval: the true median lies between the least "
            f"and the largest of {self.seeds} values with {sure:.0%}; take {LEAST_FOR_CONFIDENCE} seeds or more"
        )


def few_seeds(seeds: int) -> list[Note]:
    """Return the note on medians of so many seeds; none if they are enough, or if there is one seed and no median."""
    return [FewSeeds(seeds)] if 1 < seeds < LEAST_FOR_CONFIDENCE else []


@dataclass(frozen=True)
class PlayedAgain(Note):
    """That the machine disturbed phases or calibrations, which were made again: by name, how many attempts do not
    count, and why the first does not."""

    name: ClassVar[str] = "played_again"
    attempts: Mapping[str, int]
    reasons: Mapping[str, str]

    @property
    def words(self) -> str:
        """What it says, in a line."""
        found = few_named([f"{phase} ({self.reasons[phase]})" for phase in self.attempts])
        count = sum(self.attempts.values())
        what = "1 attempt does" if count == 1 else f"{count} attempts do"
        return f"what the machine disturbed was played again, and {what} not count: {found}"


@dataclass(frozen=True)
class NothingReroutes(Note):
    """That links between switches were cut in phases in which nothing reroutes (``repair: wait``)."""

    name: ClassVar[str] = "nothing_reroutes"
    links: tuple[str, ...]
    phases: tuple[str, ...]

    @property
    def words(self) -> str:
        """What it says, in a line."""
        are_one = len(self.links) == 1
        links = "1 link between switches was" if are_one else f"{len(self.links)} links between switches were"
        return (
            f"{links} cut while nothing reroutes (routing.repair: wait), in {few_named(self.phases)}: what crosses "
            f"{few_named(self.links)} waits until it is back"
        )


@dataclass(frozen=True)
class OutlastedWindows(Note):
    """That something of ``cuts`` cuts of ``of`` was still under way when the next was asked for: the longest, ``what``
    of the cut of ``target``, for ``longer_s`` more."""

    name: ClassVar[str] = "outlasted_windows"
    cuts: int
    of: int
    what: str
    target: str
    longer_s: float

    @property
    def words(self) -> str:
        """What it says, in a line."""
        longest = f"{format_time(self.longer_s)} ({self.what} of the cut of {self.target})"
        return (
            f"what {self.cuts} of {self.of} cuts did lasted beyond the next cut, by up to {longest}, and disturbs its "
            "figures; raise gap"
        )
