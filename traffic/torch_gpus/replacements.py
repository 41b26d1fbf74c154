"""What else of PyTorch must be another where GPUs are not there, each for the reason that stands beside it."""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor

from traffic.torch_gpus import cuda_module, known_values
from traffic.torch_gpus.machine import Machine
from traffic.torch_gpus.mode import GpuMode, Storages
from traffic.torch_gpus.streams import Here
from traffic.torch_gpus.values import no_value, stand_in

aten = torch.ops.aten
_FLASH_TYPES = (torch.float16, torch.bfloat16)
_NCCL_VERSION = (2, 27, 5)
"""Whose behaviour this project's ``nccl`` has."""
_NCCL_TIMEOUT = timedelta(minutes=10)


def install(machine: Machine, answers_reads: bool) -> None:
    """Let this process have GPUs that are not there. Call it once, as ``import torch`` ends."""
    Here.machine, Here.answers_reads = machine, answers_reads
    machine.keep_current_device(torch._C._accelerator_getDeviceIndex, torch._C._accelerator_setDeviceIndex)
    mode = GpuMode(machine, answers_reads)
    for name, replacement in cuda_module.REPLACEMENTS.items():
        own = _of_its_own(replacement)
        for module in (torch.cuda, torch.cuda.random, torch.cuda.memory, torch.cuda.streams):
            if module is torch.cuda or hasattr(module, name):
                setattr(module, name, own)
    torch.version.cuda = torch.version.cuda or "12.8"  # Scripts ask whether it is None.
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") makes it on the CPU, then moves it.
    fake_tensor.init_gpu_context = lambda device: None  # It would make a real tensor on cuda.
    _replace_tensors(mode.storages)
    _replace_accelerator()
    torch.nn.init._no_grad_trunc_normal_ = _truncated(torch.nn.init._no_grad_trunc_normal_)
    torch.nn.functional.scaled_dot_product_attention = _attention(torch.nn.functional.scaled_dot_product_attention)
    if dist.is_available():
        _replace_distributed(mode)
    mode.__enter__()


def _of_its_own(replacement: Any) -> Any:
    """Return a function that no other name has: Dynamo wants each function of torch.cuda to be another."""
    if not isinstance(replacement, FunctionType):
        return replacement
    parts = (replacement.__code__, replacement.__globals__, replacement.__name__, replacement.__defaults__)
    own = FunctionType(*parts, replacement.__closure__)
    own.__kwdefaults__, own.__doc__ = replacement.__kwdefaults__, replacement.__doc__
    return own


def _replace_tensors(storages: Storages) -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)  # A parameter stays the same object as it moves.
    torch.utils.swap_tensors = _swap
    torch.Tensor.pin_memory = lambda self, device=None: self
    torch.Tensor.record_stream = lambda self, stream: None  # Memory is free as soon as nobody refers to it.
    FakeTensor.__format__ = lambda self, how: self.item().__format__(how)  # So that it fails as item() does.
    FakeTensor.numpy = lambda self, *, force=False: _read_whole("numpy()", self).numpy()
    FakeTensor.__reduce_ex__ = lambda self, how: _read_whole("torch.save() or pickle", self).__reduce_ex__(how)
    resize = torch.UntypedStorage.resize_

    def resized(storage: Any, size: int) -> Any:
        result = resize(storage, size)
        storages.resize(storage)
        return result

    torch.UntypedStorage.resize_ = resized


def _read_whole(what: str, tensor: Any) -> torch.Tensor:
    """Return all values of a tensor, as a real one of the CPU. Raises NoValueError where they are not known, unless
    reads give nan, 0 and False."""
    value = known_values.value_of(tensor)
    if value is not None and value.is_known():
        return value.real
    if not Here.answers_reads:
        raise no_value(what)
    with torch._C._DisableTorchDispatch():
        return torch.full(tensor.size(), stand_in(tensor.dtype), dtype=tensor.dtype)


def _swap(first: Any, second: Any) -> None:
    """Swap two tensors, as ``torch.utils.swap_tensors`` does, which refuses if somebody refers to one weakly: a
    FakeTensorMode does, to each that it makes, but asks for none again."""
    for slot in copyreg._slotnames(first.__class__):  # type: ignore[attr-defined] # A DTensor has its parts there.
        ours, theirs = getattr(first, slot, None), getattr(second, slot, None)
        setattr(first, slot, theirs)
        setattr(second, slot, ours)
    first.__class__, second.__class__ = second.__class__, first.__class__
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)


def _replace_accelerator() -> None:
    for name in ("synchronize", "current_stream", "set_stream", "device_count", "is_available"):
        setattr(torch.accelerator, name, cuda_module.REPLACEMENTS[name])
    torch.accelerator.current_device_index = cuda_module.current_device
    torch.accelerator.set_device_index = cuda_module.set_device
    torch.cuda.nvtx._nvtx = _Marks()
    torch.cuda.default_generators = tuple(map(cuda_module.RandomGenerator, range(cuda_module.device_count())))
    torch.cuda.nccl.version = lambda: _NCCL_VERSION


def _truncated(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return an initialization that asks no GPU whether what it has drawn is within limits."""

    def truncated(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any = None) -> Any:
        if tensor.device.type != "cuda":
            return real(tensor, mean, std, a, b, generator)
        with torch.no_grad():
            return tensor.normal_(mean, std).clamp_(a, b)

    return truncated


class _Marks:
    """What ``torch.cuda.nvtx`` calls: marks for NVIDIA's profilers, whom nobody asks here."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 0


@dataclass(frozen=True)
class _Asked:
    """What attention is asked for, by the names and in the order of PyTorch's."""

    attn_mask: Any = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def _attention(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return attention as CUDA carries it out: by one kernel, where the CPU's would be many."""

    def attention(query: Any, key: Any, value: Any, *given: Any, **named: Any) -> Any:
        if query.device.type != "cuda" or query.dim() != 4:
            return real(query, key, value, *given, **named)
        asked = _Asked(*given, **named)
        if asked.enable_gqa and key.shape[-3] != query.shape[-3]:
            times = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
        how = asked.dropout_p, asked.is_causal
        is_flash = query.dtype in _FLASH_TYPES and query.shape[-1] == value.shape[-1]
        if asked.attn_mask is None and is_flash:
            return aten._scaled_dot_product_flash_attention(query, key, value, *how, scale=asked.scale)[0]
        mask = _mask(asked.attn_mask, query, key)
        needs_grad = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
        efficient = aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, mask, needs_grad, *how, scale=asked.scale)[0]

    return attention


def _mask(mask: Any, query: Any, key: Any) -> Any:
    """Return a mask as what is added to scores, of their whole shape."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, float("-inf"))
    return mask.expand(*query.shape[:-1], key.shape[-2])


def _replace_distributed(mode: GpuMode) -> None:
    from torch.distributed import constants, distributed_c10d
    from torch.distributed import utils as distributed_utils
    from torch.nn.parallel import distributed as data_parallel

    from traffic.torch_gpus.process_group import ProcessGroupNCCL

    for module in (dist, distributed_c10d):
        module.ProcessGroupNCCL = ProcessGroupNCCL
    distributed_c10d._NCCL_AVAILABLE = True
    constants.default_pg_nccl_timeout = distributed_c10d.default_pg_nccl_timeout = _NCCL_TIMEOUT
    distributed_c10d._get_object_coll_device = lambda group=None: "cpu"  # Objects are real.
    dist.Logger.set_runtime_stats_and_log = lambda self: None  # It reads DDP's timer, which CUDA alone has.
    rebuild = dist.Reducer._rebuild_buckets

    def rebuilt(reducer: Any) -> Any:
        with mode.keeping():  # All ranks get rank 0's order of parameters by the GPU; here each has it, the same.
            return rebuild(reducer)

    dist.Reducer._rebuild_buckets = rebuilt
    for module in (distributed_utils, data_parallel):
        module._verify_param_shape_across_processes = _verify_shapes


def _verify_shapes(group: Any, tensors: Any, logger: Any = None) -> None:
    """Compare shapes over all ranks by an object of the CPU: PyTorch reads them from tensors on the GPU."""
    shapes: list[Any] = [None] * group.size()
    dist.all_gather_object(shapes, [tuple(one.shape) for one in tensors], group)
    for rank, theirs in enumerate(shapes):
        if theirs != shapes[group.rank()]:
            raise RuntimeError(f"DDP expects the same model across all ranks, but rank {rank} has other parameters")
