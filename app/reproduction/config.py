"""The keys of a published setup's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fabric.config import Strict, checked, read_yaml
from fabric.errors import ConfigError

CASES = Path(__file__).parent / "cases"
Value = Annotated[float, Field(strict=False)]
Tolerance = Annotated[float, Field(ge=0, le=100, strict=False)]


class NumberConfig(Strict):
    """A number: ``metric`` is ours by its path, in ``unit`` once multiplied by ``scale``.

    ``published``: what the source says, or ``at_most``, if that is a bound, with ``at_least``, if it is a range;
    ``theory``: what is exact, or the path of a metric that theory gives for this very run, in ``theory_metric``.
    ``tolerance``: how far ours may be off from theory, as a fraction, ``published_tolerance`` from what was published:
    the error that the source has, or 10 %; bounds have none. ``gap``: why ours differs.
    """

    name: str
    metric: str
    unit: str = ""
    scale: Value = 1.0
    published: Value | None = None
    published_tolerance: Tolerance = 0.1
    at_least: Value | None = None
    at_most: Annotated[float, Field(gt=0, strict=False)] | None = None
    theory: Value | None = None
    theory_metric: str | None = None
    tolerance: Tolerance = 0.05
    gap: str = ""

    @model_validator(mode="after")
    def _verify_reference(self) -> NumberConfig:
        has_theory = self.theory is not None or self.theory_metric is not None
        if self.theory is not None and self.theory_metric is not None:
            raise ValueError("theory and theory_metric: keep one")
        if self.published is not None and self.at_most is not None:
            raise ValueError("published and at_most: keep one")
        if self.at_least is not None and (self.at_most is None or self.at_least > self.at_most):
            raise ValueError("at_least: is the lower end of a range; set at_most, its upper end")
        if not has_theory and self.published is None and self.at_most is None:
            raise ValueError("needs something to compare with: theory, theory_metric, published or at_most")
        if "tolerance" in self.model_fields_set and not has_theory:
            raise ValueError("tolerance: is from theory, which is missing; set published_tolerance")
        if "published_tolerance" in self.model_fields_set and self.published is None:
            raise ValueError("published_tolerance: needs published; a bound has none")
        return self


class RunOf(Strict):
    """How a setup is run: an experiment in virtual time with settings, and the memory of its guest. In a file, ``like``
    names another setup, whose run this is but for the settings here."""

    experiment: str
    settings: dict[str, Any] = Field(default_factory=dict)
    memory: str = "3 GiB"


class CaseConfig(Strict):
    """A published setup. ``read``: whether the source itself was read, or others who quote it. Either ``run`` or
    ``computed`` (the name of a function of :mod:`app.reproduction.computed`) gives its numbers, or ``not_yet``
    says what is missing."""

    title: str
    source: str
    link: str
    read: Literal["at the source", "quoted by others", "not read"]
    run: RunOf | None = None
    computed: str | None = None
    numbers: list[NumberConfig] = Field(default_factory=list)
    not_yet: str | None = None

    @model_validator(mode="after")
    def _verify_one_way(self) -> CaseConfig:
        if sum(one is not None for one in (self.run, self.computed, self.not_yet)) != 1:
            raise ValueError("needs one of run, computed, not_yet")
        if (self.not_yet is None) == (not self.numbers):
            raise ValueError("numbers: are what a case that can be run has, and only such a one")
        return self


def all_cases() -> dict[str, CaseConfig]:
    """Return the published setups by name, in the order of their files."""
    files = {path.stem: read_yaml(path) for path in sorted(CASES.glob("*.yaml"))}
    return {name: checked(CaseConfig, resolved(name, files), str(CASES / f"{name}.yaml")) for name in files}


def resolved(name: str, files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a file says, its run with what it takes from the run of another. Raises ConfigError if that has none
    of its own."""
    data = dict(files[name])
    run = data.get("run")
    if not isinstance(run, Mapping) or "like" not in run:
        return data
    other = files.get(run["like"], {}).get("run")
    if not isinstance(other, Mapping) or "like" in other:
        raise ConfigError(name, [f"run.like: {run['like']!r} has no run of its own; name a setup that has one"])
    own = {key: value for key, value in run.items() if key != "like"}
    data["run"] = {**other, **own, "settings": {**other.get("settings", {}), **own.get("settings", {})}}
    return data
