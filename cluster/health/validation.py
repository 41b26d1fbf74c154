"""A validation under way: who is asked what next, and what it found. Pure: time and answers come in, orders go out.

First all nodes check themselves at once; those that pass measure bandwidth in pairs (:mod:`cluster.health.pairs`), NIC
by NIC, one way and then the other. Whoever does not answer in time has failed. A test of speed that fails is repeated,
alone: most of ``tries`` decide, and what each of them measured is the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cluster.health.checks import Check, CheckResult, Occasion, Verdict
from cluster.health.config import Validate
from cluster.health.pairs import Pair, Suspicion, blame, ring, rounds
from fabric.units import format_rate

_OF_SPEED = frozenset({Check.ALLREDUCE, Check.STORAGE})
"""Checks of a node by itself that something else may be in the way of."""
_BY_ITSELF = frozenset({Check.LINK, Check.SPEED, Check.COUNTERS, Check.GPU, Check.MEMORY}) | _OF_SPEED


class Order(NamedTuple):
    """What a node is asked: to check itself (``peer`` empty), or to send to a peer by one of its NICs."""

    node: str
    peer: str = ""
    nic: int = 0


class Measured(NamedTuple):
    """What a sender measured: payload in bit/s, 0 with the reason if nothing came through."""

    bps: float
    why: str = ""


Answer = Sequence[CheckResult] | Measured


class _PairSpeed(NamedTuple):
    """What a pair has, as a fraction of its rate and in words."""

    fraction: float
    words: str


def _all_words(tries: Sequence[_PairSpeed]) -> str:
    return f"{', '.join(dict.fromkeys(one.words for one in tries))} in {len(tries)} tries alone"


@dataclass(frozen=True)
class Nodes:
    """What a validation knows of nodes: the rates of each one's NICs in bit/s, and its leaf."""

    rates: Mapping[str, Sequence[int]]
    leaf_of: Callable[[str], int]


class Validation:
    """One validation, of ``subjects``; ``helpers`` are idle nodes that may be measured with."""

    def __init__(
        self, occasion: Occasion, subjects: Sequence[str], helpers: Sequence[str], nodes: Nodes, config: Validate
    ) -> None:
        self.occasion, self.subjects, self.helpers = occasion, tuple(subjects), tuple(helpers)
        self.results: list[CheckResult] = []
        self._nodes, self._config = nodes, config
        self._waiting: dict[Order, float] = {}
        self._answers: dict[Order, Answer | None] = {}
        self._script: Iterator[Sequence[Order]] | None = self._asked()

    @property
    def is_over(self) -> bool:
        """Whether all has been asked and answered."""
        return self._script is None

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that it may ask."""
        return frozenset((*self.subjects, *self.helpers))

    def failures(self) -> dict[str, str]:
        """Return why each subject failed that did: a check that failed, or what leaves it in doubt."""
        found: dict[str, str] = {}
        for result in self.results:
            bad = result.verdict is Verdict.FAILED
            doubtful = result.verdict is Verdict.UNKNOWN and result.check is Check.BANDWIDTH and result.measured >= 0
            if bad or doubtful:
                found[result.node] = "; ".join([*([found[result.node]] if result.node in found else []), result.words])
        return found

    def xids_of(self, node: str) -> tuple[int, ...]:
        """Return the Xids of errors for which a node failed."""
        return tuple(dict.fromkeys(xid for one in self.results if one.node == node for xid in one.xids))

    def untold(self) -> dict[str, str]:
        """Return why of each subject it cannot be told that is neither sound nor has failed: it was measured with
        nobody, or all was slow."""
        return {
            one.node: one.words
            for one in self.results
            if one.check is Check.BANDWIDTH and one.verdict is Verdict.UNKNOWN and not one.measured >= 0
        }

    def turn(self, now_s: float) -> Sequence[Order]:
        """Return what is to be asked now. What was not answered in time counts as such."""
        for order, until_s in list(self._waiting.items()):
            if now_s >= until_s:
                del self._waiting[order]
                self._answers[order] = None
        while not self._waiting and self._script is not None:
            orders = next(self._script, None)
            if orders is None:
                self._script = None
                break
            self._waiting = dict.fromkeys(orders, now_s + self._config.timeout)
            if orders:
                return orders
        return ()

    def answer(self, order: Order, answer: Answer) -> None:
        """Take what a node answers; what nobody waits for any more is passed over."""
        if self._waiting.pop(order, None) is not None:
            self._answers[order] = answer

    # The script: each step yields orders, and goes on once all are answered -------------------------------------------

    def _asked(self) -> Iterator[Sequence[Order]]:
        yield [Order(node) for node in self.subjects]
        answered = {node: self._checked(node) for node in self.subjects}
        found = {node: mine for node, mine in answered.items() if mine is not None}
        yield from self._try_again(found)
        sound = [node for node in self.subjects if self._took_checks(node, found.get(node))]
        if Check.BANDWIDTH not in self._config.checks:
            return
        for nic in range(max((len(self._nodes.rates[node]) for node in sound), default=0)):
            yield from self._bandwidth(nic, [node for node in sound if nic < len(self._nodes.rates[node])])

    def _checked(self, node: str) -> list[CheckResult] | None:
        """Return what a node found of itself; None if it did not answer."""
        found = self._answers.pop(Order(node), None)
        if found is None or isinstance(found, Measured):
            return None
        return [one for one in found if one.check in _BY_ITSELF and one.check in self._config.checks]

    def _try_again(self, found: dict[str, list[CheckResult]]) -> Iterator[Sequence[Order]]:
        """Ask those again, one after the other, that failed by a test of speed, until most tries say the same; put
        what they say into ``found``."""
        for node, first in found.items():
            tries = {one.check: [one] for one in first if one.check in _OF_SPEED}
            while again := [check for check, mine in tries.items() if self._is_open(mine)]:
                yield [Order(node)]
                told = {one.check: one for one in self._checked(node) or ()}
                for check in again:
                    why = f"its agent did not answer within {self._config.timeout:g} s"
                    tries[check].append(told.get(check, CheckResult(node, check, Verdict.FAILED, reason=why)))
            found[node] = [self._by_most(tries[one.check]) if one.check in tries else one for one in first]

    def _is_open(self, tries: Sequence[CheckResult]) -> bool:
        """Whether tries of a check do not say yet whether it failed."""
        failed = sum(one.verdict is Verdict.FAILED for one in tries)
        return 0 < failed < self._config.condemning and len(tries) < self._config.tries

    def _by_most(self, tries: Sequence[CheckResult]) -> CheckResult:
        """Return what most tries say, with what each of them measured."""
        failed = [one for one in tries if one.verdict is Verdict.FAILED]
        if len(tries) == 1:
            return tries[0]
        mine = failed if len(failed) >= self._config.condemning else [one for one in tries if one not in failed]
        told = "; ".join(dict.fromkeys(one.reason for one in tries if one.reason))
        return replace(mine[-1], reason=f"{len(failed)} of {len(tries)} tries failed: {told}")

    def _took_checks(self, node: str, mine: Sequence[CheckResult] | None) -> bool:
        """Take what a node found of itself; return whether it goes on."""
        if mine is None:
            why = f"its agent did not answer within {self._config.timeout:g} s"
            self.results.append(CheckResult(node, Check.ANSWER, Verdict.FAILED, reason=why))
            return False
        if Check.ANSWER in self._config.checks:
            self.results.append(CheckResult(node, Check.ANSWER, Verdict.PASSED))
        self.results += mine
        # How slow a NIC is that says so itself is measured all the same.
        return all(one.verdict is not Verdict.FAILED or one.check in (Check.SPEED, Check.COUNTERS) for one in mine)

    def _bandwidth(self, nic: int, subjects: Sequence[str]) -> Iterator[Sequence[Order]]:
        helpers = [node for node in self.helpers if nic < len(self._nodes.rates[node])]
        suspicion, texts = Suspicion(self._config.bandwidth), dict[Pair, str]()
        for pairs in rounds(ring(subjects, helpers, self._nodes.leaf_of)):
            if len(pairs) == 1:
                yield from self._confirm(pairs[0], nic, suspicion, texts)
                continue
            found: dict[Pair, _PairSpeed] = {}
            yield from self._measure(pairs, nic, found)
            for pair, speed in found.items():
                suspicion.measured[pair], texts[pair] = speed.fraction, speed.words
        while (next_pair := suspicion.confirmation(subjects, helpers, self._nodes.leaf_of)) is not None:
            yield from self._confirm(next_pair, nic, suspicion, texts)
        self.results += [self._judged(node, nic, suspicion, texts) for node in subjects]

    def _confirm(self, pair: Pair, nic: int, suspicion: Suspicion, texts: dict[Pair, str]) -> Iterator[Sequence[Order]]:
        """Measure a pair alone, again if it is slow, until most tries say the same; then, if it is slow, two that are
        sound."""
        tries, limit, condemning = list[_PairSpeed](), suspicion.limit, self._config.condemning
        while True:
            found: dict[Pair, _PairSpeed] = {}
            yield from self._measure([pair], nic, found)
            tries.append(found[pair])
            slow = [one for one in tries if one.fraction < limit]
            if not slow or len(slow) == condemning or len(tries) == self._config.tries:
                break
        told = slow if len(slow) == condemning else [one for one in tries if one not in slow]
        texts[pair] = _all_words(tries) if len(tries) > 1 else tries[0].words
        suspicion.measured[pair] = sorted(one.fraction for one in told)[len(told) // 2]
        suspicion.alone.add(pair)
        if len(slow) == condemning and (sound := suspicion.control(pair)) is not None:
            yield from self._measure([sound], nic, found)
            if found[sound].fraction < limit:
                (suspect,) = [node for node in pair if node not in sound]
                suspicion.excused[suspect] = f"{' and '.join(sound)} had {found[sound].words}"

    def _measure(self, pairs: Sequence[Pair], nic: int, found: dict[Pair, _PairSpeed]) -> Iterator[Sequence[Order]]:
        """Measure pairs at once, one way and then the other; put the slower of the two into ``found``."""
        ways = [[Order(*pair, nic) for pair in pairs], [Order(*pair[::-1], nic) for pair in pairs]]
        yield from ways
        for pair, *orders in zip(pairs, *ways, strict=True):
            slower = min((self._measured(order) for order in orders), key=lambda one: one.bps)
            rate_bps = min(self._nodes.rates[node][nic] for node in pair)
            words = slower.why or f"{format_rate(slower.bps)} of {format_rate(rate_bps)}"
            found[pair] = _PairSpeed(slower.bps / rate_bps, words)

    def _measured(self, order: Order) -> Measured:
        found = self._answers.pop(order, None)
        return found if isinstance(found, Measured) else Measured(0.0, f"{order.node} did not answer")

    def _judged(self, node: str, nic: int, suspicion: Suspicion, texts: Mapping[Pair, str]) -> CheckResult:
        found, best, rate_bps = blame(node, suspicion, texts), suspicion.best(node), self._nodes.rates[node][nic]
        verdict = {True: Verdict.FAILED, False: Verdict.PASSED, None: Verdict.UNKNOWN}[found.is_slow]
        measured = float("nan") if best is None or found.is_excused else best * rate_bps
        why = found.why and f"NIC {nic}: {found.why}"
        return CheckResult(node, Check.BANDWIDTH, verdict, measured, suspicion.limit * rate_bps, "bit/s", why)
