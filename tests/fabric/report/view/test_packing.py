"""Packed arrays hold what was packed, in few bytes."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from fabric.report.view.packing import growth, packed


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 255], "u1"), ([-1, 127], "i1"), ([0, 256], "u2"), ([-129, 0], "i2"), ([0, 70_000], "u4"),
        ([-70_000, 0], "i4"), ([0, 2**40], "f8"), ([-(2**31), 2**31], "f8"), ([], "u1"),
    ],
)  # fmt: skip
def test_whole_numbers_take_the_least_type_that_holds_them(values: list[int], kind: str) -> None:
    found = packed(np.array(values, np.int64))
    assert found.kind == kind
    assert np.frombuffer(zlib.decompress(found.zipped, 31), f"<{kind}").tolist() == values


def test_times_stay_as_they_are() -> None:
    found = packed(np.array([1.5, 2.25]))
    assert (found.kind, found.shape) == ("f8", (2,))


def test_growth_adds_up_to_the_counter_also_where_that_began_anew() -> None:
    counter = np.array([[10, 5], [30, 5], [3, 9]], np.int64)
    first, grown = growth(counter)
    assert (first + np.cumsum(grown, axis=0)).tolist() == counter[1:].tolist()
