"""What the table ``failures`` says of random failures beside what is really seen of them in virtual time: carrier and
rates of links, states of processes, drops of probes, and how long reads of disks take."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fabric.model.lanes import Queueing
from tests.guest_scripts import run_module, standing
from tests.root.observed_failures import PERIOD_S, PROBES_S, SLOW_S
from tests.virtual.command import TINY

pytestmark = [pytest.mark.guest, pytest.mark.timeout(3600)]

SCRIPT = "tests.root.observed_failures"
IN_A_GUEST = 10
Seen = dict[str, Any]
Steps = list[tuple[float, str]]


def seen_of(directory: Path, first: int, count: int) -> list[Seen]:
    report = directory / "report.json"
    run_module(
        SCRIPT, TINY, str(report), str(first), str(count), keep=[directory], groundwork=standing(TINY, Queueing.LANES)
    )
    found: list[Seen] = json.loads(report.read_text())
    return found


def said(one: Seen, kind: str) -> dict[str, Steps]:
    """Return since when each target of a kind is in which state, by the rows."""
    found: dict[str, Steps] = {}
    for row in sorted((row for row in one["rows"] if not row["missed"]), key=lambda row: row["done_s"]):
        if row["kind"] == kind:
            state = "killed" if row["state"].startswith("killed") else row["state"]
            found.setdefault(row["target"], [(-1.0, "whole")]).append((row["done_s"], state))
    return found


def states(steps: Steps, from_s: float, until_s: float) -> list[str]:
    """Return the states in which a target was at any time of a stretch."""
    return [state for _, state in [one for one in steps if one[0] <= from_s][-1:]
            + [one for one in steps if from_s < one[0] <= until_s]]  # fmt: skip


def without_loss(state: str) -> str:
    """Return what is seen at a link of a state: its drops are seen by probes."""
    return ", ".join(word for word in state.split(", ") if not word.startswith("loss")) or "whole"


def loses_all(state: str) -> bool:
    return not {"down", "loss 1"}.isdisjoint(state.split(", "))


def differences(one: Seen) -> list[str]:
    """Return what observers saw that the rows do not say, to one sampling period."""
    said_of = {**said(one, "link"), **said(one, "process")}
    found = []
    for target, seen in one["seen"].items():
        for at_s, state in seen:
            near = states(said_of.get(target, [(-1.0, "whole")]), at_s - PERIOD_S, at_s + PERIOD_S)
            carrying = set(map(without_loss, near))
            if state not in carrying:
                found.append(f"{target} at {at_s:.3f} s: is {state}; said: {near}")
    return [*found, *_drops(one), *_disks(one)]


def _drops(one: Seen) -> list[str]:
    """Return which blackouts of probes no row explains, and which rows of links that lose all there is no blackout
    for."""
    links = said(one, "link")
    found = []
    for source, sink, began_s, ended_s in one["blackouts"]:
        ends = [steps for link, steps in links.items() if f"{source}:0-" in link or f"{sink}:0-" in link]
        near = {state for steps in ends for state in states(steps, began_s - PERIOD_S, ended_s + PERIOD_S)}
        if not any(map(loses_all, near)):
            found.append(f"probes from {source} to {sink}: lost from {began_s:.3f} to {ended_s:.3f} s; said: {near}")
    until_s = one["phase"][1]
    for link, steps in links.items():
        for (from_s, state), (end_s, _) in zip(steps, [*steps[1:], (until_s, "")], strict=True):
            if loses_all(state) and "z0h000:0-" in link and end_s < until_s - PERIOD_S:
                whole = [(began, ended) for source, _, began, ended in one["blackouts"] if source == "z0h000"]
                margin_s = PERIOD_S + 2 * PROBES_S
                if not any(began <= from_s + margin_s and ended >= end_s - margin_s for began, ended in whole):
                    found.append(f"{link}: {state} from {from_s:.3f} to {end_s:.3f} s; probes lost: {whole}")
    return found


def _disks(one: Seen) -> list[str]:
    """Return which reads, of those that found their service running, took longer or shorter than the rows say."""
    disks = {target.partition("/")[0]: steps for target, steps in said(one, "disk").items()}
    links, programs = said(one, "link"), said(one, "process")
    found = []
    for peer, operation, began_s, ended_s, retries in one["reads"]:
        margins = began_s - PERIOD_S, ended_s + PERIOD_S
        if retries or operation != "read" or (peer not in disks and ended_s - began_s < SLOW_S):
            continue
        near = set(states(disks.get(peer, [(-1.0, "whole")]), *margins))
        is_disturbed = any(
            set(states(steps, *margins)) != {"whole"}
            for steps in (*links.values(), *(steps for target, steps in programs.items() if "storage" in target))
        )
        if any("fails" in state for state in near) and len(near) == 1:
            found.append(f"{peer}: read from {began_s:.3f} to {ended_s:.3f} s; said: {near}")
        if len(near) > 1:
            continue
        more = re.search(r"reads take ([\d.]+) s more", "".join(near))
        least_s, took_s = float(more[1]) if more else 0.0, ended_s - began_s
        if took_s < least_s - 1e-6 or (not is_disturbed and took_s >= least_s + SLOW_S):
            found.append(f"{peer}: a read took {took_s:.3f} s from {began_s:.3f} s on; said: {near}")
    return found


def verify(seen: list[Seen]) -> None:
    for number, one in enumerate(seen):
        kinds = [f"{row['target']} {row['state']}" for row in one["rows"]]
        print(f"schedule {number}: {len(kinds)} changes, {sum(map(len, one['seen'].values()))} looks, "
              f"{len(one['blackouts'])} blackouts, {len(one['reads'])} reads")  # fmt: skip
        assert differences(one) == [], f"schedule {number}: {one['lines']}\n{kinds}"


def test_what_is_said_is_what_was_seen(tmp_path: Path) -> None:
    verify(seen_of(tmp_path, 1, 1))


@pytest.mark.soak
@pytest.mark.timeout(8 * 3600)
def test_what_is_said_of_three_hundred_schedules_is_what_was_seen(tmp_path: Path) -> None:
    """``FABRIC_SCHEDULES`` plays fewer or more, ``FABRIC_FIRST_SCHEDULE`` others. A guest has some, so that what one of
    them finds does not cost all others."""
    first, count = (int(os.environ.get(f"FABRIC_{name}", default)) for name, default in (
        ("FIRST_SCHEDULE", "0"), ("SCHEDULES", "300")))  # fmt: skip
    for begun in range(first, first + count, IN_A_GUEST):
        folder = tmp_path / str(begun)
        folder.mkdir()
        print(f"schedules from {begun} on")
        verify(seen_of(folder, 1000 + begun, min(IN_A_GUEST, first + count - begun)))
