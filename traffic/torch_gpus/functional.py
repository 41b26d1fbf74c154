"""Functional collectives, which DTensor calls, on tensors of GPUs that are not there: by the group's own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _resolve_process_group

NAMESPACE = "_c10d_functional"
_OPERATORS = {
    "sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX, "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR,
}  # fmt: skip
_works: dict[int, Any] = {}
"""What a tensor waits for, by its storage."""


def carry_out(name: str, args: Sequence[Any]) -> Tensor:
    """Carry one out; return its result, for which ``wait_tensor`` waits. Raises NotImplementedError for others."""
    if name not in _CALLS:
        known = ", ".join(_CALLS)
        raise NotImplementedError(f"{NAMESPACE}.{name} on cuda: GPUs that are not there have only {known}")
    return _CALLS[name](*args)


def _group(named: Any) -> Any:
    return _resolve_process_group(named) if isinstance(named, str) else named


def _under_way(result: Tensor, work: Any) -> Tensor:
    key = result.untyped_storage()._cdata
    _works[key] = work
    weakref.finalize(result.untyped_storage(), _works.pop, key, None)
    return result


def _wait_tensor(tensor: Tensor) -> Tensor:
    work = _works.pop(tensor.untyped_storage()._cdata, None)
    if work is not None:
        work.wait()
    return tensor


def _wrapped(tensor: Tensor) -> Tensor:
    """Return a tensor that is waited for when it is used."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return AsyncCollectiveTensor(tensor)


def _all_reduce(tensor: Tensor, operator: str, group: Any) -> Tensor:
    return _all_reduce_in_place(tensor.clone(memory_format=torch.contiguous_format), operator, group)


def _all_reduce_in_place(tensor: Tensor, operator: str, group: Any) -> Tensor:
    options = dist.AllreduceOptions()
    options.reduceOp = _OPERATORS[operator.lower()]
    return _under_way(tensor, _group(group).allreduce([tensor], options))


def _all_gather(tensor: Tensor, ranks: int, group: Any) -> Tensor:
    result = tensor.new_empty([ranks * tensor.shape[0], *tensor.shape[1:]])
    return _under_way(result, _group(group).all_gather_single(result, tensor.contiguous()))


def _reduce_scatter(tensor: Tensor, operator: str, ranks: int, group: Any) -> Tensor:
    options = dist.ReduceScatterOptions()
    options.reduceOp = _OPERATORS[operator.lower()]
    result = tensor.new_empty([tensor.shape[0] // ranks, *tensor.shape[1:]])
    return _under_way(result, _group(group).reduce_scatter_single(result, tensor.contiguous(), options))


def _all_to_all(tensor: Tensor, received: Sequence[int], sent: Sequence[int], group: Any) -> Tensor:
    result = tensor.new_empty([sum(received), *tensor.shape[1:]])
    work = _group(group).all_to_all_single(result, tensor.contiguous(), list(received), list(sent))
    return _under_way(result, work)


def _broadcast(tensor: Tensor, source: int, group: Any) -> Tensor:
    result = tensor.clone(memory_format=torch.contiguous_format)
    options = dist.BroadcastOptions()
    options.rootRank = source
    return _under_way(result, _group(group).broadcast([result], options))


_CALLS: dict[str, Callable[..., Tensor]] = {
    "all_reduce": _all_reduce,
    "all_reduce_": _all_reduce_in_place,
    "all_gather_into_tensor": _all_gather,
    "reduce_scatter_tensor": _reduce_scatter,
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
    "wait_tensor": _wait_tensor,
    "_wrap_tensor_autograd": _wrapped,
}
