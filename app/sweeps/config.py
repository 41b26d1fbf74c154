"""The keys of a sweep's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from fabric.config import SizeBytes, Strict, checked, read_yaml
from fabric.world import engines

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=60)]
MOST_REPEATS = 10_000
SEEDS = 2**32
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]


class FigureConfig(Strict):
    """A figure over all runs."""

    y: str = Field(
        description=(
            "What is drawn: the path of a metric, such as `lanes.hfreduce.algbw_Bps`, in which `{axis}` is what "
            "a run has there (of a list of one value, that value)."
        )
    )
    x: str = Field(description="Axis of the grid along which it is drawn.")
    lines: str | None = Field(
        default=None, description="Axis of the grid with a line for each of its values. Without it, one line."
    )
    down: str | None = Field(default=None, description="Axis of the grid for a heat map over two, in place of lines.")
    log: Annotated[str, Field(pattern="^(x|y|xy)?$")] = Field(
        default="", description="Axes that are logarithmic: `x`, `y` or `xy`."
    )
    name: Name | None = Field(default=None, description="Name of the figure's files. Without it, a number.")
    title: str | None = Field(default=None, description="Title of the figure. Without it, what `y` says.")

    @model_validator(mode="after")
    def _verify_one_kind(self) -> FigureConfig:
        if self.lines is not None and self.down is not None:
            raise ValueError("lines and down: a figure has lines or is a heat map; omit one of them")
        return self

    @property
    def axes(self) -> list[str]:
        """The axes of the grid that it names."""
        return [axis for axis in (self.x, self.lines, self.down) if axis is not None]


class SweepConfig(Strict):
    """A study: an experiment with every combination of settings, each with every seed."""

    experiment: str = Field(description="The experiment to run: its name, its folder, or a YAML file.")
    settings: dict[str, Any] = Field(default_factory=dict, description="Keys that all runs have, as in `--set`.")
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default_factory=dict, description="Values of each axis, by key. Every combination is run."
    )
    seeds: Annotated[int, Field(ge=1, le=MOST_REPEATS)] | Annotated[list[Seed], Field(min_length=1)] = Field(
        default=1, description="How many seeds, counted from 1, or a list of them. More narrow the intervals."
    )
    engine: engines.EngineName = Field(
        default="virtual", description="Engine of all runs, as in `fabric run --engine`."
    )
    rate: str | None = Field(
        default=None,
        description="Rate of NICs in place of the topology's, other links in proportion, as in `fabric run --rate`.",
    )
    memory: Annotated[SizeBytes, Field(gt=0)] | None = Field(
        default=None,
        description="Memory of each run's guest, as in `fabric run --memory`. Without it, what the fabric needs.",
    )
    figures: list[FigureConfig] = Field(default_factory=list, description="Figures over all runs.")

    @field_validator("engine", mode="before")
    @classmethod
    def _verify_engine(cls, value: object) -> object:
        if value not in engines.ENGINES:
            raise ValueError(f"{value!r} does not exist; use one of {', '.join(engines.ENGINES)}")
        return value

    @field_validator("seeds")
    @classmethod
    def _verify_each_once(cls, value: int | list[int]) -> int | list[int]:
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ValueError("names a seed twice; the same seed gives the same run")
        return value

    @model_validator(mode="after")
    def _verify_axes(self) -> SweepConfig:
        if both := sorted(self.grid.keys() & self.settings.keys()):
            raise ValueError(f"{', '.join(both)}: in settings and in grid; keep one")
        if "seed" in self.grid or "seed" in self.settings:
            raise ValueError("seed: name seeds under seeds, so that runs that differ only in them are averaged")
        for figure in self.figures:
            if unknown := [axis for axis in figure.axes if axis not in self.grid]:
                there = ", ".join(self.grid) or "none"
                raise ValueError(f"figures: {', '.join(unknown)}: no axis of the grid; there are {there}")
        return self

    @property
    def all_seeds(self) -> list[int]:
        """The seeds."""
        return list(range(1, self.seeds + 1)) if isinstance(self.seeds, int) else list(self.seeds)


def read_sweep(path: Path) -> SweepConfig:
    """Return the sweep that a file describes. Raises ConfigError with every fault."""
    return checked(SweepConfig, read_yaml(path), str(path))
