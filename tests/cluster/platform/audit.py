"""What must hold of a platform after whatever was killed, checked by its events and by what its programs printed. Pure,
but for reading logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]
_ENDS = ("left", "finished")


def audit(events: Sequence[Event], printed: Mapping[int, Sequence[int]] | None = None) -> list[str]:
    """Return what is wrong, a sentence each; nothing if all is well.

    ``events``: rows of ``platform_events`` of one platform in their order, from its begin on. ``printed``: per life the
    steps that its rank 0 printed, of programs that print each step as a number
    (:mod:`cluster.platform.counted_steps`); then steps are checked, too.
    """
    return [*_jobs(events), *_nodes(events), *(() if printed is None else _steps(events, printed))]


def _jobs(events: Sequence[Event]) -> Iterator[str]:
    """Yield which jobs were lost: submitted, and neither finished nor stopped or failed for good."""
    last: dict[int, str] = {}
    name: dict[int, str] = {}
    told: dict[int, str] = {}
    for row in events:
        number, event = int(row["number"]), str(row["event"])
        if event == "submitted":
            name[number] = str(row["why"])
        elif event in ("suspend", "restart", "cancel", "timeout", "fail"):
            told[int(row["life"])] = event
        if number and event != "saved":
            last[number] = f"{event} {told.get(int(row['life']), '')}".strip()
    for number, how in last.items():
        if not how.startswith("finished") and how not in ("left cancel", "left timeout", "left fail"):
            yield f"job {number} ({name.get(number, '?')}): has not ended; its last event is {how.split()[0]}"


def _nodes(events: Sequence[Event]) -> Iterator[str]:
    """Yield which nodes had two lives at once, or ranks of a life for which they were not asked."""
    holder: dict[str, int] = {}
    asked: dict[int, str] = {}
    for row in events:
        event, life = row["event"], int(row["life"])
        if event == "asked":
            asked[life] = str(row["nodes"])
            for node in str(row["nodes"]).split():
                if node in holder:
                    yield f"{node}: life {life} got it at {row['at_s']:.3f} s, and life {holder[node]} has it"
                holder[node] = life
        elif event == "started" and asked.get(life) != row["nodes"]:
            yield f"life {life}: started on {row['nodes']}, which were not asked"
        elif event in ("requeued", *_ENDS):
            holder = {node: other for node, other in holder.items() if other != life}


def _steps(events: Sequence[Event], printed: Mapping[int, Sequence[int]]) -> Iterator[str]:
    """Yield where steps were left out, or made again though a checkpoint had them."""
    saved: dict[int, int] = {}
    made: dict[int, int] = {}
    for row in events:
        number, life, event = int(row["number"]), int(row["life"]), row["event"]
        if event == "saved":
            saved[number] = int(str(row["why"]).split()[1].rstrip(","))
        elif event == "started":
            own = list(printed.get(life, ()))
            if not own:
                continue
            if own != list(range(own[0], own[0] + len(own))):
                yield f"life {life}: its steps are not in order, each once: {own}"
            if own[0] != saved.get(number, 0) + 1:
                yield f"life {life}: began with step {own[0]}, and step {saved.get(number, 0)} was saved"
            if own[0] > made.get(number, 0) + 1:
                yield f"life {life}: began with step {own[0]}, and only {made.get(number, 0)} were made"
            made[number] = own[-1]
    for number in dict.fromkeys(int(row["number"]) for row in events if row["event"] == "finished"):
        if number in made and saved.get(number, 0) > made[number]:
            yield f"job {number}: ended with step {made[number]}, and step {saved[number]} was saved before"


def printed_steps(folder: Path) -> dict[int, list[int]]:
    """Return per life the steps that its rank 0 printed, from the logs of a platform (``logs/JOB`` of a result)."""
    found: dict[int, list[int]] = {}
    for log in folder.glob("*/*-0/log"):
        life = int(log.parent.name.partition("-")[0])
        found[life] = [int(word) for word in log.read_text().split() if word.isdigit()]
    return found
