"""Reductions of c10d by their names, on arrays of any type that has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fabric.errors import TrafficError
from traffic.collectives.elements import Combine, Dtype, Elements, add

SUM, AVERAGE, SCALED = "SUM", "AVG", "PREMUL_SUM"
Finish = Callable[[Elements, int], Elements]
"""Makes what ranks get of what they have combined, by their number."""


@dataclass(frozen=True)
class Reduction:
    """``combine``: of two ranks' elements; ``finish``: of the elements of all, in the end."""

    combine: Combine
    finish: Finish | None = None


def reduction_named(name: str, element: np.dtype[Any]) -> Reduction:
    """Return the reduction of a name of ``torch.distributed.ReduceOp`` over a type, behind PREMUL_SUM with its factor.
    Raises TrafficError for one that the type has not."""
    name, _, factor = name.partition(" ")
    if name == SCALED:
        return Reduction(_sum_of(element), partial(_scaled, float(factor)))
    if name in (SUM, AVERAGE):
        combine = partial(_either, np.logical_or) if element == np.bool_ else _sum_of(element)
        return Reduction(combine, _divided if name == AVERAGE else None)
    if name not in _OTHERS:
        known = ", ".join((SUM, AVERAGE, *_OTHERS))
        raise TrafficError(f"ReduceOp.{name}: is not known to backend fabric; use one of {known}")
    if name in _BITWISE and not (np.issubdtype(element, np.integer) or element == np.bool_):
        raise TrafficError(f"ReduceOp.{name}: is of integers, and the tensor's elements are {element}; use SUM")
    return Reduction(partial(_either, _OTHERS[name]))


def _sum_of(element: np.dtype[Any]) -> Combine:
    """Return the sum: of types that our own collectives have, theirs, which is fast."""
    if element == np.float32 or element == np.float16 or element in _OWN:
        return add
    return partial(_either, np.add)


def _either(ufunc: Any, left: Elements, right: Elements, out: Elements) -> Elements:
    found: Elements = ufunc(left, right, out=out)
    return found


def _scaled(factor: float, found: Elements, ranks: int) -> Elements:
    """Return the sum of what all ranks have times a factor, the same at each: NCCL multiplies before it adds up."""
    part: Elements = found * found.dtype.type(factor)
    return part.astype(found.dtype)


def _divided(found: Elements, ranks: int) -> Elements:
    """Return the average, rounded towards zero of whole numbers, as NCCL's is."""
    if np.issubdtype(found.dtype, np.integer):
        whole: Elements = np.sign(found) * (np.abs(found) // ranks)
        return whole.astype(found.dtype)
    part: Elements = found / found.dtype.type(ranks)
    return part.astype(found.dtype)


_BITWISE: Mapping[str, Any] = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
_OTHERS: Mapping[str, Any] = {"PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, **_BITWISE}
_OWN = frozenset((Dtype.BF16.numpy, Dtype.FP8.numpy))
