"""Files that say how long operators took on a GPU: our CSV, a folder of Phantora's, a trace of PyTorch's profiler."""

from __future__ import annotations

import csv
import gzip
import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from fabric.errors import ConfigError
from traffic.torch_gpus.kernel_times import Kernel, KernelTimes

_KINETO_TYPES = {
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "c10::BFloat16": "bf16", "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8", "long int": "int64", "long": "int64", "int": "int32", "short": "int16",
    "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
}  # fmt: skip
_PHANTORA_TYPES = {
    "Float": "fp32", "Double": "fp64", "Half": "fp16", "BFloat16": "bf16", "Int64": "int64", "Int": "int32",
    "Int16": "int16", "Int8": "int8", "Uint8": "uint8", "Bool": "bool",
}  # fmt: skip
_PHANTORA_NAMES = {
    "MM": "mm", "BMM": "bmm", "AddMM": "addmm", "BAddBMM": "baddbmm", "Mul": "mul", "MulScalar": "mul", "Mul_": "mul_",
    "MulScalar_": "mul_", "ForeachMul_": "_foreach_mul_", "ForeachMulScalar_": "_foreach_mul_", "Add": "add",
    "Add_": "add_", "Div": "div", "DivScalar": "div", "Pow": "pow", "AddCMul_": "addcmul_", "AddCDiv_": "addcdiv_",
    "ForeachAddCMul_": "_foreach_addcmul_", "ForeachAddCDiv_": "_foreach_addcdiv_", "MaskedFill": "masked_fill",
    "MaskedFill_": "masked_fill_", "NativeDropout": "native_dropout",
    "NativeDropoutBackward": "native_dropout_backward", "Where": "where", "WhereScalar": "where", "Gelu": "gelu",
    "GeluBackward": "gelu_backward", "Sum": "sum", "Sqrt": "sqrt", "Softmax": "_softmax",
    "SoftmaxBackward": "_softmax_backward_data", "ZerosLike": "zeros_like", "ConvDType": "_to_copy",
}  # fmt: skip
"""Operators below autograd by Phantora's names; those that the program itself calls, such as ``SDPA``, are not here."""
_GPU_WORK = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_COLLECTIVE = re.compile(r"^(nccl|rccl)", re.IGNORECASE)
_ATEN = "aten::"


def kernel_times_in(path: Path) -> KernelTimes:
    """Return what a file or folder says. Raises ConfigError for one that says nothing, or is none of these."""
    try:
        if path.is_dir():
            times = KernelTimes.of_samples(_of_phantora(path / "compute.csv"))
        elif path.name.endswith((".json", ".json.gz")):
            times = KernelTimes.of_samples(_of_kineto(path))
        else:
            times = KernelTimes.read(path)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ConfigError(str(path), [f"cannot be read as times of operators: {error}"]) from error
    if not times.took_ns:
        raise ConfigError(str(path), ["says of no operator how long it took; a trace needs record_shapes=True"])
    return times


def _of_phantora(path: Path) -> Iterator[tuple[Kernel, float]]:
    csv.field_size_limit(1 << 24)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            ((name, given),) = json.loads(row["key"]).items()
            tensors = list(_phantora_tensors(given))
            if name == "Linear":
                yield _linear(tensors), int(row["nanos"]) / 1e3
            elif name in _PHANTORA_NAMES:
                yield Kernel.of(_PHANTORA_NAMES[name], tensors), int(row["nanos"]) / 1e3


def _phantora_tensors(given: Any) -> Iterator[tuple[Sequence[int], str]]:
    """Yield the tensors of an operator's arguments, as deep as they are."""
    if isinstance(given, Mapping):
        if "shape" in given:
            yield given["shape"], _PHANTORA_TYPES.get(given["dtype"], str(given["dtype"]))
            return
        given = list(given.values())
    if isinstance(given, list):
        for one in given:
            yield from _phantora_tensors(one)


def _linear(tensors: list[tuple[Sequence[int], str]]) -> Kernel:
    """Return the product that a linear layer is below autograd."""
    (shape, type_), (weight, _), *bias = tensors
    product = ((prod(shape[:-1]), shape[-1]), type_), ((weight[1], weight[0]), type_)
    return Kernel.of("addmm", (*bias, *product)) if bias else Kernel.of("mm", product)


@dataclass
class _Call:
    """An operator that the host called: from when to when, and how long the GPU worked on what it launched."""

    kernel: Kernel
    begins: float
    ends: float
    took_us: float = 0.0
    worked: bool = False


@dataclass
class _Thread:
    """Calls of a thread, in the order in which they begin: those within others behind these."""

    calls: list[_Call] = field(default_factory=list)

    def within(self) -> Callable[[float], Iterator[_Call]]:
        """Return what yields all calls that are under way at a time."""
        self.calls.sort(key=lambda call: (call.begins, -call.ends))
        begins = [call.begins for call in self.calls]
        above: list[int] = []
        stack: list[int] = []
        for number, call in enumerate(self.calls):
            while stack and self.calls[stack[-1]].ends <= call.begins:
                stack.pop()
            above.append(stack[-1] if stack else -1)
            stack.append(number)

        def at(time_us: float) -> Iterator[_Call]:
            number = bisect_right(begins, time_us) - 1
            while number >= 0:
                if self.calls[number].ends >= time_us:
                    yield self.calls[number]
                number = above[number]

        return at


def _of_kineto(path: Path) -> Iterator[tuple[Kernel, float]]:
    """Yield what the GPU worked for each call of an operator: for all that it launched itself or by others that it
    called, so that whoever asks for one of them finds it by its own name."""
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    threads: dict[tuple[Any, Any], _Thread] = defaultdict(_Thread)
    launches: dict[Any, tuple[tuple[Any, Any], float]] = {}
    for event in events:
        args, thread = event.get("args") or {}, (event.get("pid"), event.get("tid"))
        if event.get("cat") in ("cpu_op", "Operator") and event["name"].startswith(_ATEN):
            ends = event["ts"] + event.get("dur", 0)
            threads[thread].calls.append(_Call(_kineto_kernel(event["name"], args), event["ts"], ends))
        elif event.get("cat") not in _GPU_WORK and "correlation" in args:
            launches[args["correlation"]] = thread, event["ts"]
    at = {thread: of.within() for thread, of in threads.items()}
    for event in events:
        launch = launches.get((event.get("args") or {}).get("correlation"))
        if event.get("cat") not in _GPU_WORK or launch is None or _COLLECTIVE.match(event["name"]):
            continue
        thread, when = launch
        for call in at[thread](when) if thread in at else ():
            call.took_us += event.get("dur", 0)
            call.worked = True
    for of in threads.values():
        yield from ((call.kernel, call.took_us) for call in of.calls if call.worked and call.kernel.shapes)


def _kineto_kernel(name: str, args: Mapping[str, Any]) -> Kernel:
    shapes = args.get("Input Dims") or args.get("Input dims") or ()
    types = args.get("Input type") or ()
    tensors: list[tuple[Sequence[int], str]] = []
    for shape, type_ in zip(shapes, types, strict=False):
        several = shape if shape and isinstance(shape[0], list) else [shape]
        kinds = type_ if isinstance(type_, list) else [type_] * len(several)
        tensors += [(one, _KINETO_TYPES.get(kind, kind)) for one, kind in zip(several, kinds, strict=False)]
    return Kernel.of(name.removeprefix(_ATEN), tensors)
