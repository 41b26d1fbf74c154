"""FLOP and bytes of an operator of PyTorch's: by ``torch.utils.flop_counter``, and by the sizes of its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from traffic.torch_gpus.kernel_times import Kernel
from traffic.torch_gpus.roofline import Work

aten = torch.ops.aten
_NO_KERNEL = frozenset(
    (
        aten.empty, aten.empty_strided, aten.empty_like, aten.new_empty, aten.new_empty_strided, aten._unsafe_view,
        aten._reshape_alias, aten.lift_fresh, aten.set_, aten.resize_, aten.record_stream, aten.is_same_size,
    )
)  # fmt: skip
_ONLY_WRITES = frozenset(
    (
        aten.copy_, aten.fill_, aten.zero_, aten.normal_, aten.uniform_, aten.random_, aten.bernoulli_,
        aten._foreach_zero_, aten._foreach_copy_,
    )
)  # fmt: skip
"""In-place operators that do not read what they write."""
_PICKS = frozenset((aten.embedding, aten.index_select, aten.gather, aten.index, aten.nll_loss_forward))
"""Operators that read of their first tensor no more than they give."""
_TYPES = {
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}  # fmt: skip


def work_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Work | None:
    """Return what an operator does; None if it starts no kernel, as a view."""
    packet = func._overloadpacket
    if packet in _NO_KERNEL or is_view(func):
        return None
    host_bytes = _host_bytes(packet, args, out)
    if host_bytes:
        return Work(host_bytes=host_bytes)
    given, fresh = _tensors((args, kwargs)), _fresh(out, args, kwargs)
    count = flop_registry.get(packet)
    flop = None if count is None else count(*args, **kwargs, out_val=out)
    return Work(flop, _type_of(given), _memory_bytes(func, packet, args, given, fresh))


def kernel_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Kernel:
    """Return an operator as tables of measured times name it."""
    tensors = [(tuple(one.shape), _type_named(one.dtype)) for one in _tensors((args, kwargs))]
    return Kernel.of(func._overloadpacket.__name__, tensors)


def _type_named(dtype: Any) -> str:
    return _TYPES.get(dtype) or str(dtype).removeprefix("torch.")


def is_view(func: Any) -> bool:
    """Return whether an operator gives no more than another shape of memory that is there."""
    returns = func._schema.returns
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _host_bytes(packet: Any, args: Sequence[Any], out: Any) -> int:
    """Return how many bytes a copy moves to or from the host's memory."""
    if packet not in (aten._to_copy, aten.copy_):
        return 0
    target, source = (out, args[0]) if packet is aten._to_copy else (args[0], args[1])
    return extent_bytes(source) if (target.device.type == "cpu") != (source.device.type == "cpu") else 0


def _memory_bytes(func: Any, packet: Any, args: Sequence[Any], given: list[Any], fresh: list[Any]) -> int:
    written = sum(map(extent_bytes, fresh)) + sum(extent_bytes(one) for one in mutated_by(func, args))
    if packet in _PICKS:
        return written + sum(map(extent_bytes, given[1:])) + sum(map(extent_bytes, fresh))
    unread = sum(extent_bytes(one) for one in mutated_by(func, args)) if packet in _ONLY_WRITES else 0
    return written + sum(map(extent_bytes, given)) - unread


def mutated_by(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """Yield the tensors that an operator writes into."""
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(value)
    for argument in func._schema.arguments[len(args) :]:
        if kwargs and argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(kwargs.get(argument.name))


def _tensors(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _fresh(out: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    given = set(map(id, _tensors((args, kwargs))))
    return [one for one in _tensors(out) if id(one) not in given]


def extent_bytes(tensor: Any) -> int:
    """Return how many bytes of memory a tensor's elements are in: of an expanded one, those that there are."""
    elements = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride:
            elements *= length
        elif length == 0:
            return 0
    return elements * int(tensor.element_size())


def _type_of(given: Sequence[Any]) -> str:
    found = next((_TYPES[one.dtype] for one in given if one.dtype in _TYPES), "fp32")
    return "tf32" if found == "fp32" and torch.backends.cuda.matmul.allow_tf32 else found
