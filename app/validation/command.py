"""``fabric validate``: is a fabric in order? One row per test, one line per fault with both ends of the link.

After the validator that Fire-Flyer 2 runs weekly on its network: state and speed of links, and stress of storage
bandwidth (arXiv 2408.14158v2, section VII).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.table import Table
from rich.text import Text

from app.validation.asked import lanes_asked
from app.validation.bench import Bench, Settings
from app.validation.findings import Fault, Outcome, TestResult
from app.validation.injection import Injection, read_faults
from app.validation.validator import validate
from fabric.failures.injector import LinkInjector
from fabric.measure.verdict import EXIT_CODE_INVALID
from fabric.model.network import Fabric
from fabric.world import inside
from fabric.world.engines import current_engine
from fabric.world.programs.agents import AgentPool, fork_server
from runs.console import OUT, tell
from runs.live import LiveFabric, bring_up
from traffic.flows.pair_streams import PRELOAD as STREAMS_PRELOAD
from traffic.storage.job import PRELOAD as STORAGE_PRELOAD

_STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.UNDECIDED: "bold yellow",
    Outcome.NOT_RUN: "yellow",
}
_APPLIED_S = 0.5
_PRELOAD = (*STREAMS_PRELOAD, *STORAGE_PRELOAD, "fabric.failures.injector", "fabric.measure.sampling")


def validate_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Bring the fabric up with the faults asked for, test it, and print what was found.

    Returns 1 if that were faults; 3 if there were none, but the machine was too busy to tell of something.
    """
    injection = read_faults(options.fault, fabric)
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    settings = Settings(quick=options.quick, most_pairs=options.pairs)
    fork_server(_PRELOAD)
    with bring_up(fabric, lanes_asked(options), logs, tell, wired=injection.wired) as live:
        pool = AgentPool(_PRELOAD)
        try:
            with _injected(live, pool, injection):
                started = time.monotonic()
                results = list(validate(Bench(live, fabric, pool, settings, tell)))
                elapsed_s = time.monotonic() - started
        finally:
            pool.stop()
    _print(fabric, results, elapsed_s, options.json)
    if _faults(results):
        return 1
    return EXIT_CODE_INVALID if any(one.outcome is Outcome.UNDECIDED for one in results) else 0


@contextmanager
def _injected(live: LiveFabric, pool: AgentPool, injection: Injection) -> Iterator[None]:
    """Let links be slow, lossy or down for the time of a block."""
    if not injection.states:
        yield
        return
    tell("injecting: " + "; ".join(f"{link} {state}" for link, state in injection.states))
    injector = LinkInjector(pool, live.emulation)
    injector.prepare(injection.schedule)
    injector.play(time.monotonic())
    time.sleep(_APPLIED_S)
    yield
    injector.restore()


def _faults(results: Sequence[TestResult]) -> list[Fault]:
    return [fault for result in results for fault in result.faults]


def _print(fabric: Fabric, results: Sequence[TestResult], elapsed_s: float, as_json: bool) -> None:
    faults = _faults(results)
    if as_json:
        answer = {
            "topology": fabric.name,
            "engine": current_engine().name,
            "in_order": not faults and all(result.outcome is not Outcome.UNDECIDED for result in results),
            "elapsed_s": elapsed_s,
            "tests": [result.as_json() for result in results],
            "faults": [fault.as_json() for fault in faults],
        }
        print(json.dumps(answer, indent=1))
        return
    table = Table("test", "result", "measured", title=f"{fabric.name}, {elapsed_s:.3g} s", show_lines=True)
    for result in results:
        style = _STYLES[result.outcome]
        table.add_row(result.name, Text(result.outcome.value, style), "\n".join(result.measured))
    OUT.print(table)
    for fault in faults:
        OUT.print(f"fault: {fault}", style="red", highlight=False, soft_wrap=True)
    OUT.print(_sum(results, faults), soft_wrap=True)


def _sum(results: Sequence[TestResult], faults: Sequence[Fault]) -> Text:
    if faults:
        return Text(f"{len(faults)} fault{'s' if len(faults) > 1 else ''}", "bold red")
    for outcome in (Outcome.UNDECIDED, Outcome.NOT_RUN):
        names = [result.name for result in results if result.outcome is outcome]
        if names:
            return Text(f"nothing wrong, as far as tested; {outcome.value}: {', '.join(names)}")
    return Text("in order", "bold green")
