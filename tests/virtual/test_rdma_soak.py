"""Random runs of RDMA under losses, cuts and stopped programs: every message whole and once, or an error that names the
queue pair."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.guest_scripts import run_module

pytestmark = [pytest.mark.guest, pytest.mark.timeout(7200)]
NAMED = re.compile(r"^ConnectionEndedError: \S+ to \S+, queue pair \d+: \w")
Seen = dict[str, Any]


def played(directory: Path, first: int, count: int) -> dict[str, list[Seen]]:
    report = directory / f"report-{first}.json"
    run_module("tests.virtual.rdma_soak", str(report), str(first), str(count), keep=[directory])
    found: dict[str, list[Seen]] = json.loads(report.read_text())
    assert len(found) == count
    return found


def fault(talk: Seen) -> str:
    """What is wrong with what the ends of a connection have seen; nothing if all is as it must be."""
    sink, source, messages = talk["sink"], talk["source"], talk["messages"]
    for end in (sink, source):
        if "wrong" in end or "crash" in end:
            return str(end.get("wrong") or end["crash"])
    if sink.get("received", 0) > source.get("sent", 0) + 1 and source:
        return "more came than was sent"
    if source.get("confirmed", messages) != messages:
        return "the source was told of other messages than it sent"
    whole = sink.get("received") == messages and source.get("confirmed") == messages
    errors = [end["error"] for end in (sink, source) if "error" in end]
    if unnamed := [error for error in errors if not NAMED.match(error)]:
        return f"{unnamed[0]} names no queue pair"
    return "" if whole or errors or talk["killed"] else "neither whole nor an error"


def outcomes(found: dict[str, list[Seen]]) -> Counter[str]:
    """How connections ended. Fails for one that ended as none may."""
    faults = {f"{seed}.{number}": fault(talk) for seed, talks in found.items() for number, talk in enumerate(talks)}
    assert {name: words for name, words in faults.items() if words} == {}
    talks = [talk for one in found.values() for talk in one]
    return Counter(
        "killed" if one["killed"] else "error" if "error" in {**one["sink"], **one["source"]} else "whole"
        for one in talks
    )


def test_messages_are_whole_and_come_once_or_an_error_names_the_queue_pair(tmp_path: Path) -> None:
    ended = outcomes(played(tmp_path, 0, 40))
    print(ended)
    assert ended["whole"] > 20
    assert ended["error"] > 2


@pytest.mark.soak
def test_a_thousand_runs_lose_nothing(tmp_path: Path) -> None:
    total = Counter[str]()
    for first in range(1000, 2000, 100):
        total += outcomes(played(tmp_path, first, 100))
    print(total)
    assert total["whole"] > 500
