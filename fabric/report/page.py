"""One HTML page per run: self-contained, without scripts, made from the run's directory alone."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from fabric.model.oversubscription import oversubscription_words
from fabric.report.compare import format_metric
from fabric.report.cost import cost_table
from fabric.report.figures import FigureSpec, all_figures, draw_all, draw_main
from fabric.report.figures.style import scale_text, verdict_colour
from fabric.report.margins import cpu_used, margins_by_phase
from fabric.report.omissions import omissions
from fabric.results import REPORT_NAME, Result

_VERDICT_MEANS = {
    "faithful": "The machine kept up and every packet is accounted for: the figures describe the emulated fabric.",
    "degraded": "The machine was at its limits for part of the run: read the numbers with the reasons in mind.",
    "invalid": "The emulation did not hold. These numbers describe the emulating machine, not the fabric.",
}
_FAITHFUL_IN_VIRTUAL_TIME = (
    "Every packet is accounted for, full ports sent at their rates, and hosts had the memory they needed; in virtual "
    "time cores, switches and programs are never late, by construction. The figures describe the emulated fabric."
)
_PASSED = "faithful"
_VECTOR_LIMIT_BYTES = 1_500_000
_MIME = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class EmbeddedFigure:
    """A figure in the page: its file as a ``data:`` URI."""

    name: str
    caption: str
    uri: str


def write_report(
    result: Result, own: Sequence[FigureSpec] = (), missing: str | None = None, *, main_figure_only: bool = False
) -> Path:
    """Draw the figures of ``result`` anew, write its ``report.html`` and return the page's path.

    ``own``: the figures of the result's experiment; ``missing``: why they cannot be had, which the page then says.
    ``main_figure_only``: draw the one that answers most, and say how to draw the others, which takes ten times as long.
    """
    (draw_main if main_figure_only else draw_all)(result, own)
    path = result.directory / REPORT_NAME
    path.write_text(render_page(result, own, missing, main_figure_only=main_figure_only))
    return path


def render_page(
    result: Result, own: Sequence[FigureSpec] = (), missing: str | None = None, *, main_figure_only: bool = False
) -> str:
    """Return the page, with the figures that stand in the result's ``figures`` folder; see :func:`write_report`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = format_cell
    return environment.get_template("report.html").render(
        **_content(result, own, missing), main_figure_only=main_figure_only
    )


def _content(result: Result, own: Sequence[FigureSpec], missing: str | None) -> dict[str, Any]:
    summary, manifest = result.summary, result.manifest
    status = str(result.verdict["status"])
    checks = result.verdict.get("checks", [])
    metrics = {
        str(name): format_metric(str(name), value)
        for name, value in summary.get("metrics", {}).items()
        if isinstance(value, int | float)
    }
    return {
        "title": summary.get("title") or manifest["experiment"],
        "answer": summary.get("answer"),
        "notes": result.notes,
        "experiment": manifest["experiment"],
        "status": status,
        "colour": verdict_colour(status),
        "meaning": _meaning(status, manifest.get("engine")),
        "margins": [
            table for table in (margins_by_phase(result.verdict), cpu_used(manifest), cost_table(result)) if table
        ],
        "passed": [_check_row(check) for check in checks if check["status"] == _PASSED],
        "failed": [_check_row(check) for check in checks if check["status"] != _PASSED],
        "reasons": [str(reason) for reason in result.verdict.get("reasons", [])],
        "facts": _facts(result),
        "phases": result.phases,
        "tables": summary.get("tables", []),
        "metrics": metrics,
        "figures": list(embedded_figures(result, own)),
        "missing": missing,
        "not_modelled": omissions(result),
        "config": _config(result),
        "versions": list(_flat(manifest.get("versions", {}))),
        "machine": list(_flat(manifest.get("machine", {}))),
        "directory": result.name,
        "path": shlex.quote(result.shown_path),
    }


def _facts(result: Result) -> dict[str, str]:
    nodes = result.fabric["nodes"]
    switches = sum(node["role"] not in ("compute", "storage") for node in nodes)
    return {
        "topology": f"{result.fabric['name']}: {switches:,} switches, {len(nodes) - switches:,} hosts",
        **_oversubscription(result.fabric),
        "scale": scale_text(result),
        "queueing": ", ".join(dict.fromkeys(phase.queueing for phase in result.phases)) or "none",
        "seed": str(result.manifest.get("seed", "unknown")),
        "engine": str(result.manifest.get("engine", "unknown")),
    }


def _oversubscription(fabric: Mapping[str, Any]) -> dict[str, str]:
    """Return the oversubscription of a fabric; nothing of a result that does not hold it."""
    by_tier = fabric.get("oversubscription")
    return {} if by_tier is None else {"oversubscription": oversubscription_words(by_tier)}


def _meaning(status: str, engine: Any) -> str:
    if status == "faithful" and engine == "virtual":
        return _FAITHFUL_IN_VIRTUAL_TIME
    return _VERDICT_MEANS.get(status, "")


def _check_row(check: Mapping[str, Any]) -> list[str]:
    margin = check.get("margin")
    numbers = [format_cell(check.get(key)) for key in ("value", "faithful_up_to", "invalid_beyond")]
    numbers.append("-" if margin is None else f"{margin:.0%}")
    return [str(check["name"]), *numbers, str(check["status"]), str(check.get("text", ""))]


def _config(result: Result) -> str:
    path = result.directory / "config.yaml"
    return path.read_text() if path.exists() else ""


def _flat(values: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested mappings as rows ``a.b``, ``value``."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(values, Sequence) and not isinstance(values, str):
        yield prefix, ", ".join(str(value) for value in values)
    else:
        yield prefix, str(values)


def embedded_figures(result: Result, own: Sequence[FigureSpec] = ()) -> Iterator[EmbeddedFigure]:
    """Yield the figures in the result's folder: those known in their order, then what else is there, by name."""
    folder = result.directory / "figures"
    captions = {name: spec.caption for name, spec in all_figures(own).items()}
    captions.update({str(name): str(text) for name, text in result.summary.get("captions", {}).items()})
    others = sorted({path.stem for path in folder.glob("*") if path.suffix in _MIME} - captions.keys())
    for name in [*captions, *others]:
        path = _file_to_embed(folder, name)
        if path is not None:
            encoded = base64.b64encode(path.read_bytes()).decode()
            uri = f"data:{_MIME[path.suffix]};base64,{encoded}"
            yield EmbeddedFigure(name, captions.get(name, name.replace("_", " ")), uri)


def _file_to_embed(folder: Path, name: str) -> Path | None:
    """Return the SVG unless it is missing or so large that a browser labours, else the PNG."""
    vector, raster = folder / f"{name}.svg", folder / f"{name}.png"
    if vector.exists() and (vector.stat().st_size <= _VECTOR_LIMIT_BYTES or not raster.exists()):
        return vector
    return raster if raster.exists() else None


def format_cell(value: Any) -> str:
    """Return a table's cell as text: numbers with four digits, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
