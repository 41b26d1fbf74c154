"""The validator's tests in the order in which an operator would mend things.

Where cables are wrong, measured rates mean nothing, so the bandwidth tests are not run; effects of slow or lossy links
are not reported again. A suspected fault is measured again, with less load at the same time, before it is reported; if
the machine was late each time, it is not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.validation.bench import Bench
from app.validation.findings import FaultKind, TestResult, not_run
from app.validation.links_check import LinkTests
from app.validation.load import ALL_TO_ALL, STORAGE, AllToAllTest, StorageTest
from app.validation.pairs import PAIRS, PairTest


def validate(bench: Bench) -> Iterator[TestResult]:
    """Yield the result of each test as it ends. Raises EmulationError or TrafficError if one cannot be made."""
    links = LinkTests(bench)
    loads = {PAIRS: PairTest(bench).run, ALL_TO_ALL: AllToAllTest(bench).run, STORAGE: StorageTest(bench).run}
    for test in (links.state, links.wiring, links.links):
        yield _noted(bench, test)
    for name, test in loads.items():
        reason = _reason_not_to_load(bench)
        yield not_run(name, reason) if reason else _noted(bench, test)


def _noted(bench: Bench, test: Callable[[], TestResult]) -> TestResult:
    result = test()
    bench.faults += result.faults
    return result


def _reason_not_to_load(bench: Bench) -> str:
    if bench.settings.quick:
        return "--quick"
    if any(fault.kind in (FaultKind.STATE, FaultKind.WIRING) for fault in bench.faults):
        return "routes are planned for another wiring than this; fix the links first"
    return ""
