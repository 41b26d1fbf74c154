"""Failures by hand where a cluster's fabric is: users' orders are carried out by what carries out those of configs, and
kept beside the journal.

::

    logs/failures    a row of the table ``failures`` per change, as JSON; times as in the journal
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from cluster.platform.requests import FABRICS, REQUESTS, Asked, FailTarget, HealTarget
from cluster.platform.responses import RESPONSES, FailuresListed, HandFailure
from cluster.platform.scheduler_server import unless_faulty
from fabric.errors import ConfigError, FabricError
from fabric.failures.by_hand import ByHand, FailuresByHand
from fabric.failures.injection import NotThereError
from fabric.failures.report import Change
from fabric.failures.schedule import FailureSchedule
from fabric.tables import BY_HAND, WHOLE_STATE
from fabric.world.programs.agents import AgentPool
from runs.failures import Injections
from runs.phase_rows import failure_row

_SEED = 1
"""Seeds the choice of the chunks of a disk that get wrong."""
_TIMES = ("due_s", "due_end_s", "asked_s", "done_s")


class Hands:
    """Carries out users' orders for a fabric that is up. ``keep`` is given a row of each change, in the cluster's time,
    ``origin_s`` after ``time.monotonic()``'s zero; ``say`` a line."""

    def __init__(
        self, injections: Injections, by_hand: FailuresByHand, origin_s: float, say: Callable[[str], None]
    ) -> None:
        self._injections, self._by_hand, self._origin_s, self._say = injections, by_hand, origin_s, say
        self._order = Lock()
        """One order at a time: each says what changes from how it was."""

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a user's order or question, or ``refused`` with every fault."""
        kind = str(message["kind"])
        return RESPONSES.to_values(unless_faulty(kind, lambda: self._answered(REQUESTS.of_values(dict(message)))))

    def _answered(self, asked: Asked | None) -> FailuresListed:
        with self._order:
            if isinstance(asked, FailTarget):
                return self._listed(self._fail(asked.line))
            return self._listed(self._heal(asked.target) if isinstance(asked, HealTarget) else ())

    def _fail(self, line: Any) -> Sequence[ByHand]:
        if not isinstance(line, Mapping):
            raise ConfigError("fail", [f"{line!r}: is not a line of failures; give its keys"])
        one, schedule = self._by_hand.fail(line, time.monotonic())
        try:
            self._injections.carry_out(schedule)
        except NotThereError as error:
            self._by_hand.forget(one)
            raise ConfigError("fail", [str(error)]) from error
        self._say(f"{self._now_s():9.1f} s  by hand: {one.name} {one.state}")
        if one.until_s < math.inf:
            timer = Timer(one.until_s - time.monotonic(), self._end, [one])
            timer.daemon = True
            timer.start()
        return (one,)

    def _end(self, one: ByHand) -> None:
        """End a failure whose time is over."""
        with self._order:
            try:
                self._healed(*self._by_hand.end(one, time.monotonic()))
            except FabricError as error:
                self._say(f"{self._now_s():9.1f} s  by hand: {one.name}: {error}")

    def _heal(self, target: str) -> Sequence[ByHand]:
        return self._healed(*self._by_hand.heal(target, time.monotonic()))

    def _healed(self, healed: Sequence[ByHand], schedule: FailureSchedule) -> Sequence[ByHand]:
        self._injections.carry_out(schedule)
        for one in healed:
            self._say(f"{self._now_s():9.1f} s  by hand: {one.name} healed")
        return healed

    def heal_all(self) -> None:
        """End all that fails by hand, as the cluster ends. Raises FabricError."""
        with self._order:
            if self._by_hand.under_way:
                self._heal("")

    def _now_s(self) -> float:
        return time.monotonic() - self._origin_s

    def _listed(self, touched: Sequence[ByHand]) -> FailuresListed:
        under_way = self._by_hand.under_way
        return FailuresListed(round(self._now_s(), 6), self._shown(touched), self._shown(under_way))

    def _shown(self, failures: Sequence[ByHand]) -> tuple[HandFailure, ...]:
        def at_s(by_clock_s: float) -> float | None:
            return round(by_clock_s - self._origin_s, 6) if by_clock_s < math.inf else None

        return tuple(
            HandFailure(
                one.name, one.key, one.state, at_s(one.since_s) or 0.0, at_s(one.until_s), tuple(map(str, one.hits))
            )
            for one in failures
        )


def is_of_fabric(question: Mapping[str, Any]) -> bool:
    """Return whether a question is answered where the fabric is."""
    return question["kind"] in FABRICS


def _end_what_was_left(path: Path, now_s: float) -> None:
    """Add to a file of rows that all is whole: it is, in a fabric that has just come up, also if the one before was
    killed while something failed."""
    lines = path.read_text().splitlines() if path.exists() else []
    last = {row["target"]: row for row in map(json.loads, lines)}
    whole = {
        "state": WHOLE_STATE,
        "up": True,
        "rate_fraction": 1.0,
        "loss_fraction": 0.0,
        "paused": False,
        "detail": "the cluster came up anew",
    }
    with path.open("a") as file:
        for row in last.values():
            if row["state"] != WHOLE_STATE:
                file.write(json.dumps({**row, **whole, **dict.fromkeys(_TIMES, now_s)}) + "\n")


@contextmanager
def hands_on(
    live: Any, pool: AgentPool, jobs: Sequence[object], kept: tuple[Path, float], say: Callable[[str], None]
) -> Iterator[Hands]:
    """Let users' failures be carried out for the time of a block; then all that can be is whole again. ``kept``: the
    file of rows, and the cluster's time zero by ``time.monotonic()``."""
    path, origin_s = kept

    def keep(change: Change) -> None:
        row = failure_row("", change, BY_HAND)
        times = {name: row[name] - origin_s for name in _TIMES}
        with path.open("a") as file:
            file.write(json.dumps({**row, **times, "ended_s": float("nan")}) + "\n")

    _end_what_was_left(path, time.monotonic() - origin_s)
    injections = Injections(pool, live.emulation, _SEED, keep)
    injections.prepare(FailureSchedule(), jobs)
    injections.play(time.monotonic())
    try:
        yield Hands(injections, FailuresByHand(live.fabric), origin_s, say)
    finally:
        ending_s = time.monotonic()
        for change in injections.restore().link_changes:
            if change.done_s >= ending_s:  # Earlier ones, and all of others, were told as they came.
                keep(change)
        injections.release()
