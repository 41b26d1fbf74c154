"""A list of jobs as users submit it to the platform, each as the program :mod:`cluster.sharing.listed_job` or a command
of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, field_validator

from cluster.platform.config import SubmittedJob
from cluster.simulation.lives import Job
from fabric.config import MOST_TIME_S, Strict, TimeS, checked

DEFAULT = (
    *("python3", "-S", "-m", "cluster.sharing.listed_job", "{steps}", "{step}", "{every}"),
    *("{start}", "{save}", "{answers}"),
)
_FIELDS = {"steps": 1, "step": 1.0, "every": 1, "start": 1.0, "save": 1.0, "answers": 1, "nodes": 1, "name": "j1"}


class ProgramConfig(Strict):
    """What a job of the list runs on each of its nodes."""

    command: Annotated[tuple[str, ...], Field(min_length=1, max_length=100, strict=False)] = Field(
        default=DEFAULT,
        description=(
            "The program and its arguments; `{steps}`, `{step}`, `{every}`, `{start}`, `{save}`, `{answers}`, "
            "`{nodes}`, `{name}` stand for the job's. Your own prints words as `cluster.sharing.listed_job` does."
        ),
    )
    start: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.3, description="How long a rank of the default program takes before it meets the others; given."
    )
    checkpoint: Annotated[TimeS, Field(gt=0)] = Field(
        default=30.0, description="Steps from one checkpoint to the next, in seconds; killed jobs go on from the last."
    )
    save: Annotated[TimeS, Field(ge=0)] = Field(
        default=2.0, description="How long a rank of the default program saves before a suspend; given, not measured."
    )

    @field_validator("command")
    @classmethod
    def _verify(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        for word in command:
            try:
                word.format(**_FIELDS)
            except (KeyError, IndexError, ValueError) as error:
                known = ", ".join(f"{{{name}}}" for name in _FIELDS)
                raise ValueError(
                    f"{word!r}: {type(error).__name__}: {error}; use {known}, and {{{{ for a brace"
                ) from None
        return command


def name_of(number: int) -> str:
    """Return what a job of the list is called on the platform."""
    return f"j{number:05d}"


def number_of(name: str) -> int:
    """Return the number that :func:`name_of` made a name of."""
    return int(name.removeprefix("j"))


def submissions(jobs: Sequence[Job], step_s: float, program: ProgramConfig) -> tuple[SubmittedJob, ...]:
    """Return a list as jobs of the platform, which makes its work in steps. Raises ConfigError for a job that comes
    later than any of a platform can."""
    found = []
    for job in jobs:
        said = {
            "steps": round(job.work_s / step_s),
            "step": f"{step_s:g}",
            "every": max(1, round(program.checkpoint / step_s)),
            "start": f"{program.start:g}",
            "save": f"{program.save:g}",
            "answers": int(job.answers),
            "nodes": job.nodes,
            "name": name_of(job.number),
        }
        asked = {
            "name": name_of(job.number),
            "user": job.user,
            "nodes": job.nodes,
            "command": tuple(word.format(**said) for word in program.command),
            "priority": job.priority.name,
            "at": job.submitted_s,
            # Who runs for longer than any key may say has no limit that others could be backfilled by.
            "limit": job.limit_s if job.limit_s is not None and job.limit_s <= MOST_TIME_S else None,
        }
        found.append(checked(SubmittedJob, asked, f"job {job.number} of the list"))
    return tuple(found)
