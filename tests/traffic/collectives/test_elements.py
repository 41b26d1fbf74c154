"""Additions and comparisons of elements, against NumPy's of their types."""

from __future__ import annotations

import numpy as np
import pytest

from traffic.collectives.dataset import ShiftedBuffers, adder_of
from traffic.collectives.elements import Dtype, Elements, add, are_equal


def any_values(dtype: Dtype, count: int, seed: int) -> Elements:
    """Return random bits as values: among them infinities, NaN and subnormal ones."""
    raw = np.random.default_rng(seed).integers(0, 256, count * dtype.size_bytes, dtype=np.uint8)
    return raw.view(dtype.numpy)


def same(found: Elements, right: Elements) -> bool:
    """Whether values are equal, or both no numbers."""
    return bool(np.all((found == right) | (np.isnan(found) & np.isnan(right))))


@pytest.mark.parametrize("dtype", Dtype)
def test_sums_are_those_of_the_type(dtype: Dtype) -> None:
    left, right = (any_values(dtype, 200_000, seed) for seed in (1, 2))
    with np.errstate(all="ignore"):
        wanted = left + right
        assert same(add(left, right, np.empty_like(left)), wanted)
        into = left.copy()
        assert add(into, right, into) is into and same(into, wanted)


def test_all_sums_of_fp8_are_those_of_the_type() -> None:
    values = np.arange(256, dtype=np.uint8).view(Dtype.FP8.numpy)
    left, right = np.repeat(values, 256), np.tile(values, 256)
    with np.errstate(all="ignore"):
        assert same(add(left, right, np.empty_like(left)), left + right)


@pytest.mark.parametrize("dtype", Dtype)
def test_buffers_of_any_type_add_up(dtype: Dtype) -> None:
    series = np.random.default_rng(3).integers(0, 3, 10_000).astype(dtype.numpy)
    out = np.empty(9_000, dtype.numpy)
    adder_of(ShiftedBuffers(series, 10_000, first=2, count=4))(slice(5, 9_005), out)
    wanted = sum(series[7 + place : 9_007 + place].astype(int) for place in range(4))
    assert np.array_equal(out.astype(int), wanted)


@pytest.mark.parametrize("dtype", Dtype)
def test_values_are_compared_not_bytes(dtype: Dtype) -> None:
    zero, minus_zero, one, nan = (np.full(5, value, dtype.numpy) for value in (0.0, -0.0, 1.0, np.nan))
    assert are_equal(one, one.copy()) and are_equal(minus_zero, zero)
    assert not are_equal(nan, one) and not are_equal(one, zero)
    wrong = one.copy()
    wrong[4] = 2
    assert not are_equal(wrong, one)
