"""What an estimate is asked for: jobs that each play a pattern over hosts, from a file or from options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.estimate.patterns import Drawn, Pattern
from fabric.config import SizeBytes, Strict, TimeS, checked, note_file, parse_yaml, read_text
from fabric.errors import ConfigError
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import LanePlan
from fabric.model.network import Fabric

MOST_JOBS = 1000


class PatternJob(Strict):
    """A pattern over hosts, all of whose flows are alike and start together."""

    name: str | None = Field(default=None, description="Name in tables. Without it, its pattern and number.")
    pattern: Annotated[Pattern, Field(strict=False)] = Field(
        description="Who sends to whom: permutation, all_to_all, incast or ring."
    )
    hosts: Annotated[int, Field(ge=1)] | list[str] | None = Field(
        default=None,
        description="Compute nodes: how many, or their names. Without it, all that there are from `first`.",
    )
    first: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="Number of the first compute node, where `hosts` is how many, so that jobs play side by side.",
    )
    size: Annotated[SizeBytes, Field(ge=1)] = Field(description="Payload of each flow.")
    service_level: str = Field(default="other", description="Service Level of the packets, which chooses their lane.")
    start: Annotated[TimeS, Field(ge=0)] = Field(default=0.0, description="When all its flows start.")
    peers: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Of all_to_all: to how many others each NIC sends, evenly spread. Without it, to all."
    )

    def faults(self, fabric: Fabric, lanes: LanePlan) -> Iterator[str]:
        """Yield what does not fit the fabric and its lanes."""
        known = [level.label for level in lanes.levels]
        if self.service_level not in known:
            yield f"service_level: unknown level {self.service_level!r}; use {', '.join(known)}"
        if self.peers is not None and self.pattern is not Pattern.ALL_TO_ALL:
            yield f"peers: {self.peers}: is for all_to_all, and this is {self.pattern.value}; omit it"
        if isinstance(self.hosts, list):
            yield from self._wrong_names(fabric, self.hosts)
            return
        there = len(fabric.computes)
        if self.first + (self.hosts or 1) > there:
            wanted = f"{self.hosts or 1:,} from number {self.first:,} on"
            yield f"hosts: {wanted}: {fabric.name} has {there:,} compute nodes; ask for fewer, or use a larger topology"

    def _wrong_names(self, fabric: Fabric, names: Sequence[str]) -> Iterator[str]:
        if self.first:
            yield f"first: {self.first}: is for hosts that are a number, and these are names; omit it"
        for name in names:
            node = fabric.node_named(name)
            if node is None or node.role is not Role.COMPUTE:
                run = f"they run from {fabric.computes[0]} to {fabric.computes[-1]}" if fabric.computes else "has none"
                yield f"hosts: {name}: is not a compute node of {fabric.name}; {run}"
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"hosts: {twice[0]}: is there {names.count(twice[0])} times; name it once"

    def drawn(self, fabric: Fabric, seed: int) -> Drawn:
        """Return its pattern over its hosts, which are there."""
        return Drawn(self.pattern, self._hosts(fabric), self.peers, seed)

    def _hosts(self, fabric: Fabric) -> list[NodeId]:
        if isinstance(self.hosts, list):
            return [fabric.host_named(name) for name in self.hosts]
        end = len(fabric.computes) if self.hosts is None else self.first + self.hosts
        return list(fabric.computes[self.first : end])


class _JobsFile(Strict):
    """A file of jobs."""

    jobs: Annotated[list[PatternJob], Field(min_length=1, max_length=MOST_JOBS)]


def read_jobs(path: Path) -> list[PatternJob]:
    """Return the jobs of a YAML file, which is a list of them. Raises ConfigError."""
    note_file(path)
    data = parse_yaml(read_text(path, "a list of jobs"), str(path))
    if not isinstance(data, list):
        raise ConfigError(str(path), [f"holds a {type(data).__name__}; expected a list of jobs, each with a pattern"])
    return named_apart(checked(_JobsFile, {"jobs": data}, str(path)).jobs, str(path))


def named_apart(jobs: Sequence[PatternJob], source: str) -> list[PatternJob]:
    """Return jobs that all have names. Raises ConfigError if two have the same."""
    found = [
        job if job.name else job.model_copy(update={"name": f"{job.pattern.value}_{number}"})
        for number, job in enumerate(jobs, start=1)
    ]
    names = [job.name for job in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(source, [f"name: {names.count(twice[0])} jobs are called {twice[0]}; give each its own"])
    return found


def verify_jobs(jobs: Sequence[PatternJob], fabric: Fabric, lanes: LanePlan, source: str) -> None:
    """Raise ConfigError with what does not fit the fabric and its lanes."""
    faults = [f"{job.name}: {fault}" for job in jobs for fault in job.faults(fabric, lanes)]
    if faults:
        raise ConfigError(source, faults)
