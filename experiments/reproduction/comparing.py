"""Published numbers beside theory and ours, and which of ours are outside their tolerance. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.reproduction.config import CaseConfig, NumberConfig
from fabric.estimates import Estimate, estimate


@dataclass(frozen=True)
class Compared:
    """A number of a case: ``ours`` over seeds, None if no run that can be believed has it; ``theory`` the median of
    what theory says of the same runs."""

    case: str
    config: NumberConfig
    theory: float | None
    ours: Estimate | None

    @property
    def off(self) -> float | None:
        """How far ours is from theory, or else from what was published, as a fraction; None without either."""
        reference = self.theory if self.theory is not None else self.config.published
        if self.ours is None or reference is None:
            return None
        return self.ours.median - reference if reference == 0 else self.ours.median / reference - 1

    @property
    def is_within(self) -> bool:
        """Whether ours is within its tolerance, and within the bound that was published."""
        if self.ours is None:
            return False
        at_most = self.config.at_most
        is_bounded = at_most is None or self.ours.median <= at_most * (1 + self.config.tolerance)
        return is_bounded and (self.off is None or abs(self.off) <= self.config.tolerance)

    @property
    def cells(self) -> list[str]:
        """Its row: name, published, theory, ours with its interval, off, and whether that is within its tolerance."""
        published = "-" if self.config.published is None else _text(self.config.published)
        if self.config.at_most is not None:
            published = f"≤ {_text(self.config.at_most)}"
        off = "-" if self.off is None else f"{self.off:+.1%}"
        verdict = "not measured" if self.ours is None else "within" if self.is_within else "OUTSIDE"
        unit = f" ({self.config.unit})" if self.config.unit else ""
        theory = "-" if self.theory is None else _text(self.theory)
        return [f"{self.config.name}{unit}", published, theory, _interval(self.ours), off, verdict]


COLUMNS = ("number", "published", "theory", "ours [95 %]", "off", "within tolerance")
"""Of :attr:`Compared.cells`."""


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _interval(found: Estimate | None) -> str:
    if found is None:
        return "-"
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
