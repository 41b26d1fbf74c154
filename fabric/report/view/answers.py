"""What a server of finished results answers: the page, the samples that it asks for, the charting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fabric.report.view.document import charts_script, served_page
from fabric.report.view.model import View, described
from fabric.report.view.packing import zipped
from fabric.report.view.serving import Resource

_SCRIPT = "text/javascript; charset=utf-8"
PAGE_KIND = "text/html; charset=utf-8"


class ResultPages:
    """Pages of results: samples are packed once, and sent when they are asked for."""

    def __init__(self, views: Sequence[View]) -> None:
        found = [described(view, number) for number, view in enumerate(views)]
        self._page = zipped(served_page(found))
        self._arrays = {name: array.zipped for one in found for name, array in one.arrays.items()}

    def answer(self, path: str, _: Mapping[str, str]) -> Resource | None:
        """Return what a path holds, None if it is none of the page's."""
        if path == "":
            return Resource(self._page, PAGE_KIND, is_zipped=True)
        if path == "charts.js":
            return charts()
        name = path.removeprefix("data/")
        return Resource(self._arrays[name], is_zipped=True) if name in self._arrays else None


def charts() -> Resource:
    """Return the charting library."""
    return Resource(zipped(charts_script().encode(), 1), _SCRIPT, is_zipped=True)
