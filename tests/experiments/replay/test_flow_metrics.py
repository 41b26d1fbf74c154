"""Which flows of a replay have metrics of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import pytest

from experiments.replay.run import _of_each_flow
from fabric.metrics import metrics_of
from tests.experiments.declared import undeclared


def lines_of(flows: int, lines: Sequence[int] | None) -> set[int]:
    numbers = range(3, 3 + flows)
    table = pd.DataFrame({"line": numbers, "took_s": 0.5, "theory_s": 0.25, "size_bytes": 1000})
    found = _of_each_flow(table, lines)
    assert {value for name, value in found.items() if name.endswith("_bps")} <= {16000.0}
    assert not found or undeclared("replay", metrics_of("replay", "", found)) == []
    return {int(name.split("_")[1]) for name in found}


@pytest.mark.parametrize(
    ("flows", "lines", "expected"),
    [(3, None, {3, 4, 5}), (33, None, set()), (33, [3, 20], {3, 20}), (3, [4], {4}), (3, [], set())],
)
def test_few_flows_have_them_all_and_of_many_those_of_chosen_lines(
    flows: int, lines: Sequence[int] | None, expected: set[int]
) -> None:
    assert lines_of(flows, lines) == expected
