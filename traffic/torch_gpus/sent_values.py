"""Values of small tensors in operations of a process group: what travels in place of tensors without any."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from traffic.torch_backend.operation import Operation
from traffic.torch_gpus.known_values import give, is_small, value_of
from traffic.torch_gpus.streams import Here
from traffic.torch_gpus.values import no_value

_OF_ANY_SPLIT = ("ALLTOALL", "ALLTOALL_BASE")


def values_sent(what: str, given: Sequence[Tensor], result: Sequence[Tensor]) -> dict[int, Tensor] | None:
    """Return the tensors of the CPU that travel in place of an operation's, by their ids; None if those of the GPU are
    too large, so that a pattern travels. ``given``: what it reads; ``result``: what it writes.

    All ranks decide alike, by types and sizes. Floating-point values that nobody has computed travel as nan. Raises
    NoValueError for others of these, unless reads give 0.
    """
    if not all(isinstance(one, FakeTensor) for one in (*given, *result)) or not _travel(what, given, result):
        return None
    written = set(map(id, result))
    reals = {id(one): _real_given(what, one, keeps=id(one) in written) for one in given}
    return {**{id(one): _real_taken(one) for one in result if id(one) not in reals}, **reals}


def _travel(what: str, given: Sequence[Tensor], result: Sequence[Tensor]) -> bool:
    tensors = (*given, *result)
    if not tensors:
        return False
    dtype = tensors[0].dtype
    if what in _OF_ANY_SPLIT:
        return not (dtype.is_floating_point or dtype.is_complex)
    return is_small(dtype, min(max(one.numel() for one in some) for some in (given, result) if some))


def _real_given(what: str, tensor: Tensor, keeps: bool) -> Tensor:
    """Return the values of a tensor that is read; ``keeps``: it is written, too."""
    value = value_of(tensor)
    if value is None:
        value = give(tensor, torch.empty(tensor.shape, dtype=tensor.dtype))
        value.origin.is_unknown = True
    if not value.is_known():
        _fill_unknown(what, value.real)
    return value.real if keeps else value.real.clone(memory_format=torch.contiguous_format)


def _fill_unknown(what: str, real: Tensor) -> None:
    if real.dtype.is_floating_point or real.dtype.is_complex:
        real.fill_(float("nan"))
    elif Here.answers_reads:
        real.zero_()
    else:
        raise no_value(f"{what} of {real.dtype}, whose values other ranks may read")


def _real_taken(tensor: Tensor) -> Tensor:
    value = value_of(tensor)
    return (value or give(tensor, torch.zeros(tensor.shape, dtype=tensor.dtype))).real


def values_under_way(reals: dict[int, Tensor] | None, result: Sequence[Tensor], operation: Operation) -> None:
    """Let values that an operation writes be known once it has ended."""
    for tensor in result if reals is not None else ():
        value = value_of(tensor)
        assert value is not None, "it was given one"
        value.origin.pending = operation
