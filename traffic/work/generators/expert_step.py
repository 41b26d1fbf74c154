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

from traffic.work.generators.deepep_kernels import call_times
from traffic.work.generators.expert_exchange import Sent, sent_back, sent_out
from traffic.work.generators.routing import Routed, token_bytes
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.operation_names import is_over_rail, node_group, rail_group
from traffic.work.operations import CollectiveCall, Compute, Operation

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
        work.add(_launch(FIRST_COMPUTE_S))
        places: dict[tuple[str, int], int] = {}
        for phase in phases:
            after = tuple(places[one] for one in phase.after)
            operation = Compute(duration_s=phase.duration_s, name=phase.title, stream=phase.stream, after=after)
            places[phase.name, phase.layer] = work.add(operation)
        works.append(work)
    return graph_of("deepseek_step", works)


def _launch(launch_s: float) -> Compute:
    return Compute(duration_s=launch_s, name="launch", stream="compute")


@dataclass(frozen=True)
class Extras:
    """What a step has besides bytes over rails. ``has_local``: whether what else a phase of communication does, before
    and after it moves tokens, takes the time that was measured; ``launch_s``: how long after communication computing
    begins; ``nvlink_Bps``: bytes per second of a GPU in its node, if they are not packets but a time;
    ``kernels_shrink``: by what tokens and times are shrunk, if DeepEP's kernels take their time, too."""

    has_local: bool = True
    launch_s: float = FIRST_COMPUTE_S
    nvlink_Bps: float | None = None  # noqa: N815 - bytes, not bits
    kernels_shrink: float | None = None


def step_with_bytes(
    phases: Sequence[Phase],
    routed: Routed,
    ranks_per_node: int,
    extras: Extras | None = None,
) -> WorkGraph:
    """Return the step in which phases that communicate move the bytes of ``routed``, behind a barrier."""
    extras = extras or Extras()
    ranks = len(routed.to_rank)
    works = []
    for rank in range(ranks):
        works.append(_Writer(routed, ranks_per_node, rank, extras).written(phases))
    groups = {rail_group(local): tuple(range(local, ranks, ranks_per_node)) for local in range(ranks_per_node)}
    groups |= {
        f"node.{node}": tuple(range(node * ranks_per_node, (node + 1) * ranks_per_node))
        for node in range(ranks // ranks_per_node)
    }
    return graph_of("deepseek_step", works, groups)


def _barrier(group: str, phase: Phase, after: tuple[int, ...]) -> CollectiveCall:
    """Return a barrier of a group. One over the rails and then one in each node make all ranks wait for all: GPUs of
    other places need not reach each other, as in a fabric of planes they do not."""
    return CollectiveCall(
        collective="barrier", size_bytes=0, group=group, stream="communication", name=f"notify {phase.title}",
        after=after,
    )  # fmt: skip


class _Writer:
    """Writes one rank's step."""

    def __init__(self, routed: Routed, ranks_per_node: int, rank: int, extras: Extras) -> None:
        self._node, self._place = divmod(rank, ranks_per_node)
        self._shape = len(routed.to_rank), len(routed.to_rank) // ranks_per_node
        self._sent = {
            "dispatch": sent_out(routed, rank, ranks_per_node),
            "combine": sent_back(routed, rank, ranks_per_node),
        }
        self._extras = extras
        self._work = RankWork()
        self._places: dict[tuple[str, int], tuple[int, ...]] = {}
        self._before: tuple[int, ...] = ()

    def written(self, phases: Sequence[Phase]) -> RankWork:
        """Write all phases."""
        self._work.add(_launch(self._extras.launch_s))
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
        met = after
        for group in (rail_group(self._place), node_group(self._node)):
            met = (self._work.add(_barrier(group, phase, met)),)
        sent, dtype = self._sent[phase.sends], "fp8" if phase.sends == "dispatch" else "bf16"
        unit = token_bytes(HIDDEN, dtype)
        if self._extras.kernels_shrink is None:
            exchanges = tuple(self._exchanges(phase, sent, unit, dtype, met))
        else:
            exchanges = self._call(phase, sent, unit, dtype, met)
        other = phase.duration_s - phase.notify_s - phase.data_s
        if not self._extras.has_local or other <= 0:
            return exchanges
        rest = Compute(duration_s=other, name=f"rest of {phase.title}", stream="communication", after=exchanges)
        return (self._work.add(rest),)

    def _call(self, phase: Phase, sent: Sent, unit: int, dtype: str, met: tuple[int, ...]) -> tuple[int, ...]:
        """Write a call of DeepEP's kernels: notify, tokens in the node as a time, chunks, and the rail in packets."""
        assert self._extras.kernels_shrink is not None
        sizes = sum(sent.over_rail), sum(sent.in_node) * unit
        times = call_times(phase.sends, self._shape, sizes, self._extras.kernels_shrink)
        notified = self._timed(phase, "notify", times.notify_s, met)
        in_node = self._timed(phase, "in node", times.nvlink_s, notified)
        ready = self._timed(phase, "first chunk", times.first_s, notified)
        rail = [count * unit for count in sent.over_rail]
        over = (self._work.add(self._exchange(phase, rail_group(self._place), rail, ("communication", dtype), ready)),)
        return (*in_node, *self._timed(phase, "last chunk", times.last_s, over))

    def _timed(self, phase: Phase, part: str, duration_s: float, after: tuple[int, ...]) -> tuple[int, ...]:
        """Write a part of a call that takes a time; what is behind waits for it, or for ``after`` if it takes none."""
        if duration_s <= 0:
            return after
        stream = "communication in node" if part == "in node" else "communication"
        name = f"{phase.sends} of {phase.title} {part}"
        return (self._work.add(Compute(duration_s=duration_s, name=name, stream=stream, after=after)),)

    def _exchanges(self, phase: Phase, sent: Sent, unit: int, dtype: str, met: tuple[int, ...]) -> list[int]:
        ways = (
            (rail_group(self._place), sent.over_rail, "communication"),
            (node_group(self._node), sent.in_node, "communication in node"),
        )
        return [
            self._work.add(self._exchange(phase, group, [count * unit for count in tokens], (stream, dtype), met))
            for group, tokens, stream in ways
            if len(tokens) > 1
        ]

    def _exchange(
        self, phase: Phase, group: str, sizes: Sequence[int], how: tuple[str, str], met: tuple[int, ...]
    ) -> Operation:
        """Return an exchange in a group: in packets, or inside a node as a time."""
        (stream, dtype), name = how, f"{phase.sends} of {phase.title}"
        if not is_over_rail(group) and self._extras.nvlink_Bps is not None:
            others = sum(sizes) - sizes[self._place]
            duration_s = others / self._extras.nvlink_Bps
            return Compute(duration_s=duration_s, name=f"{name} in node", stream=stream, after=met)
        return CollectiveCall(
            collective="all_to_all_v",
            size_bytes=sum(sizes),
            sent_bytes=tuple(sizes),
            group=group,
            stream=stream,
            name=name,
            after=met,
            dtype=dtype,
        )
