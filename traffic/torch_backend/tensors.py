"""What is in the memory of tensors, as arrays; of tensors without data, how much would be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from traffic.collectives.elements import Elements
from traffic.torch_backend.calls import Operand

_TYPES: dict[torch.dtype, Any] = {
    torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn, torch.float8_e5m2: ml_dtypes.float8_e5m2, torch.int64: np.int64,
    torch.int32: np.int32, torch.int16: np.int16, torch.int8: np.int8, torch.uint8: np.uint8, torch.bool: np.bool_,
    torch.complex64: np.complex64, torch.complex128: np.complex128,
}  # fmt: skip


def operand_of(tensors: Sequence[torch.Tensor], lengths: Iterable[int] | None = None) -> Operand:
    """Return tensors as what a rank gives or gets: their memory, a piece each. ``lengths``: cuts a single tensor into
    pieces of so many elements.

    Raises ValueError for tensors that are not contiguous, of several types, or with and without data; TypeError for
    types and devices that are not here.
    """
    types = {tensor.dtype for tensor in tensors}
    if len(types) != 1 or (dtype := types.pop()) not in _TYPES:
        known = ", ".join(str(one).removeprefix("torch.") for one in _TYPES)
        raise TypeError(f"backend fabric: tensors of {sorted(map(str, types)) or dtype}: use one type of {known}")
    if any(tensor.layout is not torch.strided or not tensor.is_contiguous() for tensor in tensors):
        raise ValueError("Tensors must be contiguous and dense: backend fabric sends their memory; call .contiguous()")
    has_data = {_has_data(tensor) for tensor in tensors}
    if len(has_data) > 1:
        raise ValueError("backend fabric: some tensors have data and some have none (fake, or on meta); use either")
    element = np.dtype(_TYPES[dtype])
    arrays = [_array_of(tensor, element) for tensor in tensors] if has_data.pop() else None
    if lengths is None:
        sizes = tuple(tensor.numel() for tensor in tensors)
        return Operand(element, sizes, None if arrays is None else tuple(arrays))
    return _cut(element, tuple(lengths), None if arrays is None else arrays[0])


def _cut(element: np.dtype[Any], lengths: tuple[int, ...], array: Elements | None) -> Operand:
    if array is None:
        return Operand(element, lengths, None)
    ends = np.cumsum(lengths)
    return Operand(
        element, lengths, tuple(array[end - length : end] for length, end in zip(lengths, ends, strict=True))
    )


def _has_data(tensor: torch.Tensor) -> bool:
    if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
        return False
    if tensor.device.type != "cpu":
        where = f"a tensor on {tensor.device}"
        raise TypeError(f"backend fabric: {where}, and hosts have no GPUs; use the CPU's, fake tensors, or device meta")
    return True


def _array_of(tensor: torch.Tensor, element: np.dtype[Any]) -> Elements:
    """Return the memory of a tensor, of shape (elements,): not a copy."""
    with unset_fake_temporarily():
        if not tensor.numel():
            return np.empty(0, element)
        found: Elements = tensor.detach().reshape(-1).view(torch.uint8).numpy().view(element)
        return found
