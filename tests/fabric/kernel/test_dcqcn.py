"""DCQCN's reaction point as it runs in kernels agrees with its paper, step by step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fabric.world.kernel_api import libbpf
from tests.fabric.kernel.dcqcn_bpf import Event, played
from tests.fabric.kernel.dcqcn_library import CFlow, Library
from tests.fabric.kernel.dcqcn_reference import ALPHA_ONE, GAIN_ONE, Parameters, ReactionPoint

GBPS = 10**9
US = 1000
PAPER = Parameters(
    line_rate_bps=40 * GBPS,
    least_rate_bps=GBPS // 10,
    additive_step_bps=GBPS // 25,
    hyper_step_bps=GBPS // 5,
    stage_bytes=10**7,
    stage_ns=55 * US,
    alpha_ns=55 * US,
    cnp_ns=50 * US,
    gain=GAIN_ONE // 256,
    first_alpha=ALPHA_ONE,
    fast_stages=5,
    lowers_target=1,
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("dcqcn"))


def drawn_parameters(draw: random.Random) -> Parameters:
    line_rate_bps = draw.choice([50 * 10**6, 10 * GBPS, 200 * GBPS, (1 << 40) - 1, draw.randrange(1, 1 << 40)])
    return Parameters(
        line_rate_bps=line_rate_bps,
        least_rate_bps=draw.randint(1, line_rate_bps),
        additive_step_bps=max(1, line_rate_bps // draw.choice([1, 20, 1000, 5000])),
        hyper_step_bps=draw.choice([0, line_rate_bps // 200, line_rate_bps]),
        stage_bytes=draw.choice([0, 1, 4214, 300_000, 10**7]),
        stage_ns=draw.choice([1, 1000, 55 * US, 300 * US]),
        alpha_ns=draw.choice([1, 1000, 55 * US]),
        cnp_ns=draw.choice([0, 4 * US, 50 * US]),
        gain=draw.choice([1, 16, GAIN_ONE // 256, 5 * 64, GAIN_ONE // 2, GAIN_ONE]),
        first_alpha=draw.choice([1, ALPHA_ONE // 2, ALPHA_ONE]),
        fast_stages=draw.choice([0, 1, 5]),
        lowers_target=draw.randint(0, 1),
    )


def drawn_events(draw: random.Random, parameters: Parameters) -> list[Event]:
    """Times between events are some periods of the timers; what is sent meanwhile, some stages of bytes."""
    now_ns = draw.randrange(1 << 40)
    shortest_ns = min(parameters.stage_ns, parameters.alpha_ns)
    events = []
    for _ in range(draw.randint(1, 12)):
        now_ns += draw.choice([0, 1, draw.randrange(1 + shortest_ns), draw.randrange(1 + 40 * shortest_ns)])
        sent_bytes = draw.choice([0, 4214, draw.randrange(1 + 10 * parameters.stage_bytes)])
        sent_bytes = min(sent_bytes, 50 * max(parameters.stage_bytes, 1))
        events.append(Event(now_ns, sent_bytes, draw.random() < 0.4))
    return events


def drawn_histories() -> Iterator[tuple[Parameters, list[Event]]]:
    draw = random.Random(2015)
    for _ in range(10_000):
        parameters = drawn_parameters(draw)
        yield parameters, drawn_events(draw, parameters)


def after(flow: ReactionPoint | CFlow, event: Event) -> tuple[bool, tuple[int, ...]]:
    """Let an event happen to a flow; return whether it was cut, and how it is then."""
    flow.advance(event.now_ns, event.sent_bytes)
    heard = event.is_marked and flow.hear(event.now_ns)
    return heard, flow.state()


def test_it_agrees_with_the_paper_in_ten_thousand_histories(library: Library) -> None:
    cuts = 0
    for parameters, events in drawn_histories():
        assert library.fault(parameters) is None
        expected, found = ReactionPoint(parameters), library.flow(parameters)
        for event in events:
            wanted = after(expected, event)
            assert after(found, event) == wanted, (events, event, parameters)
            cuts += wanted[0]
    assert cuts > 10_000


@pytest.mark.root
def test_it_agrees_with_the_paper_as_a_bpf_program_in_the_same_histories() -> None:
    """The core as clang compiles it for BPF, in this machine's kernel: its loops are the kernel's there."""
    if reason := libbpf.why_not():
        pytest.skip(reason)
    histories = list(drawn_histories())
    found = iter(played(histories))
    for parameters, events in histories:
        expected = ReactionPoint(parameters)
        for event in events:
            assert next(found) == after(expected, event), (events, event, parameters)


def test_it_skips_what_a_long_pause_would_have_it_do(library: Library) -> None:
    """After 40 ms without a mark, and 730 expired timers, as the paper has it one by one; a week takes no longer."""
    expected, found = ReactionPoint(PAPER), library.flow(PAPER)
    for flow in (expected, found):
        flow.hear(7)
        flow.advance(40_000 * US, 10**9)
    assert found.state() == expected.state()
    found.advance(7 * 24 * 3600 * GBPS, 1 << 60)
    assert found.state()[:2] == (PAPER.line_rate_bps, PAPER.line_rate_bps)


def test_a_flow_starts_at_the_rate_of_the_line_and_its_first_cut_halves_it(library: Library) -> None:
    flow = library.flow(PAPER)
    flow.advance(10**12, 10**9)
    assert flow.state()[:2] == (40 * GBPS, 40 * GBPS)
    assert flow.hear(10**12)
    assert flow.state()[:2] == (20 * GBPS, 40 * GBPS)


def test_marks_within_the_time_of_a_notification_are_part_of_it(library: Library) -> None:
    flow = library.flow(PAPER)
    assert [flow.hear(at_us * US) for at_us in (100, 101, 149, 150, 151)] == [True, False, False, True, False]


def test_fast_recovery_halves_the_gap_each_stage(library: Library) -> None:
    flow = library.flow(PAPER)
    flow.hear(0)
    for stages in range(1, PAPER.fast_stages + 1):
        flow.advance(stages * PAPER.stage_ns, 0)
        assert flow.state()[0] == pytest.approx(40 * GBPS * (1 - 0.5 ** (stages + 1)))


def test_additive_increase_raises_the_target_by_a_step_each_stage(library: Library) -> None:
    """Two cuts in a row leave a target below the line, from which the timer alone climbs step by step."""
    flow = library.flow(PAPER)
    flow.hear(0)
    flow.hear(PAPER.cnp_ns)
    targets = []
    for stages in range(1, 12):
        flow.advance(PAPER.cnp_ns + stages * PAPER.stage_ns, 0)
        targets.append(flow.state()[1])
    assert targets[:5] == [20 * GBPS] * 5
    assert targets[5:] == [20 * GBPS + step * PAPER.additive_step_bps for step in range(1, 7)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"line_rate_bps": 0}, "line_rate_bps"),
        ({"line_rate_bps": 1 << 40}, "line_rate_bps"),
        ({"least_rate_bps": 0}, "least_rate_bps"),
        ({"least_rate_bps": 41 * GBPS}, "least_rate_bps"),
        ({"additive_step_bps": 0}, "additive_step_bps"),
        ({"additive_step_bps": 9_000}, "additive_step_bps"),
        ({"hyper_step_bps": 41 * GBPS}, "hyper_step_bps"),
        ({"stage_ns": 0}, "stage_ns"),
        ({"alpha_ns": 0}, "alpha_ns"),
        ({"gain": 0}, "gain"),
        ({"gain": GAIN_ONE + 1}, "gain"),
        ({"first_alpha": 0}, "first_alpha"),
        ({"first_alpha": ALPHA_ONE + 1}, "first_alpha"),
    ],
)
def test_parameters_that_cannot_be_are_refused_by_name(library: Library, change: dict[str, int], named: str) -> None:
    fault = library.fault(replace(PAPER, **change))
    assert fault is not None
    assert named in fault
