"""A validation under way: who is asked what next, and what it found. Pure: time and answers come in, orders go out.

First all nodes check themselves at once; those that pass measure bandwidth in pairs (:mod:`cluster.health.pairs`), NIC
by NIC, one way and then the other. Whoever does not answer in time has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cluster.health.checks import Check, CheckResult, Occasion, Verdict
from cluster.health.config import Validate
from cluster.health.pairs import Pair, Suspicion, blame, ring, rounds
from fabric.units import format_rate

_BY_ITSELF = frozenset({Check.LINK, Check.SPEED, Check.COUNTERS, Check.GPU, Check.MEMORY, Check.STORAGE})


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
        sound = [node for node in self.subjects if self._took_checks(node)]
        if Check.BANDWIDTH not in self._config.checks:
            return
        for nic in range(max((len(self._nodes.rates[node]) for node in sound), default=0)):
            yield from self._bandwidth(nic, [node for node in sound if nic < len(self._nodes.rates[node])])

    def _took_checks(self, node: str) -> bool:
        """Take what a node found of itself; return whether it goes on."""
        found = self._answers.pop(Order(node), None)
        if found is None or isinstance(found, Measured):
            why = f"its agent did not answer within {self._config.timeout:g} s"
            self.results.append(CheckResult(node, Check.ANSWER, Verdict.FAILED, reason=why))
            return False
        mine = [one for one in found if one.check in _BY_ITSELF and one.check in self._config.checks]
        if Check.ANSWER in self._config.checks:
            self.results.append(CheckResult(node, Check.ANSWER, Verdict.PASSED))
        self.results += mine
        # How slow a NIC is that says so itself is measured all the same.
        return all(one.verdict is not Verdict.FAILED or one.check in (Check.SPEED, Check.COUNTERS) for one in mine)

    def _bandwidth(self, nic: int, subjects: Sequence[str]) -> Iterator[Sequence[Order]]:
        helpers = [node for node in self.helpers if nic < len(self._nodes.rates[node])]
        suspicion, texts = Suspicion(self._config.bandwidth), dict[Pair, str]()
        for pairs in rounds(ring(subjects, helpers, self._nodes.leaf_of)):
            yield from self._measure(pairs, nic, suspicion, texts)
        while (pair := suspicion.confirmation(subjects, helpers, self._nodes.leaf_of)) is not None:
            yield from self._measure([pair], nic, suspicion, texts)
            suspicion.alone.add(pair)
        self.results += [self._judged(node, nic, suspicion, texts) for node in subjects]

    def _measure(
        self, pairs: Sequence[Pair], nic: int, suspicion: Suspicion, texts: dict[Pair, str]
    ) -> Iterator[Sequence[Order]]:
        ways = [[Order(*pair, nic) for pair in pairs], [Order(*pair[::-1], nic) for pair in pairs]]
        yield from ways
        for pair, *orders in zip(pairs, *ways, strict=True):
            found = [self._measured(order) for order in orders]
            slower = min(found, key=lambda one: one.bps)
            rate_bps = min(self._nodes.rates[node][nic] for node in pair)
            suspicion.measured[pair] = slower.bps / rate_bps
            texts[pair] = slower.why or f"{format_rate(slower.bps)} of {format_rate(rate_bps)}"
        if len(pairs) == 1:
            suspicion.alone.update(pairs)

    def _measured(self, order: Order) -> Measured:
        found = self._answers.pop(order, None)
        return found if isinstance(found, Measured) else Measured(0.0, f"{order.node} did not answer")

    def _judged(self, node: str, nic: int, suspicion: Suspicion, texts: Mapping[Pair, str]) -> CheckResult:
        found, best, rate_bps = blame(node, suspicion, texts), suspicion.best(node), self._nodes.rates[node][nic]
        verdict = {True: Verdict.FAILED, False: Verdict.PASSED, None: Verdict.UNKNOWN}[found.is_slow]
        measured = float("nan") if best is None else best * rate_bps
        why = found.why and f"NIC {nic}: {found.why}"
        return CheckResult(node, Check.BANDWIDTH, verdict, measured, suspicion.limit * rate_bps, "bit/s", why)
