"""Random cuts of links, by seed: evenly spread ones (Poisson), and Fire-Flyer 2's year of link flash cuts replayed.

The paper (arXiv 2408.14158v2, Table VIII) gives flash cuts per day: 213 on 100 days between 2023-04-19 and 2024-03-31
(348 days), at most 10 on one. They come in bursts: the variance of a day's number is several times its mean, where
Poisson's equals its mean. The replay draws whole stretches of days (a circular block bootstrap), which keeps both the
number per day and the sequence of bad days. The table says neither which links were cut, nor when in the day, nor
for how long: links and times are drawn evenly, and the duration is a parameter, to be swept.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from fabric.config import Strict, TimeS
from fabric.errors import ConfigError
from fabric.failures.schedule import Failure, FailureSchedule
from fabric.model.network import Fabric, Link, Tier

_TABLE = Path(__file__).with_name("link_flash_cuts.csv")
DAY_S = 86_400.0
PAPER_LINKS = 3200
"""The links of Fire-Flyer 2 by sections III-B and VI: 2 zones x 40 leaves x 20 uplinks, about 1,200 compute NICs, 180
storage nodes with two each, and some 40 between the zones (the last is this project's
guess); so counts ``topo show fire_flyer_2``."""
_ALL_TIERS = tuple(tier.value for tier in Tier)


class _Cuts(Strict):
    """What both generators have: how long each cut lasts, and which tiers' links are cut."""

    duration: Annotated[TimeS, Field(gt=0)] = Field(alias="for")
    tiers: tuple[str, ...] = Field(default=_ALL_TIERS, min_length=1, strict=False)

    @field_validator("tiers")
    @classmethod
    def _known(cls, tiers: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in tiers if name not in _ALL_TIERS]
        if unknown:
            raise ValueError(f"{', '.join(map(repr, unknown))}: no such tier; use some of {', '.join(_ALL_TIERS)}")
        return tiers

    def links(self, fabric: Fabric) -> tuple[Link, ...]:
        """Return the links that may be cut. Raises ConfigError if the fabric has none."""
        found = tuple(link for link in fabric.links if link.tier.value in self.tiers)
        if not found:
            raise ConfigError("cuts", [f"tiers: {fabric.name} has no {' or '.join(self.tiers)} links; choose others"])
        return found


class FlashCutReplay(_Cuts):
    """The paper's year, of which a ``day`` takes so long here; ``days`` of it are replayed.

    ``block_days``: the stretch of days that is drawn at a time. ``scale_by_links``: whether a fabric with fewer links
    has fewer cuts in proportion (a link of the small fabric is then cut as often as one of the paper's 3,200); else the
    number of cuts is kept.
    """

    day: Annotated[TimeS, Field(gt=0)] = 1.0
    days: Annotated[int, Field(ge=1, le=36_500)] = 365
    block_days: Annotated[int, Field(ge=1, le=36_500)] = 7
    scale_by_links: bool = False

    @property
    def compression(self) -> float:
        """How many seconds of the paper's a second here stands for."""
        return DAY_S / self.day

    @property
    def length_s(self) -> float:
        """How long the replay takes."""
        return self.days * self.day


@cache
def published_cuts() -> dict[date, int]:
    """Return the flash cuts of each day that the paper lists."""
    lines = [line for line in _TABLE.read_text().splitlines() if not line.startswith("#")]
    return {date.fromisoformat(row["date"]): int(row["cuts"]) for row in csv.DictReader(lines)}


@cache
def cuts_a_day() -> tuple[int, ...]:
    """Return the flash cuts of every day from the paper's first to its last, days without any included."""
    listed = published_cuts()
    first, last = min(listed).toordinal(), max(listed).toordinal()
    return tuple(listed.get(date.fromordinal(day), 0) for day in range(first, last + 1))


def resampled_days(config: FlashCutReplay, seed: int) -> tuple[int, ...]:
    """Return the cuts of each day of a replayed year, before they are scaled to a fabric: blocks of the paper's days,
    each beginning anywhere, the last day followed by the first."""
    published = cuts_a_day()
    random = np.random.default_rng([seed, 1])
    days: list[int] = []
    while len(days) < config.days:
        start = int(random.integers(len(published)))
        days += [published[(start + place) % len(published)] for place in range(config.block_days)]
    return tuple(days[: config.days])


def flash_cut_days(config: FlashCutReplay, links: int, seed: int) -> tuple[int, ...]:
    """Return the cuts of each day on a fabric with ``links`` links that may be cut.

    Scaled, each of the paper's cuts becomes as many as the fabric has links for one of the paper's, on average.
    """
    days = resampled_days(config, seed)
    if not config.scale_by_links:
        return days
    whole, part = divmod(links / PAPER_LINKS, 1)
    random = np.random.default_rng([seed, 2])
    return tuple(int(whole) * cuts + int(random.binomial(cuts, part)) for cuts in days)


def flash_cut_replay(config: FlashCutReplay, fabric: Fabric, seed: int) -> FailureSchedule:
    """Return the paper's year of flash cuts on a fabric, compressed in time. Raises ConfigError."""
    links = config.links(fabric)
    random = np.random.default_rng([seed, 3])
    times = [
        (day + float(random.random())) * config.day
        for day, cuts in enumerate(flash_cut_days(config, len(links), seed))
        for _ in range(cuts)
    ]
    return FailureSchedule.of(_cuts(times, links, config.duration, random))


def _cuts(
    times_s: Sequence[float], links: Sequence[Link], duration_s: float, random: np.random.Generator
) -> Iterator[Failure]:
    for number, at_s in enumerate(times_s):
        yield Failure(links[int(random.integers(len(links)))], at_s, at_s + duration_s, causes=(number,))
