"""Reads and writes of files in fio's words, as configs have them."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import SizeBytes, Strict
from fabric.units import format_apart, format_size

_Size = Annotated[SizeBytes, Field(ge=1)]
_Count = Annotated[int, Field(ge=1, le=4096)]


class Pattern(str, Enum):
    """fio's ``rw``: what is done, and whether one place after the other or at random ones."""

    READ = "read"
    WRITE = "write"
    RANDREAD = "randread"
    RANDWRITE = "randwrite"
    RW = "rw"
    RANDRW = "randrw"

    @property
    def is_random(self) -> bool:
        """Whether places are drawn."""
        return self.value.startswith("rand")

    @property
    def reads(self) -> bool:
        """Whether there are reads."""
        return self not in (Pattern.WRITE, Pattern.RANDWRITE)

    @property
    def writes(self) -> bool:
        """Whether there are writes."""
        return self not in (Pattern.READ, Pattern.RANDREAD)


class ChunkIoConfig(Strict):
    """Reads and writes by each client, in fio's words. A write of a part of a chunk is one to 3FS, too: behind the end
    it is appended, elsewhere the whole chunk is copied on write."""

    rw: Annotated[Pattern, Field(strict=False)] = Field(
        default=Pattern.RANDREAD,
        description=(
            "What is done: `read`, `write`, `rw`, one place after the other, or `randread`, `randwrite`, `randrw`."
        ),
    )
    bs: _Size = Field(default=256 << 10, description="Bytes of each read or write.")
    iodepth: _Count = Field(default=1, description="Reads and writes of each of a client's jobs in flight at once.")
    numjobs: _Count = Field(default=1, description="Jobs per client, each with a file of its own.")
    size: _Size = Field(default=4 << 20, description="Size of each file.")
    rwmixread: Annotated[int, Field(ge=0, le=100)] = Field(
        default=50, description="Percentage of reads, of `rw` and `randrw`."
    )
    overwrite: bool = Field(
        default=False,
        description=(
            "Whether the files of `write` are there before the run, as those of the others. If not, it appends to new "
            "ones in each phase, and copies on write once it has reached their ends."
        ),
    )
    relaxed: bool = Field(
        default=False,
        description="Whether reads may get a version of a chunk that is still pending, instead of waiting.",
    )

    @model_validator(mode="after")
    def _verify(self) -> ChunkIoConfig:
        if self.bs > self.size:
            bs, size = format_apart(self.bs, self.size, format_size)
            raise ValueError(f"bs {bs} exceeds size {size}; lower it")
        return self

    @property
    def writes(self) -> bool:
        """Whether anything is written."""
        return self.rw.writes

    @property
    def are_there(self) -> bool:
        """Whether its files are there before the run."""
        return self.overwrite or self.rw is not Pattern.WRITE
