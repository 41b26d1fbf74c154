"""Hosts that fall silent: their links are cut and their programs stopped, so that no peer is told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from fabric.failures.kinds.process import KILLED, STOPPED, ProgramTarget
from fabric.failures.line import FailureConfig, Stretch
from fabric.failures.names import links_of_node, node_named
from fabric.failures.schedule import DOWN
from fabric.model.network import Fabric


class SilentFailureConfig(FailureConfig):
    """A host that falls silent."""

    targets: ClassVar[tuple[str, ...]] = ("silent",)

    silent: str = Field(
        description=(
            "The host that falls silent: its NICs are cut and its programs stopped, so that no peer notices (no FIN, "
            "no RST). See `then`."
        ),
    )
    then: Literal["returns", "dead"] = Field(
        default="returns",
        description="What a silent host is after `for`: as it was, or up again with all its programs dead.",
    )

    @property
    def ended_by(self) -> str:
        """A host with dead programs is up again."""
        return "then: dead: the host is up again" if self.then == "dead" else ""

    @property
    def ends_programs(self) -> bool:
        """Whether its programs are dead then."""
        return self.then == "dead"

    def stretches(self, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
        """Yield the cuts of its NICs, and that its programs are stopped until they return, or are killed then: what
        the kernel sends for dead programs is lost while there is no link, and whoever asks later is told."""
        for link in links_of_node(self.silent, "silent", fabric):
            yield link, began_s, ended_s, DOWN
        programs = ProgramTarget(node_named(self.silent, "silent", fabric).name)
        yield programs, began_s, ended_s, STOPPED
        if self.then == "dead":
            yield programs, ended_s, math.inf, KILLED
