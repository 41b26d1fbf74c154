"""The page as HTML: with all that it shows in it, or such that it asks a server for the samples."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from matplotlib.colors import to_hex

from fabric.errors import UsageError
from fabric.records.palette import SERIES, lane_colours
from fabric.report.view.grid import labelled_columns
from fabric.report.view.model import Described, View, described, thinned
from fabric.report.view.packing import zipped
from fabric.tables import Column

PAGE = Path(__file__).parent / "page"
SCRIPTS = ("data.js", "map.js", "axis.js", "users.js", "portcharts.js", "panel.js", "app.js", "live.js", "study.js")
_PERIOD_MS = 1000
"""Between two questions of a page for what is new."""
LIMIT_BYTES = 20_000_000
"""Of a page that is one file."""
_HEAT = {"light": ("magma_r", 0.06, 0.96), "dark": ("magma", 0.42, 1.0)}
"""The scale of colours, readable with colour blindness and in grey, as in figures: much is far from the background."""


def write_page(views: Sequence[View], path: Path, limit_bytes: int = LIMIT_BYTES) -> list[str]:
    """Write runs as one file of at most ``limit_bytes``, and return what it says of what is not in it.

    If all samples do not fit, every n-th is in it, for the least n that is tried and fits. Raises UsageError if none
    does.
    """
    every = 1
    while True:
        shown = [thinned(view, every) for view in views]
        page = whole_page(shown)
        if len(page) <= limit_bytes:
            path.write_bytes(page)
            return list(dict.fromkeys(note for view in shown for note in view.notes))
        if every >= max(len(grid.at_s) for view in views for grid in view.grids):
            raise UsageError(
                f"{path}: would have {len(page):,} bytes even without samples, and may have {limit_bytes:,}; "
                "look at the run with fabric view --serve, which leaves the samples in their files"
            )
        every = max(every + 1, round(every * len(page) / limit_bytes))


def whole_page(views: Sequence[View]) -> bytes:
    """Return the page with everything in it."""
    found = [described(view, number) for number, view in enumerate(views)]
    blobs = [(name, _base64(array.zipped)) for one in found for name, array in one.arrays.items()]
    return _page([one.values for one in found], blobs, _zipped_charts()).encode()


def served_page(found: Sequence[Described]) -> bytes:
    """Return the page that asks ``data/NAME`` for samples and ``charts.js`` for the charting library, of where it is
    served from."""
    return _page([one.values for one in found], [], "").encode()


def live_page(found: Described) -> bytes:
    """Return the page of a run that plays, which asks ``live`` for samples."""
    return _page([found.values], [], "", {"period_ms": _PERIOD_MS, "at": ""}).encode()


def study_page(head: dict[str, Any], shown: tuple[Described, str] | None) -> bytes:
    """Return the page of several runs, which asks ``study`` for their states. ``head``: what it says of all of them;
    ``shown``: the run that plays and where its samples are asked for; None: none plays here."""
    runs, live = ([], None) if shown is None else ([shown[0].values], {"period_ms": _PERIOD_MS, "at": shown[1]})
    return _page(runs, [], "", live, {**head, "period_ms": _PERIOD_MS}).encode()


def charts_script() -> str:
    """Return the charting library: the script that the package plotly brings along."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def _zipped_charts() -> str:
    return _base64(zipped(charts_script().encode()))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _page(
    runs: Sequence[dict[str, Any]],
    blobs: Sequence[tuple[str, str]],
    charts: str,
    live: dict[str, Any] | None = None,
    study: dict[str, Any] | None = None,
) -> str:
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(PAGE), undefined=jinja2.StrictUndefined)
    environment.autoescape = True
    data = {
        "runs": list(runs),
        "heat": {name: list(_heat(*scale)) for name, scale in _HEAT.items()},
        "lane_colours": lane_colours([name for run in runs for name in run["level_names"]]),
        "job_colours": list(SERIES),
        "metrics": [_metric(*item) for item in labelled_columns().items()],
        "live": live,
        "study": study,
    }
    return environment.get_template("view.html").render(
        title=" and ".join(str(run["title"]) for run in runs) if study is None else study["title"],
        style=_safe((PAGE / "view.css").read_text()),
        data=_safe(json.dumps(data, allow_nan=False).replace("<", "\\u003c")),
        blobs=blobs,
        charts=charts,
        script=_safe("\n".join((PAGE / name).read_text() for name in SCRIPTS)),
    )


def _metric(name: str, column: Column) -> dict[str, Any]:
    """Return what the page must know of a column that it shows."""
    factor, unit = column.shown
    return {"column": name, "label": column.label, "meaning": column.meaning, "factor": factor, "unit": unit}


def _safe(text: str) -> Any:
    """Return a text of ours that is to stand in the page as it is."""
    from markupsafe import Markup

    return Markup(text)


def _heat(name: str, low: float, high: float) -> Iterator[str]:
    colours = mpl.colormaps[name]
    return (to_hex(colours(low + (high - low) * step / 255)) for step in range(256))
