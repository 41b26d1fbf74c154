"""What all lines of ``failures`` have: when a failure begins, how long it lasts and how often it happens. Pure.

A kind of failure has a config of its own that builds on :class:`FailureConfig`: the keys that name its targets, those
that say what happens to them, and what a line does on a fabric.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

from pydantic import Field, field_validator, model_validator

from fabric.config import Strict, TimeS, require_none
from fabric.failures.schedule import State
from fabric.model.network import Fabric
from fabric.units import format_time

Stretch = tuple[Hashable, float, float, State]
"""A target, from when until when it is in a state, and in which."""


class RepeatConfig(Strict):
    """A failure that happens again and again."""

    every: Annotated[TimeS, Field(gt=0)] = Field(description="Time from one start to the next.")
    times: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="How often it happens in all, the first time included."
    )


class FailureConfig(Strict, ABC):
    """One line of ``failures``, of any kind. ``targets``: its keys that name what fails, one of which a line has;
    ``hits_programs_or_disks``: whether it is not of links alone."""

    targets: ClassVar[tuple[str, ...]]
    hits_programs_or_disks: ClassVar[bool] = True

    at: Annotated[TimeS, Field(ge=0)] = Field(
        description="When the failure begins, counted from when all jobs of the phase play."
    )
    duration: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, alias="for", description="How long the failure lasts. Without it, until the phase ends."
    )
    repeat: RepeatConfig | None = Field(default=None, description="How often it happens again. Without it, once.")
    jitter: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Each start is later by a random time up to this, drawn evenly by the seed."
    )

    # What a kind says -----------------------------------------------------------------------------------------------

    @abstractmethod
    def stretches(self, fabric: Fabric, began_s: float, ended_s: float) -> Iterable[Stretch]:
        """Return the states of targets on a fabric while the failure lasts, in seconds since all jobs play. Raises
        ValueError for a name that the fabric does not have."""

    def own_faults(self) -> Iterator[str]:
        """Yield which keys do not go together, and which are missing."""
        yield from ()

    @property
    def endless(self) -> str:
        """Why it has no end, so that ``for`` says nothing; empty if it may have one."""
        return ""

    @property
    def ended_by(self) -> str:
        """What happens after ``for``, which it therefore needs; empty if it does not."""
        return ""

    @property
    def ends_programs(self) -> bool:
        """Whether programs are dead for good after it, so that it cannot happen again."""
        return False

    @classmethod
    def effects(cls) -> str:
        """Return the values of ``effect``, for messages."""
        return ", ".join(one for one in _literals(cls.model_fields["effect"].annotation) if one is not None)

    # What all have --------------------------------------------------------------------------------------------------

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Let paths of keys have the first target in them: ``failures[disk].at``."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.called = next(iter(getattr(cls, "targets", ())), "")

    @classmethod
    def own_keys(cls) -> list[str]:
        """Return the keys that say what happens to a target, by name."""
        return sorted(set(cls.model_fields) - set(FailureConfig.model_fields) - set(cls.targets))

    @property
    def target(self) -> tuple[str, str]:
        """The key that names its target, and the name."""
        return next((key, value) for key in self.targets if (value := getattr(self, key)) is not None)

    def times_s(self, rng: random.Random) -> list[tuple[float, float]]:
        """Return when it begins and ends, each time; the last never does without ``for``."""
        every, times = (self.repeat.every, self.repeat.times) if self.repeat else (0.0, 1)
        begins = [self.at + number * every + rng.uniform(0, self.jitter) for number in range(times)]
        duration = math.inf if self.duration is None else self.duration
        # To the nanosecond, or what ends at 0.1 s + 0.2 s would miss what begins at 0.3 s.
        return [(round(begin, 9), round(begin + duration, 9)) for begin in begins]

    @field_validator("effect", mode="before", check_fields=False)
    @classmethod
    def _verify_effect(cls, value: Any) -> Any:
        if value not in _literals(cls.model_fields["effect"].annotation):
            raise ValueError(f"is {value!r}; a {cls.called} has {cls.effects()}")
        return value

    @model_validator(mode="after")
    def _verify(self) -> FailureConfig:
        given = [key for key in self.targets if getattr(self, key) is not None]
        faults = [targets_fault(given, self.targets)] if len(given) != 1 else list(self.own_faults())
        require_none([*faults, *self._time_faults()])
        return self

    def _time_faults(self) -> Iterator[str]:
        if self.endless and self.duration is not None:
            yield f"{self.endless}; leave out 'for'"
        if self.ended_by and self.duration is None:
            yield f"{self.ended_by} after 'for', which is missing; give it"
        if self.repeat is None or self.repeat.times == 1:
            return
        if self.ends_programs:
            yield "repeats what kills programs, which do not come back; leave out 'repeat'"
        elif self.duration is None and not self.endless:
            yield "repeats a failure that never ends; give 'for'"
        elif self.duration is not None and self.duration + self.jitter > self.repeat.every:
            yield (
                f"lasts {format_time(self.duration)} and may begin {format_time(self.jitter)} late, yet repeats every "
                f"{format_time(self.repeat.every)}, so that it overlaps itself; raise repeat.every"
            )


def targets_fault(given: Iterable[str], known: Iterable[str]) -> str:
    """Return the fault of a line that names no target, or several."""
    return f"names {' and '.join(given) or 'no target'}; give exactly one of {', '.join(known)}"


def _literals(annotation: Any) -> tuple[Any, ...]:
    """Return the values that a type allows, which may be None, too."""
    if annotation is type(None):
        return (None,)
    parts = get_args(annotation)
    return parts if get_origin(annotation) is Literal else tuple(value for part in parts for value in _literals(part))
