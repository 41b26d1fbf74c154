"""A result at a glance: what a notebook shows of it.

It is one piece of HTML that needs no other file, and text has the colour of the notebook's theme."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from fabric.report.compare import format_metric
from fabric.report.figures import ANSWERING
from fabric.report.figures.style import verdict_colour
from fabric.results import Result

_METRICS_SHOWN = 10
_LARGEST_BYTES = 1_500_000
"""Of a figure: notebooks keep what they show."""
_MIME = {".svg": "image/svg+xml", ".png": "image/png"}


def as_html(result: Result, answer: str | None, own_figures: Iterable[str]) -> str:
    """Return a result's answer, verdict, notes, main figure if it is drawn, and its first metrics. ``own_figures``: the
    names of those that only its experiment has, which are looked at first."""
    manifest, status = result.manifest, str(result.verdict["status"])
    title = result.summary.get("title") or manifest.get("experiment")
    parts = [
        f"<div><strong>{escape(str(title))}</strong></div>",
        f"<div>{escape(answer)}</div>" if answer else "",
        *_verdict(result, status),
        *_figure(result.directory / "figures", [*own_figures, *ANSWERING]),
        *_metrics(result),
        f'<div style="opacity:.7"><code>{escape(str(result.directory))}</code></div>',
    ]
    return f'<div style="color:inherit;max-width:60rem;line-height:1.5">{"".join(parts)}</div>'


def _verdict(result: Result, status: str) -> Iterator[str]:
    style = f"background:{verdict_colour(status)};color:#fff;border-radius:.25rem;padding:0 .5rem"
    facts = f"engine {result.manifest.get('engine')}, seed {result.manifest.get('seed')}, {len(result.phases)} phases"
    yield f'<div><span style="{style}">{escape(status)}</span> {escape(facts)}</div>'
    if reasons := "".join(f"<li>{escape(str(reason))}</li>" for reason in result.verdict.get("reasons", ())):
        yield f'<ul style="margin:.25rem 0">{reasons}</ul>'
    if notes := "".join(f"<li>note: {escape(note)}</li>" for note in result.notes):
        yield f'<ul style="margin:.25rem 0;opacity:.8">{notes}</ul>'


def _figure(folder: Path, wanted: Iterable[str]) -> Iterator[str]:
    """Yield the first of the figures wanted that is drawn, else the first that is."""
    names = [*wanted, *sorted(path.stem for path in folder.glob("*.svg"))]
    for name in names:
        files = [path for end in _MIME if (path := folder / f"{name}{end}").is_file()]
        fitting = [path for path in files if path.stat().st_size <= _LARGEST_BYTES]
        if fitting:
            file = min(fitting, key=lambda path: path.stat().st_size)
            data = base64.b64encode(file.read_bytes()).decode()
            style = "max-width:100%;background:#fff;border-radius:.25rem"
            yield f'<img alt="{escape(name)}" style="{style}" src="data:{_MIME[file.suffix]};base64,{data}">'
            return


def _metrics(result: Result) -> Iterator[str]:
    found = result.metrics
    if found.empty:
        return
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(path)}</td><td>{escape(format_metric(path, value))}</td></tr>'
        for path, value in found.head(_METRICS_SHOWN)[["path", "value"]].itertuples(index=False)
    )
    more = len(found) - _METRICS_SHOWN
    rest = f"<div>and {more} more in <code>result.metrics</code></div>" if more > 0 else ""
    yield f"<table><tbody>{rows}</tbody></table>{rest}"
