"""The figure of a step with expert parallelism: its time, what computing waits for, and slack, by variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from fabric.report.figures import FigureSpec
from fabric.report.figures.style import GREY, framed
from fabric.results import Result

_MS = 1e3


def steps(result: Result) -> Figure | None:
    """Return bars of steps by variant, and points of slack by phase; None if the summary says nothing."""
    found: Sequence[Mapping[str, Any]] = result.summary.get("steps", ())
    if not found:
        return None
    with framed(result, "Steps and slack by variant", 9.0, 1.6 + 0.45 * len(found)) as (figure, body):
        left, right = body.subplots(1, 2, sharey=True)
        names = [one["variant"] for one in found]
        rows = range(len(found))
        computed = [_MS * (one["step_s"] - one["exposed_s"]) for one in found]
        waits = [_MS * one["exposed_s"] for one in found]
        left.barh(rows, computed, height=0.6, color="#0072B2", label="computing, or idle at an end")
        left.barh(rows, waits, left=computed, height=0.6, color="#D55E00", label="computing waits for tokens")
        for row, one in enumerate(found):
            left.annotate(f"{_MS * one['step_s']:.1f}", (_MS * one["step_s"], row), (3, 0),
                          textcoords="offset points", va="center", fontsize=8)  # fmt: skip
        left.set_yticks(rows, names)
        left.set_ylim(len(found) - 0.4, -0.6)
        left.set_xlim(0, 1.12 * max(_MS * one["step_s"] for one in found))
        left.set_xlabel("step, ms")
        left.legend(fontsize=7.5, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False)
        phases = sorted({name for one in found for name in one["slack_s"]})
        for phase, marker in zip(phases, "osD^v<>", strict=False):
            right.plot([_MS * one["slack_s"].get(phase, float("nan")) for one in found], rows, marker, label=phase,
                       markersize=5)  # fmt: skip
        right.axvline(0, color=GREY, linewidth=1)
        right.set_xlabel("least slack of a phase, ms")
        right.legend(fontsize=7.5, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False)
    return figure


FIGURES = (FigureSpec("expert_steps", "Time of a step, what computing waits for, and the slack of each phase.", steps),)
