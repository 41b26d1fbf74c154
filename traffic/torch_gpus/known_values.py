"""Values of small tensors on GPUs that are not there: counts, flags, shapes, what programs branch on.

A tensor is a shape without values, but a small one that comes of the CPU, or of an operator whose tensors all have
values, has some: beside it lies a tensor of the CPU, with which each operator is carried out, too. Collectives send
such values. Those of others that are as small travel as nan, so that all ranks send the same. The experts that tokens
take (``topk``) are drawn if the user asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map

from traffic.torch_backend.operation import Operation
from traffic.torch_gpus.operators import aten, is_view, mutated_by
from traffic.torch_gpus.streams import Here

MOST_FLOATS, MOST_OTHERS = 256, 1 << 17
"""Elements of what is small: parameters are not, tokens of a batch are."""
_OVERWRITING = frozenset((aten.zero_, aten.fill_, aten.copy_))
_EMPTY = frozenset((aten.empty, aten.empty_strided, aten.empty_like, aten.new_empty, aten.new_empty_strided))
_FINDS_NO_INFINITIES = aten._amp_foreach_non_finite_check_and_unscale_
_ATTRIBUTE = "fabric_value"
_CPU = torch.device("cpu")


class _Origin:
    """What tensors share that share memory: whether their values are known, and the operation under way that writes
    them."""

    def __init__(self) -> None:
        self.is_unknown = False
        self.pending: Operation | None = None


@dataclass
class Value:
    """The values of a tensor: ``real``, of the CPU."""

    real: torch.Tensor
    origin: _Origin

    def is_known(self) -> bool:
        """Return whether they are there; waits for an operation that writes them."""
        origin = self.origin
        if (operation := origin.pending) is not None:
            operation.wait(operation.left_s)
            origin.pending = None
            origin.is_unknown = operation.error is not None or not operation.has_ended or _has_nan(self.real)
        return not origin.is_unknown


def _has_nan(real: torch.Tensor) -> bool:
    return _is_float(real.dtype) and bool(real.isnan().any())


def _is_float(dtype: torch.dtype) -> bool:
    return bool(dtype.is_floating_point or dtype.is_complex)


def is_small(dtype: torch.dtype, elements: int) -> bool:
    """Return whether tensors of so many elements have values where they can."""
    return elements <= (MOST_FLOATS if _is_float(dtype) else MOST_OTHERS)


def value_of(tensor: Any) -> Value | None:
    """Return the values of a tensor on a GPU; None: it has none."""
    found: Value | None = getattr(tensor, _ATTRIBUTE, None)
    return found


def give(tensor: Any, real: torch.Tensor, origin: _Origin | None = None) -> Value:
    """Let a tensor on a GPU have values."""
    value = Value(real, origin or _Origin())
    setattr(tensor, _ATTRIBUTE, value)
    return value


def reals_of(args: Any) -> Any:
    """Return arguments of an operator on the CPU's tensors in place of the GPU's; None if one has no values."""
    for leaf in tree_leaves(args):
        if isinstance(leaf, FakeTensor) and ((value := value_of(leaf)) is None or not value.is_known()):
            return None
    return tree_map(_of_cpu, args)


def _of_cpu(leaf: Any) -> Any:
    if isinstance(leaf, FakeTensor):
        return getattr(leaf, _ATTRIBUTE).real
    return _CPU if isinstance(leaf, torch.device) else leaf


def follow(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:
    """Carry an operator out on values, where it has them, after its shapes; return its result, in which tensors of the
    CPU are real ones."""
    results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, FakeTensor)]
    if not results and not func._schema.is_mutable:
        return out
    found = _carried_out(func, args, kwargs) if all(is_small(one.dtype, one.numel()) for one in results) else None
    if found is None:
        if func._overloadpacket is aten.topk:
            _choose(out, *args)
        if func._schema.is_mutable and func._overloadpacket is not _FINDS_NO_INFINITIES:
            _forget(mutated_by(func, args, kwargs))
        return out
    origins = {one.real.untyped_storage()._cdata: one.origin for one in _values_in((args, kwargs))}
    leaves = iter(tree_leaves(found))

    def taken_over(leaf: Any) -> Any:
        real = next(leaves)
        if not isinstance(leaf, FakeTensor):
            return leaf
        if leaf.fake_device.type == "cpu":
            return real.clone() if real.untyped_storage()._cdata in origins else real
        if value_of(leaf) is None:
            give(leaf, real, origins.get(real.untyped_storage()._cdata))
        return leaf

    return tree_map(taken_over, out)


def _choose(out: Any, scores: Any, top: int, dim: int = -1, *_: Any) -> None:
    """Let indices of the highest scores of each token have values that are drawn, if they are."""
    if Here.router is None or dim not in (-1, scores.dim() - 1) or not is_small(out[1].dtype, out[1].numel()):
        return
    give(out[1], torch.from_numpy(Here.router.chosen(scores.shape, top)))


def _carried_out(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what an operator gives of values; None if they are not there, or it cannot."""
    packet = func._overloadpacket
    if torch.Tag.nondeterministic_seeded in func.tags:
        return None
    overwritten = value_of(args[0]) if packet in _OVERWRITING else None
    if is_view(func):
        reals = _reals_shared((args, kwargs))
    elif overwritten is not None:
        others = reals_of((args[1:], kwargs))
        reals = None if others is None else ((overwritten.real, *others[0]), others[1])
    else:
        reals = reals_of((args, kwargs))
    if reals is None:
        return None
    try:
        found = (_histogram if packet is aten.histc else func)(*reals[0], **reals[1])
    except (RuntimeError, NotImplementedError):  # The CPU has not all that CUDA has.
        return None
    if packet in _EMPTY:
        found.zero_()
    if overwritten is not None and _is_whole(overwritten.real):
        overwritten.origin.is_unknown, overwritten.origin.pending = False, None
    return found


def _histogram(real: torch.Tensor, *limits: Any, **named: Any) -> torch.Tensor:
    """Return a histogram, also of whole numbers, which the CPU has not."""
    counted = real if _is_float(real.dtype) else real.double()
    return counted.histc(*limits, **named).to(real.dtype)


def _reals_shared(args: Any) -> Any:
    """Return arguments of a view on the CPU's tensors, whose values may come later; None if one has none."""
    if any(isinstance(leaf, FakeTensor) and value_of(leaf) is None for leaf in tree_leaves(args)):
        return None
    return tree_map(_of_cpu, args)


def _is_whole(real: torch.Tensor) -> bool:
    return bool(real.numel() * real.element_size() == real.untyped_storage().nbytes())


def _values_in(args: Any) -> Iterable[Value]:
    return [value for leaf in tree_leaves(args) if (value := value_of(leaf)) is not None]


def _forget(tensors: Iterable[Any]) -> None:
    for tensor in tensors:
        if (value := value_of(tensor)) is not None:
            value.origin.is_unknown, value.origin.pending = True, None
