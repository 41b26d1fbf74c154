"""``fabric run --live``: a run's page and its table in the terminal, while it plays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urljoin

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.commands.progress import Display
from app.export.live_metrics import live_metrics
from fabric.measure.live_file import LiveSeries
from fabric.report.view.live import Live, LivePages
from fabric.report.view.serving import METRICS, serving
from fabric.units import format_rate, format_size
from runs.console import tell
from runs.launching.events import Event
from runs.launching.spec import Prepared
from runs.launching.watched import take, watched

_BUSIEST = 8


class LiveDisplay(Display):
    """As any run's display; below it, what plays, the busiest ports now, and the verdict so far."""

    def __init__(self, live: Live) -> None:
        self._watched = live
        super().__init__()

    def report(self, event: Event) -> None:
        """Show an event, also on the page."""
        take(self._watched, event)
        super().report(event)

    def _passing(self) -> RenderableType:
        series = self._watched.series()
        below = [busiest_ports(self._watched, series[-1])] if series and len(series[-1].rows) > 1 else []
        return Group(super()._passing(), *below)


def busiest_ports(live: Live, now: LiveSeries) -> Group:
    """Return the ports that sent the largest part of their link since the sample before, with their queues."""
    rates_bps = {str(link[end]): float(link["rate_bps"]) for link in live.fabric["links"] for end in ("a", "b")}
    columns = now.phase.columns
    grown = now.rows[-1][columns.index("sent_bytes")] - now.rows[-2][columns.index("sent_bytes")]
    backlog = now.rows[-1][columns.index("backlog_bytes")]
    ports = list(dict.fromkeys(port for port, _ in now.phase.queues))
    place = {port: number for number, port in enumerate(ports)}
    of_queue = np.array([place[port] for port, _ in now.phase.queues])
    sent_bps = 8 * np.bincount(of_queue, grown, len(ports)) / (now.at_s[-1] - now.at_s[-2])
    waiting = np.bincount(of_queue, backlog, len(ports))
    used = sent_bps / np.array([rates_bps[port] for port in ports])
    jobs = ", ".join(now.phase.jobs) or "none"
    verdict = live.progress.verdict or "none yet"
    title = f"{now.phase.title} [{now.phase.queueing}], jobs: {jobs}, verdict so far: {verdict}"
    table = Table("busiest ports", "of its link", "rate", "queue")
    for number in np.argsort(-np.round(used, 3), kind="stable")[:_BUSIEST].tolist():
        cells = (f"{used[number]:.0%}", format_rate(sent_bps[number]), format_size(waiting[number]))
        table.add_row(ports[number], *cells)
    return Group(Text(title), table)


def tell_address(address: str, until: str, has_metrics: bool = True) -> None:
    """Say where the page and the metrics are."""
    tell(f"live: {address} ({until}; only this machine reaches it, and only with this address)")
    if has_metrics:
        tell(f"metrics for Prometheus: {urljoin(address, METRICS)}")


@contextmanager
def live_display(prepared: Prepared, port: int = 0) -> Iterator[tuple[Prepared, Display]]:
    """Serve a run's page and metrics for the time of a block; yield the run as it is to be played, and its display."""
    with (
        watched(prepared) as (played, live),
        serving(LivePages(live).answer, port, lambda: live_metrics(live)) as address,
        LiveDisplay(live) as display,
    ):
        tell_address(address, "until the run ends")
        yield played, display
