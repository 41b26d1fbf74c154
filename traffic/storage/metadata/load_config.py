"""Loads of files in the words of fio and of mdtest."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import Strict, TimeS
from fabric.units import format_apart, format_size
from traffic.storage.config import Count, Size, Wait
from traffic.storage.fio_config import Pattern

_MOST_ITEMS = 1_000_000


class FioConfig(Strict):
    """A load like fio's: each of ``numjobs`` on each node has a file of its own. Keys have fio's names."""

    rw: Annotated[Pattern, Field(strict=False)] = Field(
        default=Pattern.RANDREAD, description="read, write, randread, randwrite, or both: rw, randrw."
    )
    bs: Size = Field(default=256 << 10, description="Size of an IO.")
    size: Size = Field(
        default=16 << 20, description="Size of each job's file, and how much it moves without `runtime`."
    )
    numjobs: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="Jobs on each node.")
    iodepth: Count = Field(default=1, description="IOs that a job keeps under way.")
    rwmixread: Annotated[int, Field(ge=0, le=100)] = Field(
        default=50, description="Share of reads, %, where there are both."
    )
    runtime: Wait | None = Field(
        default=None, description="How long it goes on, over its file again and again. Without it, once."
    )
    fsync: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, description="Writes after which a job says how long its file is; 0: at its end only."
    )
    thinktime: Annotated[TimeS, Field(ge=0)] = Field(default=0.0, description="Pause of a job after each IO.")

    @model_validator(mode="after")
    def _verify(self) -> FioConfig:
        if self.bs > self.size:
            bs, size = format_apart(self.bs, self.size, format_size)
            raise ValueError(f"bs {bs} exceeds size {size}; lower it")
        return self


class Phase(str, Enum):
    """A phase of mdtest."""

    CREATE = "create"
    STAT = "stat"
    READ = "read"
    REMOVE = "remove"


class MdtestConfig(Strict):
    """A load like mdtest's: processes make, look at, read and remove files in a tree of directories, phase by phase; a
    phase begins once all have ended the one before. mdtest's options are in brackets."""

    processes: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="Processes on each node.")
    files: Annotated[int, Field(ge=1, le=_MOST_ITEMS)] = Field(
        default=100, description="Files of each process, in all its directories together (-n)."
    )
    depth: Annotated[int, Field(ge=0, le=16)] = Field(default=0, description="Depth of the tree (-z).")
    branch: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="Directories in each directory of the tree (-b)."
    )
    unique: bool = Field(default=False, description="A tree for each process (-u); without it, one for all.")
    write: Annotated[Size, Field(le=1 << 30)] | None = Field(
        default=None, description="Bytes written to each file as it is made (-w). Without it, none."
    )
    sync: bool = Field(default=False, description="Whether each file's length is synced before it is closed (-y).")
    directories: bool = Field(
        default=False, description="Whether as many directories are made, looked at and removed, too (without -F)."
    )
    phases: Annotated[list[Annotated[Phase, Field(strict=False)]], Field(min_length=1, max_length=4)] = Field(
        default=[Phase.CREATE, Phase.STAT, Phase.READ, Phase.REMOVE],
        description="What is done, in this order (-C, -T, -E, -r); reads are of all that was written (-e).",
    )
    shift: Annotated[int, Field(ge=0, le=65_536)] = Field(
        default=0, description="Whose files are looked at and read: those of the process this many further on (-N)."
    )
    iterations: Annotated[int, Field(ge=1, le=1000)] = Field(default=1, description="How often all of it is done (-i).")

    @property
    def directories_in_tree(self) -> int:
        """How many directories a tree has, the topmost included."""
        return sum(self.branch**level for level in range(self.depth + 1))

    @model_validator(mode="after")
    def _verify(self) -> MdtestConfig:
        if self.directories_in_tree > self.files:
            tree = f"a tree of {self.directories_in_tree:,} directories (depth {self.depth}, branch {self.branch})"
            raise ValueError(f"files {self.files:,} are fewer than one for each directory of {tree}; raise it")
        if self.directories_in_tree > _MOST_ITEMS:
            raise ValueError(f"{self.directories_in_tree:,} directories; the limit is {_MOST_ITEMS:,}, so lower depth")
        if len(set(self.phases)) < len(self.phases):
            raise ValueError("phases: one is there twice; name each once")
        if Phase.CREATE not in self.phases:
            raise ValueError("phases: nothing is made; begin with create")
        if self.phases[0] is not Phase.CREATE or (Phase.REMOVE in self.phases and self.phases[-1] is not Phase.REMOVE):
            raise ValueError("phases: create comes first and remove last, if it does; reorder them")
        return self
