"""Numbers hang on what they must and on nothing else: with half a link or twice a buffer, those that it sets move by as
much as closed forms say, and the others stay."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from tests.guest_scripts import run_script
from tests.virtual.command import HERE

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
Metrics = dict[str, dict[str, float]]
VICTIM, SENDERS = "victim", ("sender beside the victim", "second sender", "third sender")
FLOWS = (VICTIM, *SENDERS)
QUEUEINGS = ("lossless", "lossless_lanes")
NEAR = 0.03


def seen(directory: Path, topology: str) -> Metrics:
    report = directory / "report.json"
    run_script(HERE / "sensitivity.py", str(report), topology, keep=[directory], memory_bytes=2 << 30)
    found: Metrics = json.loads(report.read_text())
    return found


@pytest.fixture(scope="module")
def head_of_line(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """``head_of_line`` as it is, with half the full host's link, and with twice the buffers."""
    return seen(tmp_path_factory.mktemp("sensitivity"), "head_of_line")


def ratios(found: Metrics, changed: str, queueing: str, flows: tuple[str, ...] = FLOWS) -> list[float]:
    """Return each flow's rate after a change over that before."""
    before, after = found["head_of_line"], found[f"head_of_line {changed}"]
    return [after[f"{queueing}_1.{flow}_bps"] / before[f"{queueing}_1.{flow}_bps"] for flow in flows]


def test_half_the_full_link_halves_all_that_share_a_lane_with_it(head_of_line: Metrics) -> None:
    """One lane: all four have a third of that link, the victim, which does not use it, too."""
    assert ratios(head_of_line, "half link", "lossless") == pytest.approx([0.5] * 4, rel=NEAR)


def test_half_the_full_link_leaves_a_victim_in_its_own_lane_alone(head_of_line: Metrics) -> None:
    found = dict(zip(FLOWS, ratios(head_of_line, "half link", "lossless_lanes"), strict=True))
    assert found.pop(VICTIM) == pytest.approx(1, rel=NEAR)
    assert list(found.values()) == pytest.approx([0.5] * 3, rel=NEAR)


def test_twice_the_buffers_are_filled_and_move_no_rate(head_of_line: Metrics) -> None:
    for queueing in QUEUEINGS:
        assert ratios(head_of_line, "twice the buffer", queueing) == pytest.approx([1] * 4, rel=NEAR)
        before, after = (
            head_of_line[play][f"{queueing}_1.most_buffered_bytes"]
            for play in ("head_of_line", "head_of_line twice the buffer")
        )
        assert 55_000 < before <= 64 * 1024
        assert 2 * 55_000 < after <= 128 * 1024


def test_no_change_loses_a_packet(head_of_line: Metrics) -> None:
    for play, queueing in product(head_of_line, QUEUEINGS):
        assert head_of_line[play][f"{queueing}_1.drops_packets"] == 0, play
        assert head_of_line[play]["unaccounted_packets"] == 0, play
