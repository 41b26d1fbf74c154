"""Reads of values that nobody has computed: an error that names the user's line, or an answer that was asked for."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

from traffic.torch_gpus.variables import NAN, VALUES

_OURS = str(Path(__file__).parent)
_LIBRARIES = ("/site-packages/", "/dist-packages/")
_PYTHONS_OWN = str(Path(traceback.__file__).parent)


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
    """Return file, line and text of the innermost frame that is neither PyTorch's nor ours; if that is a library's,
    behind that of the program that called it."""
    torch_home = str(Path(sys.modules["torch"].__file__ or "").parent) + "/" if "torch" in sys.modules else _OURS
    frames = [
        frame for frame in traceback.extract_stack(sys._getframe(1))
        if not frame.filename.startswith((_OURS, torch_home, "<"))
        and (_is_librarys(frame) or not frame.filename.startswith(_PYTHONS_OWN))
    ]  # fmt: skip
    own = [frame for frame in frames if not _is_librarys(frame)]
    if not frames:
        return "the program"
    if not own or own[-1] is frames[-1]:
        return _words(frames[-1])
    return f"{_words(own[-1])}: in {_words(frames[-1])}"


def _is_librarys(frame: traceback.FrameSummary) -> bool:
    return any(part in frame.filename for part in _LIBRARIES)


def _words(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno}: {frame.line}"
