"""Where the page opens, and why there."""

from __future__ import annotations

from fabric.report.view.findings import Finding, FindingRow, Opening, opening_of
from fabric.report.view.spans import Span

TREES = Finding(
    "Roots of congestion trees",
    ("phase", "root", "of the time", "ports", "hosts"),
    (
        FindingRow(("a", "z0l00:1 storage", "90%", "3", "2"), "z0l00:1", "storage", 1.0, True),
        FindingRow(("b", "z0l02:1 shared", "40%", "12", "5"), "z0l02:1", "shared", 7.0, True),
    ),
)
CUTS = Finding(
    "Cuts, and who lost contact for how long",
    ("phase", "link", "flow of probes", "longest", "times"),
    (FindingRow(("a", "z0l00:5 - z0s00:1", "3", "120 ms", "4"), "z0l00:5", None, 4.0),),
)
WAITING = Finding(
    "Lanes that had data waiting, and got least",
    ("phase", "port", "lane", "waited", "got", "dropped"),
    (
        FindingRow(("storage alone", "z0l01:2", "storage", "95%", "1 Mbit/s (4%)", "0"), "z0l01:2", "storage", 2.0),
        FindingRow(("together", "z0l03:1", "shared", "60%", "2 Mbit/s (9%)", "7"), "z0l03:1", "shared", 12.0),
    ),
)


def span(kind: str, label: str, begin_s: float, end_s: float) -> Span:
    return Span(kind, label, begin_s, end_s)


SPANS = [
    span("phase", "storage alone", 0, 10),
    span("job", "storage", 0, 10),
    span("phase", "together", 11, 20),
    span("job", "storage", 11, 20),
    span("job", "hfreduce", 11, 20),
]


def test_the_largest_tree_goes_first() -> None:
    found = opening_of([TREES, CUTS, WAITING], SPANS)
    assert found == Opening(7.0, "the largest congestion tree: 12 ports wait for z0l02:1 shared")


def test_then_the_longest_loss_of_contact() -> None:
    found = opening_of([CUTS, WAITING], SPANS)
    assert found == Opening(4.0, "the longest loss of contact, 120 ms of flow 3: z0l00:5 - z0s00:1")


def test_then_data_that_waited_where_most_jobs_play() -> None:
    """A job that plays alone fills its own ports: that is not a finding."""
    found = opening_of([WAITING], SPANS)
    assert found == Opening(12.0, "data waited at z0l03:1 in lane shared, where 2 jobs play at once")


def test_else_the_begin() -> None:
    assert opening_of([], SPANS).at_s is None
