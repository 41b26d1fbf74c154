"""What the figures of ``hfreduce_vs_nccl`` show: which phases make a line, at which x, beside which of the paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.hfreduce_vs_nccl.limits import allowed_Bps, limits_of
from experiments.hfreduce_vs_nccl.variants import (
    KINDS,
    PAPER_BPS,
    PAPER_NVLINK_BPS,
    HFReduceVsNcclConfig,
    Variant,
    VariantPhase,
    gigabytes,
)
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_size


def described_series(config: HFReduceVsNcclConfig, fabric: Fabric, played: Sequence[VariantPhase]) -> dict[str, Any]:
    """Return a summary's ``scaling`` (Figure 7a), ``scaling_nvlink`` (7b) and ``sizes``, as far as they were played.

    Each has a ``title``, ``series`` (a label, a service level and phases), ``x`` (of each phase) and ``x_label``, and
    ranges to compare with, in bytes a second of the system that the fabric stands for.
    """
    per_node = 1 if fabric.inside is None else fabric.inside.gpus
    x_label = "nodes" if fabric.inside is None else "GPUs"
    title = f"Allreduce of {format_size(config.size)}"
    whole = [play for play in played if not play.is_size]

    def scaled(wanted: Sequence[VariantPhase], figure: str) -> dict[str, Any]:
        return {**_lines(wanted, lambda play: play.count * per_node), "title": title + figure, "x_label": x_label}

    plain = [play for play in whole if not play.variant.nvlink]
    found: dict[str, Any] = {}
    if plain:
        figure = ", as Figure 7a" if fabric.inside is not None and plain[0].variant.is_published else ""
        found["scaling"] = {**scaled(plain, figure), "bands": _bands(played)}
        if fabric.inside is not None:
            found["scaling"]["caps"] = _tightest(fabric, plain)
    paired = [play for play in whole if play.variant.nvlink]
    if paired:
        above = {"label": f"paper, with NVLink: above {gigabytes(PAPER_NVLINK_BPS)}", "algbw_Bps": PAPER_NVLINK_BPS}
        beside = [*(play for play in plain if play.variant.level == ServiceLevel.HFREDUCE), *paired]
        found["scaling_nvlink"] = {**scaled(beside, ", as Figure 7b"), "caps": [above, *_tightest(fabric, paired)]}
    sizes = [play for play in played if play.is_size]
    if sizes:
        same = [play for play in whole if play.count == config.sizes_nodes]
        ordered = sorted([*sizes, *same], key=lambda play: play.size)
        lines = _lines(ordered, lambda play: play.size / 2**20)
        over = f"{config.sizes_nodes * per_node} {x_label}"
        found["sizes"] = {**lines, "title": f"by size, over {over}", "x_label": "size, MiB"}
    return found


def _lines(wanted: Sequence[VariantPhase], x_of: Callable[[VariantPhase], float]) -> dict[str, Any]:
    variants: dict[str, Variant] = {play.variant.name: play.variant for play in wanted}
    series = [
        {
            "label": variant.title,
            "service_level": variant.level.label,
            "phases": [play.phase for play in wanted if play.variant == variant],
        }
        for variant in variants.values()
    ]
    return {"series": series, "x": {play.phase: x_of(play) for play in wanted}}


def _bands(played: Sequence[VariantPhase]) -> list[dict[str, Any]]:
    if not any(play.variant.is_published for play in played):
        return []
    return [
        {
            "label": f"paper, {KINDS[level]}: {gigabytes(low)}-{gigabytes(high)} GB/s",
            "service_level": level.label,
            "from_Bps": low,
            "to_Bps": high,
        }
        for level, (low, high) in PAPER_BPS.items()
    ]


def _tightest(fabric: Fabric, wanted: Sequence[VariantPhase]) -> list[dict[str, Any]]:
    """Return the closed form of each variant's tightest limit over the most nodes; one that several share, once."""
    found: dict[str, dict[str, Any]] = {}
    last = {play.variant.name: play for play in wanted}
    for play in last.values():
        limit = limits_of(fabric, play.variant, play.count)[0]
        value = allowed_Bps(fabric, limit)
        label = f"{limit.name}, closed form, {play.variant.title.partition(',')[0]}: {gigabytes(value)}"
        found.setdefault(label, {"label": label, "algbw_Bps": value})
    return list(found.values())
