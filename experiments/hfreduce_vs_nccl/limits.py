"""Which limit of a node binds, by closed forms and by what was served of each?"""

from __future__ import annotations

from functools import partial

from experiments.hfreduce_vs_nccl.config import HFReduceVsNcclConfig
from experiments.hfreduce_vs_nccl.sent import limits_of
from experiments.hfreduce_vs_nccl.variants import VariantPhase
from fabric.measures import Measure
from fabric.model.network import Fabric
from fabric.records.cells import Cell, quantity
from runs.case_tables import CaseTable, Column
from runs.node_use import LIMITS as NAMES
from runs.node_use import busiest
from runs.study import Found, Outcome, Played, Question
from runs.true_scale import true_rate
from traffic.collectives.node_limits import NodeLimit
from traffic.metrics import payload_fraction

AnyFound = Found[VariantPhase, HFReduceVsNcclConfig]
AnyOutcome = Outcome[VariantPhase]
HEADS = ("tightest", "second", "third")
OF_PHASE: tuple[Column | str, ...] = (
    "variant {variant}",
    Column("GPUs", lambda one: one.case.gpus),
    "size {size}",
)


def _allowed_Bps(fabric: Fabric, limit: NodeLimit) -> float:  # noqa: N802 - bytes, not bits
    """Return the algbw that a limit allows, less the headers of packets."""
    return limit.algbw_Bps * payload_fraction(fabric.mtu_bytes)


def _measure(played: Played[VariantPhase, HFReduceVsNcclConfig]) -> dict[str, float]:
    limits = limits_of(played.case, played.fabric)
    return {"limit_Bps": _allowed_Bps(played.fabric, limits[0])} if limits else {}


def _limit(found: AnyFound, place: int, one: AnyOutcome) -> Cell:
    limits = limits_of(one.case, found.fabric)
    if place >= len(limits):
        return None
    allowed_Bps = true_rate(found.fabric, _allowed_Bps(found.fabric, limits[place]))  # noqa: N806 - bytes, not bits
    return f"{limits[place].name} ", quantity(allowed_Bps, ".3g in GB/s")


def _busy(found: AnyFound) -> dict[tuple[str, str], float]:
    return busiest(found.session.table("node_limits"))


def _uses(found: AnyFound) -> list[Column | str]:
    """Return a column per limit that any phase used."""
    busy = _busy(found)
    names = [name for name in NAMES if any(limit == name for _, limit in busy)]

    def use(one: AnyOutcome, name: str) -> Cell:
        return busy.get((one.case.name, name), "none")

    return [*OF_PHASE, *(Column(name, partial(use, name=name), ".0%") for name in names)]


_TABLES = (
    CaseTable(
        lambda of: f"Which limit of a node ({of.fabric.inside.name}) binds, GB/s",
        lambda of: [
            *OF_PHASE,
            "here {here_Bps|.3g in GB/s}, of the tightest {algbw_Bps / limit_Bps|.0%}",
            *(Column(head, partial(_limit, of, place)) for place, head in enumerate(HEADS)),
        ],
        "limits: closed forms, each alone, less headers; no measured cap is in the config",
        rows=lambda of: [one for one in of.outcomes if "here_Bps" in one.values],
        having="limit_Bps",
    ),
    CaseTable(
        "Where the time goes: how busy the limits of nodes were",
        _uses,
        "of the busiest node and GPU, over the steps; root port: both directions together; headers and "
        "acknowledgements count; where nothing is near 100 %, the allreduce waits for chunks under way",
        rows=lambda of: of.outcomes if _busy(of) else (),
    ),
)
LIMITS = Question[VariantPhase, HFReduceVsNcclConfig](
    measure=_measure,
    measures=(Measure("limit_Bps", "algbw that the tightest limit inside a node allows, less headers"),),
    tables=lambda found: [table.of(found) for table in _TABLES] if found.fabric.inside is not None else [],
)
