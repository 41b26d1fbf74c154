"""What collectives and types of elements are called elsewhere, and here."""

from __future__ import annotations

import re

SEND, RECEIVE, RECEIVE_ANY, SEND_RECEIVE, WAIT, INIT = "send", "receive", "receive_any", "send_receive", "wait", "init"
ALLREDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, ALL_TO_ALL_V, BROADCAST, REDUCE, GATHER, SCATTER, BARRIER = (
    "allreduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "broadcast", "reduce", "gather",
    "scatter", "barrier",
)  # fmt: skip
"""As :mod:`traffic.collectives.listing` has them."""

_SPELLED = {
    "allreduce": ALLREDUCE, "alltoallv": ALL_TO_ALL_V, "all2allv": ALL_TO_ALL_V, "alltoall": ALL_TO_ALL,
    "all2all": ALL_TO_ALL, "allgather": ALL_GATHER, "reducescatter": REDUCE_SCATTER, "broadcast": BROADCAST,
    "reduce": REDUCE, "gather": GATHER, "scatter": SCATTER, "barrier": BARRIER, "sendrecv": SEND_RECEIVE,
    "isend": SEND, "send": SEND, "recvanysource": RECEIVE_ANY, "irecv": RECEIVE, "recv": RECEIVE, "receive": RECEIVE,
    "wait": WAIT, "init": INIT,
}  # fmt: skip
"""By how a name begins, in the order in which that is looked at: letters and digits alone."""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]")
_FRONT = re.compile(r"^(nccl|rccl|devkernel|kernel|c10d|generic)+")

_TYPES = {
    "float": ("fp32", 4), "float32": ("fp32", 4), "f32": ("fp32", 4), "half": ("fp16", 2), "float16": ("fp16", 2),
    "bfloat16": ("bf16", 2), "float8e4m3fn": ("fp8", 1), "float8e5m2": ("fp8", 1), "float8e4m3fnuz": ("fp8", 1),
    "double": ("fp32", 8), "float64": ("fp32", 8), "long": ("fp32", 8), "longint": ("fp32", 8), "int64": ("fp32", 8),
    "complexfloat": ("fp32", 8), "complexdouble": ("fp32", 16), "int": ("fp32", 4), "int32": ("fp32", 4),
    "uint32": ("fp32", 4), "uint64": ("fp32", 8), "short": ("fp16", 2), "shortint": ("fp16", 2), "int16": ("fp16", 2),
    "uint16": ("fp16", 2), "byte": ("fp8", 1), "char": ("fp8", 1), "bool": ("fp8", 1), "unsignedchar": ("fp8", 1),
    "signedchar": ("fp8", 1), "uint8": ("fp8", 1), "int8": ("fp8", 1),
}  # fmt: skip
"""Types of other projects: the one here that has as many bytes per element, or half or a quarter, and the bytes."""


def collective_named(spelled: str) -> str | None:
    """Return what an operation is called here, however it is spelled: ``_allgather_base``,
    ``ncclDevKernel_AllGather_RING_LL(...)``, ``CommType.all_gather``; None if it is none."""
    name = _FRONT.sub("", _NOT_IN_NAMES.sub("", spelled.lower().removeprefix("commtype.")))
    return next((ours for theirs, ours in _SPELLED.items() if name.startswith(theirs)), None)


def type_named(spelled: str) -> tuple[str, int] | None:
    """Return a type here and the bytes of an element of the one that is spelled, as ``Tensor(c10::Half)``; or None."""
    name = spelled.strip().lower().removeprefix("tensor(").removesuffix(")").removeprefix("c10::")
    return _TYPES.get(_NOT_IN_NAMES.sub("", name))


def type_for(size_bytes: int) -> str:
    """Return the widest type here of which a size is a whole number of elements, where a file says none."""
    return "fp32" if size_bytes % 4 == 0 else "fp16" if size_bytes % 2 == 0 else "fp8"
