"""The rate between every two NICs over a path of their own, and the link to blame where it is low."""

from __future__ import annotations

import time
from collections.abc import Sequence

from app.validation.bench import SEED, Bench
from app.validation.blame import PairResult, blame, blame_fault, unexplained
from app.validation.expectations import goodput_bps
from app.validation.findings import TestResult, not_run, tested, undecided
from app.validation.links_check import AGAIN_FRACTION, ATTEMPTS
from app.validation.rounds import Path, nic_pairs, rounds, sample
from fabric.model.lanes import ServiceLevel
from fabric.model.patterns import NicPair
from fabric.units import format_rate
from traffic.flows.pair_streams import Streams

PAIRS = "pairwise bandwidth"
_LEAST_WINDOW_BYTES = 128 << 10
_RAMP_ROUND_TRIPS = 20
"""More than slow start takes to fill any path: it doubles in each."""
_MOST_AGAIN = 100
_TOLD_EVERY = 5


class PairTest:
    """The test."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._fabric = bench.fabric
        filling = 2 * bench.fabric.round_trip_s * bench.fabric.nic_rate_bps / 8
        self._window_bytes = max(_LEAST_WINDOW_BYTES, round(filling))  # Less than a queue holds: none is dropped.
        self._tolerance = bench.engine.timing.flow_noise

    def run(self) -> TestResult:
        """Let all pairs, or a sample of them, send, and those that fell short again."""
        every = nic_pairs(self._fabric)
        if not every:
            return not_run(PAIRS, "no two NICs reach each other")
        chosen = sample(every, self._bench.settings.most_pairs, SEED)
        made = rounds(chosen, self._bench.path, self._bench.cost, self._bench.budget)
        streams = Streams(self._bench.stage(self._window_bytes), ServiceLevel.NCCL)
        streams.start()
        results: list[PairResult] = []
        with self._bench.watched():
            for number, one in enumerate(made):
                if number % _TOLD_EVERY == 0:
                    self._bench.tell(f"pairs of NICs: round {number + 1} of {len(made)}")
                results += self._play(streams, one.pairs)
        results = self._played_again(streams, results)
        streams.close()
        of_all = "" if len(chosen) == len(every) else f", a sample of {len(every):,} drawn by seed {SEED}"
        head = f"{len(chosen):,} pairs{of_all}, one direction each, in {len(made)} rounds of disjoint paths"
        return self._result(head, results)

    def _play(self, streams: Streams, pairs: Sequence[tuple[NicPair, Path]]) -> list[PairResult]:
        times = self._bench.times
        ramp_s = max(times.pair_ramp_s, _RAMP_ROUND_TRIPS * self._fabric.round_trip_s)
        goodput = streams.run([pair for pair, _ in pairs], ramp_s, times.pair_s)
        time.sleep(2 * self._window_bytes * 8 / self._fabric.slowest_rate_bps)  # Until what waited is gone.
        return [PairResult(pair, path, goodput[pair], goodput_bps(self._fabric, path)) for pair, path in pairs]

    def _is_good(self, one: PairResult) -> bool:
        return one.fraction >= 1 - self._tolerance

    def _unexplained(self, results: Sequence[PairResult]) -> list[PairResult]:
        return unexplained([one for one in results if not self._is_good(one)], self._bench.faulty_ports)

    def _played_again(self, streams: Streams, results: list[PairResult]) -> list[PairResult]:
        """Return the results with the best of each pair that was short without a reason, up to a time at which the
        machine kept up."""
        best = {one.pair: one for one in results}
        for _ in range(ATTEMPTS):
            short = [one.pair for one in self._unexplained(list(best.values()))]
            if not short or (len(short) > _MOST_AGAIN and self._bench.late):
                break
            self._bench.tell(f"measuring again: {len(short)} pairs")
            with self._bench.watched():
                for made in rounds(short, self._bench.path, self._bench.cost, self._bench.budget / AGAIN_FRACTION):
                    for again in self._play(streams, made.pairs):
                        best[again.pair] = max(best[again.pair], again, key=lambda one: one.goodput_bps)
            if not self._bench.late:
                break
        return list(best.values())

    def _result(self, head: str, results: Sequence[PairResult]) -> TestResult:
        good = [one for one in results if self._is_good(one)]
        left = self._unexplained(results)
        worst = min(results, key=lambda one: one.fraction)
        reached = f"{format_rate(worst.goodput_bps)} of {format_rate(worst.expected_bps)}"
        lines = [head, f"{len(good)} within {self._tolerance:.0%} of their paths' capacity; worst {worst}: {reached}"]
        if explained := len(results) - len(good) - len(left):
            lines.append(f"{explained} slow pairs use links that are reported above as faulty")
        figures = {"pairs": len(results), "short_pairs": len(results) - len(good), "worst_fraction": worst.fraction}
        if left and self._bench.late:
            return undecided(PAIRS, [*lines, f"{len(left)} pairs seem slow"], self._bench.late, figures)
        return tested(PAIRS, lines, [blame_fault(self._fabric, one) for one in blame(left, good)], figures)
