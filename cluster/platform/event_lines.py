"""Events as lines for people, and as documents for users' programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cluster.platform.events import (
    Demanded,
    EndOrdered,
    Event,
    Held,
    Left,
    OfJob,
    OfLife,
    Released,
    Saved,
    Submitted,
    Validated,
    name_of,
    to_values,
)
from cluster.platform.state import PlatformState
from cluster.tasks import Task


def line_as_it_happens(state: PlatformState, event: Event) -> str:
    """Return an event as a line, and let ``state``, which all events before it have led to, be as after it."""
    task = state.tasks.get(event.life) if isinstance(event, OfLife) else None
    state.apply(event)
    at = f"{event.at_s:9.1f} s  "
    if isinstance(event, OfJob):
        return f"{at}job {event.number} {_of_job(event)}"
    if isinstance(event, OfLife):
        return at + (f"{name_of(event)}: : {_why(event)}" if task is None else _of_life(task, event))
    if isinstance(event, Demanded):
        return f"{at}{shortened(event.nodes)} to be validated: a user asked for it"
    if isinstance(event, Validated):
        failed = ", ".join(dict.fromkeys(f"{one.node} ({one.words})" for one in event.failed()))
        return f"{at}validated {shortened(event.nodes)} ({event.occasion.value}): {failed or 'all passed'}"
    return f"{at}{name_of(event)}: {event.node}: {event.why}"


def _of_job(event: Submitted | Held | Released) -> str:
    if isinstance(event, Submitted):
        spec = event.spec
        return f"submitted: {spec.name} of {spec.user}, {spec.nodes} nodes at {spec.priority.name}"
    return f"{name_of(event)}: {event.why}"


def _of_life(task: Task, event: OfLife) -> str:
    which = f"job {task.chain}" + (f" (life {event.life})" if event.life != task.chain else "")
    names = getattr(event, "nodes", ())
    nodes = f" on {shortened(names)}" if names else ""
    why = _why(event)
    return f"{which} {_what(event)}{nodes}" + (f": {why}" if why else "")


def _what(event: OfLife) -> str:
    if isinstance(event, EndOrdered):
        return event.how.value
    if isinstance(event, Saved):
        return f"saved step {event.step}"
    return "finished" if isinstance(event, Left) and event.finished else name_of(event)


def _why(event: OfLife) -> str:
    if isinstance(event, Left):
        return ", ".join([f"code {event.code}, step {event.step}", *filter(None, [event.why])])
    return "" if isinstance(event, Saved) else str(event.why)


def document(event: Event) -> dict[str, Any]:
    """Return an event of a job as values of JSON: as the journal has it, with its reason in words, and without the
    spec and the nodes, which the job and its lives have."""
    values = {key: value for key, value in to_values(event).items() if key not in ("spec", "nodes")}
    return values | ({"why": str(event.why)} if hasattr(event, "why") else {})


_SAID_BESIDE = ("event", "at_s", "life", "why", "number", "how")


def line_of_job(event: Event) -> str:
    """Return an event of a job as a line: every value that it has."""
    values = document(event)
    shown = {key: value for key, value in values.items() if key not in _SAID_BESIDE}
    words = " ".join([str(values.get("how", values["event"])), *(f"{key}={value}" for key, value in shown.items())])
    life = f"life {event.life}: " if isinstance(event, OfLife) else ""
    return f"{event.at_s:9.1f} s  {life}{words}" + (f": {values['why']}" if values.get("why") else "")


def shortened(names: Sequence[str], most: int = 4) -> str:
    """Return names as a person reads them: all of a few, or the ends of many and how many there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{names[0]} ... {names[-1]} ({len(names)})"
