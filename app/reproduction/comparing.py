"""Published numbers beside theory and ours, and which of ours are too far from either. Pure.

Theory says what a right emulator measures: a number that is off by more than its tolerance is a fault, or has a cause
that is named. What was published is of another machine and often read from a figure. So each has a tolerance of its
own, and a bound that was published is that bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.reproduction.config import CaseConfig, NumberConfig
from fabric.estimates import Estimate, estimate
from fabric.units import format_change

NOT_MEASURED = "not measured"
OUTSIDE = "OUTSIDE"
NOTHING = "-"
_EXIT_CODE_THEORY, _EXIT_CODE_PUBLISHED = 1, 4


@dataclass(frozen=True)
class Judgement:
    """What became of a number beside a reference. ``off``: how far ours is from it, as a fraction, or as a difference
    from 0; None if one of the two is missing. ``below`` and ``above``: how far it may be on either side; None: any
    distance."""

    off: float | None
    below: float | None
    above: float | None

    @property
    def is_within(self) -> bool:
        """Whether ours is as near as it has to be; what was not measured is not."""
        if self.off is None:
            return False
        return (self.below is None or self.off >= -self.below) and (self.above is None or self.off <= self.above)

    @property
    def cell(self) -> str:
        """What tables say: ``within: +1.2%``."""
        if self.off is None:
            return NOT_MEASURED
        return f"{'within' if self.is_within else OUTSIDE}: {format_change(self.off)}"


@dataclass(frozen=True)
class Compared:
    """A number of a case: ``ours`` over seeds, None if no run that can be believed has it; ``theory`` the median of
    what theory says of the same runs."""

    case: str
    config: NumberConfig
    theory: float | None
    ours: Estimate | None

    @property
    def by_theory(self) -> Judgement | None:
        """Ours beside theory; None if there is none for it."""
        if self.config.theory is None and self.config.theory_metric is None:
            return None
        return Judgement(self._off(self.theory), self.config.tolerance, self.config.tolerance)

    @property
    def by_published(self) -> Judgement | None:
        """Ours beside what was published: a value, with its tolerance, or a bound or a range, which have none; None if
        nothing was."""
        config = self.config
        if config.at_most is not None:
            below = None if config.at_least is None else 1 - config.at_least / config.at_most
            return Judgement(self._off(config.at_most), below, 0.0)
        if config.published is None:
            return None
        return Judgement(self._off(config.published), config.published_tolerance, config.published_tolerance)

    @property
    def judgements(self) -> list[Judgement]:
        """Those that there are."""
        return [one for one in (self.by_theory, self.by_published) if one is not None]

    @property
    def is_within(self) -> bool:
        """Whether ours is within all that it is compared with."""
        return all(one.is_within for one in self.judgements)

    def _off(self, reference: float | None) -> float | None:
        if self.ours is None or reference is None:
            return None
        return self.ours.median - reference if reference == 0 else self.ours.median / reference - 1

    @property
    def cells(self) -> list[str]:
        """Its row: name, published, theory, ours with its interval, and what became of it beside theory and beside
        what was published."""
        config, unit = self.config, f" ({self.config.unit})" if self.config.unit else ""
        published = theory = NOTHING
        if config.at_most is not None:
            published = "≤ " if config.at_least is None else f"{_text(config.at_least)} to "
            published += _text(config.at_most)
        elif config.published is not None:
            published = f"{_text(config.published)}{_tolerance(config.published_tolerance)}"
        if self.theory is not None:
            theory = f"{_text(self.theory)}{_tolerance(config.tolerance)}"
        judged = [NOTHING if one is None else one.cell for one in (self.by_theory, self.by_published)]
        return [f"{config.name}{unit}", published, theory, _interval(self.ours), *judged]


COLUMNS = ("number", "published", "theory", "ours [95 %]", "within theory", "within what was published")
"""Of :attr:`Compared.cells`."""


def exit_code(numbers: Sequence[Compared]) -> int:
    """Return 0 if all are within theory and within what was published; 1 if one is outside of theory or was not
    measured, 4 if one is only outside of what was published."""
    if any(number.ours is None or (number.by_theory and not number.by_theory.is_within) for number in numbers):
        return _EXIT_CODE_THEORY
    return 0 if all(number.is_within for number in numbers) else _EXIT_CODE_PUBLISHED


def told(numbers: Sequence[Compared]) -> list[str]:
    """Return how many numbers are within theory, and how many within what was published: a sentence each."""
    theory = [number.by_theory for number in numbers if number.by_theory is not None]
    published = [number.by_published for number in numbers if number.by_published is not None]
    bounds = [number.by_published for number in numbers if number.config.at_most is not None]
    words = [f"{_within(theory)} numbers with a theory are within their tolerance of it"] if theory else []
    if published:
        among = f", {_within([one for one in bounds if one is not None])} bounds among them" if bounds else ""
        words.append(f"{_within(published)} numbers that are published are within what was published{among}")
    return words


def _within(judged: Sequence[Judgement]) -> str:
    return f"{sum(one.is_within for one in judged)} of {len(judged)}"


def _tolerance(fraction: float) -> str:
    return f" ± {fraction * 100:.4g} %" if fraction else ""


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _interval(found: Estimate | None) -> str:
    if found is None:
        return NOTHING
    if found.low is None or found.high is None or found.low == found.high:
        return _text(found.median)
    return f"{_text(found.median)} [{_text(found.low)}, {_text(found.high)}]"


def compare(name: str, case: CaseConfig, runs: Sequence[Mapping[str, float]]) -> list[Compared]:
    """Return the numbers of a case over the metrics of its runs, those that can be believed."""
    return [_compared(name, number, runs) for number in case.numbers]


def _compared(name: str, config: NumberConfig, runs: Sequence[Mapping[str, float]]) -> Compared:
    ours = _over(runs, config.metric, config.scale)
    theory = config.theory
    if config.theory_metric is not None:
        found = _over(runs, config.theory_metric, config.scale)
        theory = found.median if found is not None else None
    return Compared(name, config, theory, ours)


def _over(runs: Sequence[Mapping[str, float]], metric: str, scale: float) -> Estimate | None:
    values = [run[metric] * scale for run in runs if metric in run]
    return estimate(values) if values else None
