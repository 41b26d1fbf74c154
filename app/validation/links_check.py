"""State, wiring, speed and loss of every link of a live fabric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.validation.bench import Bench
from app.validation.findings import TestResult, not_run, tested, undecided
from app.validation.links import (
    confirmed,
    is_short,
    link_faults,
    rate_fraction,
    state_faults,
    suspects,
    wiring_faults,
)
from fabric.measure.linktest import DirectionMeasurement, LinkTestPlan, link_test_plan, measure_links
from fabric.measure.wiring import carriers, see_wiring
from fabric.model.network import Port

STATE, WIRING, LINKS = "link state", "wiring", "speed and loss"
AGAIN_FRACTION = 4
"""What is measured again has so many times less beside it."""
ATTEMPTS = 5
_TOLD_EVERY = 50


class LinkTests:
    """The three tests; each needs what the one before it found."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._fabric = bench.fabric
        self._emulation = bench.live.emulation
        self._plan = link_test_plan(bench.fabric, bench.engine)
        self._carriers: dict[Port, bool] = {}
        self._peers: dict[Port, Port] = {}

    def state(self) -> TestResult:
        """Look for carrier at both ends of every link."""
        self._bench.tell("looking for carrier at both ends of every link")
        self._carriers = carriers(self._emulation)
        lit = sum(self._carriers.values())
        measured = f"{len(self._fabric.links)} links: carrier at {lit} of {len(self._carriers)} ends"
        return tested(STATE, [measured], state_faults(self._fabric, self._carriers))

    def wiring(self) -> TestResult:
        """Send a probe out of every port that has carrier and see where it arrives."""
        self._bench.tell("sending a probe out of every port")
        lit = [port for port in self._fabric.link_at if self._carriers[port]]
        seen = see_wiring(self._emulation, lit)
        self._peers = {port: arrived for port, arrived in seen.items() if arrived is not None}
        right = sum(arrived == self._fabric.peer(port) for port, arrived in seen.items())
        measured = f"probes from {right} of {len(lit)} ports with carrier arrive where the topology expects them"
        return tested(WIRING, [measured], wiring_faults(self._fabric, seen))

    def links(self) -> TestResult:
        """Fill every direction of every link that carries anything, to where it really leads."""
        if not self._peers:
            return not_run(LINKS, "no link carries anything")
        found: list[DirectionMeasurement] = []
        for one in measure_links(self._emulation, self._peers, self._plan):
            if len(found) % _TOLD_EVERY == 0:
                self._bench.tell(f"filling links: {len(found)} of {len(self._peers)} directions")
            found.append(one)
        tolerance = self._plan.tolerance
        bad = self._measured_again(suspects(self._fabric, found, tolerance))
        sure = [one for one in bad if one.lost_frames or not self._bench.late]
        lines, figures = list(self._lines(found)), self._figures(found)
        if len(sure) < len(bad) and not sure:
            return undecided(LINKS, [*lines, f"{len(bad)} directions seem slow"], self._bench.late, figures)
        return tested(LINKS, lines, link_faults(self._fabric, sure, tolerance), figures)

    def _measured_again(self, bad: list[DirectionMeasurement]) -> list[DirectionMeasurement]:
        """Return the directions that are bad each time, up to a time at which the machine kept up."""
        plan: LinkTestPlan = replace(self._plan, frames_s=self._plan.frames_s / AGAIN_FRACTION)
        for _ in range(ATTEMPTS):
            if not bad:
                break
            names = ", ".join(str(one.sender) for one in bad[:8]) + (" ..." if len(bad) > 8 else "")
            self._bench.tell(f"measuring again: {names}")
            with self._bench.watched():
                again = list(measure_links(self._emulation, {one.sender: one.receiver for one in bad}, plan))
            bad = confirmed(self._fabric, bad, again, plan.tolerance)
            if not self._bench.late:
                break
        return bad

    def _lines(self, found: Sequence[DirectionMeasurement]) -> Iterator[str]:
        tolerance = self._plan.tolerance
        worst = min(found, key=lambda one: rate_fraction(self._fabric, one))
        short = sum(is_short(self._fabric, one, tolerance) for one in found)
        lost, sent = sum(one.lost_frames for one in found), sum(one.sent_frames for one in found)
        fraction = rate_fraction(self._fabric, worst)
        yield f"{len(found)} directions: {len(found) - short} at most {tolerance:.2g} below their rate at the first try"
        yield f"slowest {worst.sender} to {worst.receiver}: {fraction:.2%} of its rate"
        yield f"{lost} of {sent:,} frames lost; at least {min(one.sent_frames for one in found):,} per direction"

    def _figures(self, found: Sequence[DirectionMeasurement]) -> dict[str, float]:
        fractions = [rate_fraction(self._fabric, one) for one in found]
        return {
            "directions": len(found),
            "slowest_fraction_of_rate": min(fractions),
            "fastest_fraction_of_rate": max(fractions),
            "sent_frames": sum(one.sent_frames for one in found),
            "lost_frames": sum(one.lost_frames for one in found),
        }
