"""The types of a collective's elements: how they are stored, and up to what their sums are exact."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Elements = npt.NDArray[Any]
"""Elements of any of the types, of shape (elements,)."""


class Dtype(str, Enum):
    """A type of elements. ``fp8`` is E4M3 of the Open Compute Project's OFP8, as DeepSeek-V3 trains with
    (arXiv 2412.19437, III-C): the Fire-Flyer 2 paper does not say which."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type."""
        if self is Dtype.FP32:
            return np.dtype(np.float32)
        if self is Dtype.FP16:
            return np.dtype(np.float16)
        import ml_dtypes  # A tenth of a second that ranks of other types need not wait for.

        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if self is Dtype.BF16 else ml_dtypes.float8_e4m3fn)
        return found

    @property
    def nccl_name(self) -> str:
        """What nccl-tests calls it."""
        return _NCCL_NAMES[self]

    @property
    def size_bytes(self) -> int:
        """Bytes of an element."""
        return _SIZE_BYTES[self]

    @property
    def exact_up_to(self) -> int:
        """The largest whole number up to which each is an element: two to the power of its significant bits."""
        return 1 << _SIGNIFICANT_BITS[self]


_NCCL_NAMES = {Dtype.FP32: "float", Dtype.FP16: "half", Dtype.BF16: "bfloat16", Dtype.FP8: "f8e4m3"}
_SIZE_BYTES = {Dtype.FP32: 4, Dtype.FP16: 2, Dtype.BF16: 2, Dtype.FP8: 1}
_SIGNIFICANT_BITS = {Dtype.FP32: 24, Dtype.FP16: 11, Dtype.BF16: 8, Dtype.FP8: 4}


def raw_bytes(elements: Elements) -> memoryview:
    """Return the memory of contiguous elements. Not all types are ones that a memoryview knows."""
    return elements.view(np.uint8).data
