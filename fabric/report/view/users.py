"""Users' jobs of a platform as the page reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fabric.report.users_jobs import UsersJobs

MOST_JOBS, MOST_EVENTS = 2_000, 10_000
"""Of a platform in a phase that a page has; more would make it slow to load."""


def users_on_page(found: Sequence[UsersJobs]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return users' jobs as JSON values, a value a platform and phase, and notes on what is left out.

    An event is ``[time, event, job, nodes, reason]``; job: its number, 0 of a node.
    """
    values, notes = [], []
    for one in found:
        jobs, events = one.jobs[:MOST_JOBS], one.events[:MOST_EVENTS]
        values.append(
            {
                "platform": one.platform,
                "phase": one.phase,
                "jobs": [asdict(job) for job in jobs],
                "out": [asdict(out) for out in one.out],
                "events": [
                    [float(row["at_s"]), str(row["event"]), int(row["number"]), str(row["nodes"]), str(row["why"])]
                    for row in events
                ],
            }
        )
        left = {"jobs": len(one.jobs) - len(jobs), "events": len(one.events) - len(events)}
        notes += [f"{count} {what} of {one.platform} are left out" for what, count in left.items() if count]
    return values, notes
