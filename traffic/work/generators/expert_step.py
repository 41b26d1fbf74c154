"""DeepSeek's step with expert parallelism: a forward and a backward chunk side by side, ten phases a layer.

Computing is one stream, communication another. With the times that were measured the whole step follows; or phases that
communicate move their bytes, behind a barrier, which is what the kernel that waits for all ranks is.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from traffic.work.generators.expert_exchange import Sent, sent_back, sent_out
from traffic.work.generators.routing import Routed, token_bytes
from traffic.work.graph import ALL_RANKS, RankWork, WorkGraph, graph_of
from traffic.work.operations import CollectiveCall, Compute

TABLE = Path(__file__).with_name("deepseek_ep64_step.csv")
HIDDEN = 7168
PUBLISHED_S, SCHEDULED_S = 129.012e-3, 128.594e-3
"""What the real step took, and what its phases' times add up to on two streams."""
FIRST_COMPUTE_S = 475e-6
"""Computing began so long after communication."""
_WAITED = re.compile(r"(\w+\(\w\))(\[-1\])?")


@dataclass(frozen=True)
class Phase:
    """A phase of a layer. ``after``: (phase, layer) that it waits for; ``notify_s``, ``data_s``: of its time, if it
    communicates, that in which it waits for all ranks, and that in which it moves tokens; ``sends``: dispatch or
    combine."""

    layer: int
    name: str
    stream: str
    after: tuple[tuple[str, int], ...]
    duration_s: float
    notify_s: float = 0.0
    data_s: float = 0.0
    sends: str = ""

    @property
    def title(self) -> str:
        """Its name with its layer."""
        return f"{self.name} {self.layer}"


def deepseek_phases(table: Path = TABLE) -> tuple[Phase, ...]:
    """Return the phases in the order in which they are issued."""
    lines = [line for line in table.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return tuple(_phase(row) for row in csv.DictReader(lines))


def _phase(row: dict[str, str]) -> Phase:
    layer = int(row["layer"])
    after = tuple((name, layer - bool(before)) for name, before in _WAITED.findall(row["after"]))
    whole, notify, data = (float(row[key] or 0) / 1e6 for key in ("duration_us", "notify_us", "data_us"))
    return Phase(layer, row["phase"], row["stream"], after, whole, notify, data, row["sends"])


def measured_step(phases: Sequence[Phase], ranks: int = 1) -> WorkGraph:
    """Return the step with all phases as long as measured: nothing is sent."""
    works = []
    for _ in range(ranks):
        work = RankWork()
        work.add(_launch())
        places: dict[tuple[str, int], int] = {}
        for phase in phases:
            after = tuple(places[one] for one in phase.after)
            operation = Compute(duration_s=phase.duration_s, name=phase.title, stream=phase.stream, after=after)
            places[phase.name, phase.layer] = work.add(operation)
        works.append(work)
    return graph_of("deepseek_step", works)


def _launch() -> Compute:
    return Compute(duration_s=FIRST_COMPUTE_S, name="launch", stream="compute")


def step_with_bytes(
    phases: Sequence[Phase],
    routed: Routed,
    ranks_per_node: int,
    *,
    local: Literal["none", "as_measured"] = "as_measured",
) -> WorkGraph:
    """Return the step in which phases that communicate move the bytes of ``routed``, behind a barrier.

    ``local``: whether what else such a phase does, before and after it moves tokens, takes the time that was measured.
    """
    ranks = len(routed.to_rank)
    works = [_Writer(routed, ranks_per_node, rank, local == "as_measured").written(phases) for rank in range(ranks)]
    groups = {f"rail.{local}": tuple(range(local, ranks, ranks_per_node)) for local in range(ranks_per_node)}
    groups |= {
        f"node.{node}": tuple(range(node * ranks_per_node, (node + 1) * ranks_per_node))
        for node in range(ranks // ranks_per_node)
    }
    return graph_of("deepseek_step", works, groups)


class _Writer:
    """Writes one rank's step."""

    def __init__(self, routed: Routed, ranks_per_node: int, rank: int, local: bool) -> None:
        self._node, self._place = divmod(rank, ranks_per_node)
        self._sent = {
            "dispatch": sent_out(routed, rank, ranks_per_node),
            "combine": sent_back(routed, rank, ranks_per_node),
        }
        self._local = local
        self._work = RankWork()
        self._places: dict[tuple[str, int], tuple[int, ...]] = {}
        self._before: tuple[int, ...] = ()

    def written(self, phases: Sequence[Phase]) -> RankWork:
        """Write all phases."""
        self._work.add(_launch())
        for phase in phases:
            after = tuple(place for one in phase.after for place in self._places[one])
            self._places[phase.name, phase.layer] = self._phase(phase, after)
        return self._work

    def _phase(self, phase: Phase, after: tuple[int, ...]) -> tuple[int, ...]:
        if not phase.sends:
            operation = Compute(duration_s=phase.duration_s, name=phase.title, stream=phase.stream, after=after)
            return (self._work.add(operation),)
        self._before = self._communicate(phase, tuple(dict.fromkeys((*after, *self._before))))
        return self._before

    def _communicate(self, phase: Phase, after: tuple[int, ...]) -> tuple[int, ...]:
        """Write a phase that communicates; the one before has ended, as they share a stream."""
        barrier = CollectiveCall(
            collective="barrier", size_bytes=0, group=ALL_RANKS, stream="communication", name=f"notify {phase.title}",
            after=after,
        )  # fmt: skip
        met = self._work.add(barrier)
        sent, dtype = self._sent[phase.sends], "fp8" if phase.sends == "dispatch" else "bf16"
        unit = token_bytes(HIDDEN, dtype)
        exchanges = tuple(self._exchanges(phase, sent, unit, dtype, met))
        other = phase.duration_s - phase.notify_s - phase.data_s
        if not self._local or other <= 0:
            return exchanges
        rest = Compute(duration_s=other, name=f"rest of {phase.title}", stream="communication", after=exchanges)
        return (self._work.add(rest),)

    def _exchanges(self, phase: Phase, sent: Sent, unit: int, dtype: str, met: int) -> list[int]:
        ways = (
            (f"rail.{self._place}", sent.over_rail, "communication"),
            (f"node.{self._node}", sent.in_node, "communication in node"),
        )
        return [
            self._work.add(
                CollectiveCall(
                    collective="all_to_all_v",
                    size_bytes=sum(tokens) * unit,
                    sent_bytes=tuple(count * unit for count in tokens),
                    group=group,
                    stream=stream,
                    name=f"{phase.sends} of {phase.title}",
                    after=(met,),
                    dtype=dtype,
                )
            )
            for group, tokens, stream in ways
            if len(tokens) > 1
        ]
