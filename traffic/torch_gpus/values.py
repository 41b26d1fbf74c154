"""Reads of values that nobody has computed: an error that names the user's line, or an answer that was asked for."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from traffic.torch_gpus.variables import NAN, VALUES

_OURS = str(Path(__file__).parent)
_LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/")


class NoValueError(RuntimeError):
    """A read of a value of a tensor on a GPU that is not there."""


def no_value(what: str) -> NoValueError:
    """Return the error for a read, such as ``.item()``; it names the line of the user's program."""
    return NoValueError(
        f"{_place()}: {what}: tensors on cuda have shapes and no values here, for no GPU computes them. Keep what "
        f"control flow needs on the CPU, whose tensors are real; or, if it is only printed, let reads give nan, 0 and "
        f"False: {VALUES}={NAN} (fabric exec --gpu-values {NAN})"
    )


def stand_in(dtype: Any) -> float | int | bool:
    """Return what a read gives if the user asked for an answer: nan, 0 or False, by type."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return False if str(dtype) == "torch.bool" else 0


def _place() -> str:
    """Return file, line and text of the innermost frame that is neither PyTorch's nor ours."""
    for frame in reversed(traceback.extract_stack(sys._getframe(1))):
        name = frame.filename
        if not name.startswith((_OURS, "<")) and not any(part in name for part in _LIBRARIES):
            return f"{name}:{frame.lineno}: {frame.line}"
    return "the program"
