"""What PyTorch does with each operator on ``cuda``: shapes by a fake tensor, bytes, and time on the current stream."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from fabric.units import format_size
from traffic.torch_gpus import functional, known_values
from traffic.torch_gpus.machine import Machine
from traffic.torch_gpus.memory import DoesNotFitError
from traffic.torch_gpus.operators import aten, kernel_of, work_of
from traffic.torch_gpus.values import no_value, stand_in

_OWN = frozenset((FakeTensor, torch.Tensor, torch.nn.Parameter))
_DEVICE = torch.ops.prim.device.default


class Storages:
    """Bytes of tensors' storages on GPUs, for as long as these live."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._taken: dict[int, tuple[Any, int, int]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage, once. Raises OutOfMemoryError as a GPU does."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._taken:
            return
        device = _index_of(tensor.device, self._machine)
        taken = self._allocate(device, storage.nbytes())
        self._taken[key] = weakref.ref(storage, lambda _: self._free(key)), device, taken

    def resize(self, storage: Any) -> None:
        """Count what a storage has become."""
        if storage._cdata in self._taken:
            reference, device, taken = self._taken[storage._cdata]
            self._machine.devices[device].memory.free(taken)
            self._taken[storage._cdata] = reference, device, 0
            self._taken[storage._cdata] = reference, device, self._allocate(device, storage.nbytes())

    def _allocate(self, device: int, size_bytes: int) -> int:
        try:
            return self._machine.devices[device].memory.allocate(size_bytes)
        except DoesNotFitError as error:
            raise torch.OutOfMemoryError(_out_of_memory(device, error)) from None

    def _free(self, key: int) -> None:
        _, device, taken = self._taken.pop(key)
        self._machine.devices[device].memory.free(taken)


def _out_of_memory(device: int, error: DoesNotFitError) -> str:
    free = format_size(error.memory_bytes - error.allocated_bytes)
    return (
        f"CUDA out of memory. Tried to allocate {format_size(error.asked_bytes)}. GPU {device} has a total capacity of "
        f"{format_size(error.memory_bytes)} of which {free} is free. Of the allocated memory "
        f"{format_size(error.allocated_bytes)} is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
        "unallocated."
    )


class GpuMode(TorchDispatchMode):  # type: ignore[misc]
    """Carries out operators that touch ``cuda`` on fake tensors, and all others as they are. ``answers_reads``: whether
    a read of a value gives nan, 0 or False in place of an error."""

    def __init__(self, machine: Machine, answers_reads: bool) -> None:
        super().__init__()
        self.machine, self.storages = machine, Storages(machine)
        self._answers_reads = answers_reads
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._keeps = False

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Let copies to tensors of the CPU, meanwhile, leave what is there."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Carry out an operator."""
        kwargs = kwargs or {}
        if func is _DEVICE and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        if not _OWN.issuperset(types):
            return NotImplemented  # A DTensor, say, which asks again for the tensor inside.
        if not any(map(_is_on_gpu, tree_leaves((args, kwargs)))):
            return func(*args, **kwargs)
        if func.namespace == functional.NAMESPACE:
            with self:
                return functional.carry_out(func._overloadpacket.__name__, args)
        if func._overloadpacket is aten.copy_ and not isinstance(args[0], FakeTensor):
            return args[0] if self._keeps else self._copied_to_cpu(args[0], args[1])
        given = args, kwargs
        args, kwargs = tree_map_only(torch.Tensor, self._stand_in, given)
        try:
            with self._fake:
                out = func(*args, **kwargs)
        except DataDependentOutputException:
            return self._value(func, given)
        except DynamicOutputShapeException:
            out = self._shaped_by_values(func, given)
        self._count(func, args, kwargs, out)
        return known_values.follow(func, *given, out)

    def _copied_to_cpu(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        value = known_values.value_of(source)
        if value is None or not value.is_known():
            return self._read("copy_() to a tensor of the CPU", target, source)
        self._await_stream_of(source)
        return target.copy_(value.real)

    def _await_stream_of(self, tensor: torch.Tensor) -> None:
        self.machine.synchronize(self.machine.stream(_index_of(tensor.device, self.machine)).mark())

    def _shaped_by_values(self, func: Any, given: Any) -> Any:
        """Return the result of an operator whose shape depends on values, or raise NoValueError."""
        reals = known_values.reals_of(given)
        if reals is None:
            raise no_value(f"{func._overloadpacket}, whose shape depends on values") from None
        found = func(*reals[0], **reals[1])
        device = next(leaf.fake_device for leaf in tree_leaves(given) if isinstance(leaf, FakeTensor))
        with self._fake:
            return tree_map_only(
                torch.Tensor,
                lambda one: torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device=device),
                found,
            )

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a fake tensor in place of a real one of the CPU, of the same shape. Not the one that FakeTensorMode
        makes: that refers to the real one weakly, and a module's parameters could not move to ``cuda`` in place."""
        if isinstance(tensor, FakeTensor):
            return tensor
        with self._fake:
            return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    def _value(self, func: Any, given: Any) -> Any:
        """Answer a read of a value, or raise NoValueError."""
        tensor = given[0][0]
        reals = known_values.reals_of(given)
        if reals is not None:
            self._await_stream_of(tensor)
            return func(*reals[0], **reals[1])
        name = "item() or a branch on it" if func._overloadpacket is aten._local_scalar_dense else str(func)
        return self._read(name, None, tensor)

    def _read(self, what: str, target: torch.Tensor | None, source: torch.Tensor) -> Any:
        if not self._answers_reads:
            raise no_value(what)
        self._await_stream_of(source)
        return stand_in(source.dtype) if target is None else target.fill_(stand_in(target.dtype))

    def _count(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> None:
        on_gpu = [
            one for one in tree_leaves((out, args)) if isinstance(one, FakeTensor) and one.fake_device.type == "cuda"
        ]
        if not on_gpu:
            return
        for one in tree_leaves(out):
            if isinstance(one, FakeTensor) and one.fake_device.type == "cuda":
                self.storages.add(one)
        work = work_of(func, args, kwargs, out)
        if work is not None:
            device = _index_of(on_gpu[0].fake_device, self.machine)
            kernel = None if self.machine.times is None else kernel_of(func, args, kwargs)
            self.machine.play(func._overloadpacket.__name__, work, device, kernel)
            if work.host_bytes and not kwargs.get("non_blocking", len(args) > 2 and args[2]):
                self.machine.synchronize(self.machine.stream(device).mark())


def _is_on_gpu(leaf: Any) -> bool:
    return isinstance(leaf, FakeTensor) or (isinstance(leaf, torch.device) and leaf.type == "cuda")


def _index_of(device: torch.device, machine: Machine) -> int:
    return machine.current_device if device.index is None else device.index
