"""The figures of ``resync``: who sends, what it costs others, and reads while nodes are restarted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.resync.measures import READ_RATE, READ_TIME, STEP
from fabric.metrics import least_name
from fabric.records.palette import GREY, INK, MIDDLE, series
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.results import Result

_BAR = 0.27
_BLACK = INK
_PROMISED, _PLACED, _SENT = MIDDLE, series(4), series(0)
_COLOURS = {"beside": MIDDLE, "during": series(2)}
Found = Mapping[str, Any]


def shares(result: Result) -> Figure | None:
    """Return what each peer was promised to send, is to send by its place in chains, and sent, of all that was sent;
    None if the run has no such rows."""
    table = result.table("resync_shares")
    phases = list(dict.fromkeys(map(str, table["phase"])))
    if not phases:
        return None
    with framed(result, "Who sends to a storage node that comes back", 9.5, 1.2 + 1.9 * -(-len(phases) // 3)) as (
        figure,
        body,
    ):
        panels = body.subplots(-(-len(phases) // 3), min(3, len(phases)), squeeze=False, sharey=True).ravel()
        for panel, phase in zip(panels, phases, strict=False):
            _draw_shares(panel, phase, table[table["phase"] == phase])
        for panel in panels[len(phases) :]:
            panel.set_visible(False)
        for panel in panels[:: min(3, len(phases))]:
            panel.set_ylabel("share of all that was sent")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_shares(panel: Axes, phase: str, rows: Any) -> None:
    columns = {
        "promised by 3FS's placement": ("promised_chains", _PROMISED),
        "chains in which it serves last": ("placed_chains", _PLACED),
        "sent": ("sent_bytes", _SENT),
    }
    for number, (label, (column, colour)) in enumerate(columns.items()):
        values = rows[column].to_numpy(float)
        parts = values / values.sum() if values.sum() else values
        places = [place + (number - 1) * _BAR for place in range(len(parts))]
        panel.bar(places, parts, _BAR * 0.92, color=colour, label=label)
    panel.set_xticks(range(len(rows)), list(map(str, rows["peer"])))
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    panel.grid(visible=False, axis="x")
    panel.set_title(phase)


_WHENS = ("beside", "during")


def cost(result: Result) -> Figure | None:
    """Return reads, their tail and steps of the allreduce, while nothing is sent and while the node is brought up to
    date; None if the run's summary does not tell of them."""
    variants = (result.summary.get("resync") or {}).get("variants", [])
    if not variants:
        return None
    measures = (
        ({when: READ_RATE.of(when) for when in _WHENS}, "reads (MB/s)", 1e6),
        ({when: READ_TIME.of(when, "p99") for when in _WHENS}, "p99 of a read (s)", 1.0),
        ({when: STEP.of(when) for when in _WHENS}, "median step of the allreduce (s)", 1.0),
        ({"": "whole_s"}, "time until all targets serve (s)", 1.0),
    )
    with framed(result, "What others lose while a node is brought up to date", 10.5, 0.42 * len(variants) + 2.0) as (
        figure,
        body,
    ):
        panels = body.subplots(1, len(measures), sharey=True)
        for panel, (names, title, unit) in zip(panels, measures, strict=True):
            _draw_cost(panel, variants, names, unit)
            panel.set_xlabel(title)
        panels[0].set_yticks(range(len(variants)), [one["phase"] for one in variants])
        panels[0].invert_yaxis()
        labels = {"beside": "nothing is sent", "during": "the node is brought up to date"}
        handles = [panels[0].barh(0, 0, color=_COLOURS[when], label=label) for when, label in labels.items()]
        body.legend(handles, list(labels.values()), loc="outside lower center", ncols=2)
    return figure


def _draw_cost(panel: Axes, variants: Sequence[Found], names: Mapping[str, str], unit: float) -> None:
    for place, one in enumerate(variants):
        for number, (when, key) in enumerate(names.items()):
            known = one.get(key)
            shown = one.get(least_name(key)) if known is None else known
            if shown is None:
                continue
            at = place + (number - (len(names) - 1) / 2) * 0.36
            panel.barh(at, shown / unit, 0.33, color=_COLOURS.get(when, _PLACED))
            words = f"{'> ' if known is None else ''}{shown / unit:.3g}"
            panel.annotate(words, (shown / unit, at), (3, 0), textcoords="offset points", va="center", fontsize=7)
    panel.margins(x=0.22)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")


def restarts(result: Result) -> Figure | None:
    """Return the p99 and the median of reads over time while nodes are restarted; None if none were."""
    phases = (result.summary.get("resync") or {}).get("rolling", [])
    if not phases:
        return None
    with framed(result, "Reads while storage nodes are restarted in turn", 10.0, 0.8 + 2.0 * len(phases)) as (
        figure,
        body,
    ):
        panels = body.subplots(len(phases), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for panel, one in zip(panels, phases, strict=True):
            _draw_restarts(panel, one)
        panels[-1].set_xlabel("time in the phase (s)")
        body.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw_restarts(panel: Axes, one: Found) -> None:
    at_s = [row["at_s"] for row in one["latency"]]
    for column, label, colour in (
        ("p99_s", "p99 of reads that begin then", series(2)),
        ("p50_s", "median", series(0)),
    ):
        panel.step(at_s, [row[column] for row in one["latency"]], where="post", color=colour, label=label)
    for number, change_s in enumerate(one["changes_s"]):
        panel.axvline(change_s, color=GREY, linewidth=0.7, linestyle=":", label="" if number else "chains change")
    for number, (name, restart_s) in enumerate(one["restarts_s"].items()):
        panel.axvline(restart_s, color=_BLACK, linewidth=1.0, label="" if number else "restart")
        panel.annotate(
            name,
            (restart_s, 0.95),
            (3, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=7.5,
        )
    panel.set_yscale("log")
    panel.set_ylim(1e-3, 100)
    panel.set_ylabel("latency (s)")
    words = (
        "services refuse reads by another version of a chain" if one["checks"] else "reads by any version of a chain"
    )
    panel.set_title(words)


FIGURES = (
    FigureSpec(
        "resync_shares",
        "What each other storage node was to send to the one that came back: its part of the chains they share, "
        "as 3FS's placement promises; chains in which its target serves last; and what it sent. Each as a part of all.",
        shares,
    ),
    FigureSpec(
        "resync_cost",
        "Reads and the allreduce while the node is out of its chains and nothing is sent, and while it is brought up "
        "to date; and the time from its return until all of its targets serve.",
        cost,
    ),
    FigureSpec(
        "restarts",
        "Reads while storage nodes are restarted in turn: from the first try to the data. Each restart gives each "
        "chain of the node three new versions; a client learns of one at its next poll.",
        restarts,
    ),
)
