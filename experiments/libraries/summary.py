"""What ``libraries`` says of a run: times over sizes beside theory, by library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.libraries import theory
from experiments.libraries.catalogue import ALLREDUCE, LIBRARIES, TRANSFER, library_named
from experiments.libraries.config import INSTALL, LibrariesConfig
from experiments.libraries.measures import OVER_THEORY, TIME
from fabric.metrics import Metric
from fabric.model.identity import NodeId
from fabric.model.network import Link
from fabric.records.cells import count_of, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_size
from runs.session import Session

OWN_TITLE = "our own"


@dataclass(frozen=True)
class Measured:
    """What a library took for an operation of a size, in seconds per step, and how many elements were wrong (None: it
    does not look). ``library`` is empty for our own collectives."""

    library: str
    operation: str
    size_bytes: int
    time_s: float
    wrong: int | None

    @property
    def title(self) -> str:
        """The library in words."""
        return library_named(self.library).title if self.library else OWN_TITLE

    @property
    def reads(self) -> bool:
        """Whether it asks for what is transferred."""
        return bool(self.library) and library_named(self.library).reads


def summarize(
    session: Session, config: LibrariesConfig, ranks: Sequence[NodeId], found: Sequence[Measured]
) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    fabric, plan = session.live.fabric, session.live.plan
    links = theory.path(fabric, plan, ranks[0], ranks[-1])
    ideal_s = {one: _ideal_s(one, len(ranks), links, fabric.mtu_bytes) for one in found}
    tables = [
        _table(operation, len(ranks), [(one, ideal_s[one]) for one in found if one.operation == operation])
        for operation in config.operations
    ]
    return {
        "title": f"Libraries over sizes, {format_size(config.begin)} to {format_size(config.end)}",
        "answer": _answer(config, found, ideal_s),
        "metrics": [metric for one in found for metric in _metrics(one, ideal_s[one])],
        "tables": tables,
        "libraries": [
            {
                "library": one.title,
                "is_own": not one.library,
                "operation": one.operation,
                "size_bytes": one.size_bytes,
                "time_s": one.time_s,
                "ideal_s": ideal_s[one],
                "wrong": one.wrong,
                "sent_bytes": theory.sent_bytes(one.operation, one.size_bytes, len(ranks)),
            }
            for one in found
        ],
    }


def _ideal_s(one: Measured, ranks: int, links: Sequence[Link], mtu_bytes: int) -> float:
    if one.operation == TRANSFER:
        return theory.transfer_s(one.size_bytes, links, mtu_bytes, one.reads)
    return theory.allreduce_s(one.size_bytes, ranks, links, mtu_bytes)


def _table(operation: str, ranks: int, rows: Sequence[tuple[Measured, float]]) -> SummaryTable:
    what = f"allreduce over {ranks} ranks" if operation == ALLREDUCE else "transfer from one host to another"
    return SummaryTable(
        title=what,
        columns=["library", "size", "time us", "Gbit/s", "theory us", "time over theory", "wrong"],
        rows=[
            [
                one.title,
                quantity(one.size_bytes, "size"),
                quantity(one.time_s, ".2f in us"),
                quantity(theory.sent_bytes(operation, one.size_bytes, ranks) * 8 / one.time_s, ".1f in Gbit/s"),
                quantity(ideal_s, ".2f in us"),
                quantity(one.time_s / ideal_s, ".3f"),
                "N/A" if one.wrong is None else count_of(one.wrong),
            ]
            for one, ideal_s in rows
        ],
        note="Gbit/s: busbw, of what a rank sends at least. Theory: full TCP segments on an idle path, and no time to "
        "compute; a read is asked for first. Libraries measure themselves.",
    )


def _metrics(one: Measured, ideal_s: float) -> Iterator[Metric]:
    phase = one.library or f"own_{one.operation}"
    yield Metric(phase, "", TIME.of(one.operation, one.size_bytes), one.time_s)
    yield Metric(phase, "", OVER_THEORY.of(one.operation, one.size_bytes), one.time_s / ideal_s)


def _answer(config: LibrariesConfig, found: Sequence[Measured], ideal_s: dict[Measured, float]) -> str:
    played = {one.library for one in found if one.library}
    missing = [one.name for one in LIBRARIES if one.name not in played and one.home() is None]
    rest = f" Not installed: {', '.join(missing)} ({INSTALL})." if missing and config.libraries is None else ""
    if not played:
        return f"No library was played, only our own collectives.{rest}"
    largest = {
        (one.library, one.operation): one.time_s / ideal_s[one]
        for one in found
        if one.library and one.size_bytes == config.sizes[-1]
    }
    best, worst = min(largest, key=lambda key: largest[key]), max(largest, key=lambda key: largest[key])

    def said(key: tuple[str, str]) -> str:
        return f"{library_named(key[0]).title}'s {key[1]} takes {largest[key]:.3f} times theory"

    wrong = sum(one.wrong or 0 for one in found)
    size = format_size(config.sizes[-1])
    return f"At {size} {said(best)}, {said(worst)}; {wrong} elements of all were wrong.{rest}"
