"""What ``torch.cuda`` answers: functions of its names, for GPUs that are not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace, TracebackType
from typing import Any

import torch

from traffic.torch_gpus.memory import Memory
from traffic.torch_gpus.streams import (
    Event,
    Here,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    index_of,
    set_stream,
)

_RNG_BYTES = 16


class device:  # noqa: N801 - its name in torch.cuda
    """``with torch.cuda.device(...)``."""

    def __init__(self, device: Any) -> None:
        self.idx = index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = Here.machine.current_device
        Here.machine.current_device = self.idx

    def __exit__(self, kind: type | None, error: BaseException | None, place: TracebackType | None) -> None:
        Here.machine.current_device = self.prev_idx


def set_device(device: Any) -> None:
    """Make a device the thread's current one."""
    Here.machine.current_device = index_of(device)


def current_device() -> int:
    """Return the number of the thread's current device."""
    return Here.machine.current_device


def device_count() -> int:
    """Return how many GPUs the host has."""
    return len(Here.machine.devices)


def get_device_properties(device: Any = None) -> Any:
    """Return a GPU's name, memory and processors."""
    gpu = Here.machine.gpu
    index_of(device)
    return SimpleNamespace(
        name=gpu.title, major=gpu.capability[0], minor=gpu.capability[1], total_memory=gpu.memory_bytes,
        multi_processor_count=gpu.multiprocessors, warp_size=32, is_integrated=False, is_multi_gpu_board=False,
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536, gcnArchName="",
    )  # fmt: skip


def get_device_name(device: Any = None) -> str:
    """Return a GPU's name."""
    return str(get_device_properties(device).name)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return the version of what a GPU can do."""
    index_of(device)
    return Here.machine.gpu.capability


def synchronize(device: Any = None) -> None:
    """Let the host wait until all streams of a device are done."""
    Here.machine.synchronize(Here.machine.devices[index_of(device)].mark())


def memory_allocated(device: Any = None) -> int:
    """Return how many bytes tensors take."""
    return _memory(device).allocated_bytes


def max_memory_allocated(device: Any = None) -> int:
    """Return how many bytes tensors have taken at most."""
    return _memory(device).peak_bytes


def memory_reserved(device: Any = None) -> int:
    """Return how many bytes the allocator keeps."""
    return _memory(device).reserved_bytes


def max_memory_reserved(device: Any = None) -> int:
    """Return how many bytes the allocator has kept at most."""
    return _memory(device).peak_reserved_bytes


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count peaks from now on."""
    _memory(device).forget_peaks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return how many bytes are free, and how many there are."""
    memory = _memory(device)
    return memory.size_bytes - memory.reserved_bytes, memory.size_bytes


def empty_cache() -> None:
    """Give back what is reserved and not allocated."""
    for one in Here.machine.devices:
        one.memory.release()


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return what is known of a GPU's memory, by the allocator's names."""
    memory = _memory(device)
    return {
        "allocated_bytes.all.current": memory.allocated_bytes,
        "allocated_bytes.all.peak": memory.peak_bytes,
        "active_bytes.all.current": memory.allocated_bytes,
        "active_bytes.all.peak": memory.peak_bytes,
        "reserved_bytes.all.current": memory.reserved_bytes,
        "reserved_bytes.all.peak": memory.peak_reserved_bytes,
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


def stream(stream: Stream | None) -> StreamContext:
    """Return a context in which a stream is the current one."""
    return StreamContext(stream)


def _memory(device: Any) -> Memory:
    return Here.machine.devices[index_of(device)].memory


class RandomGenerator:
    """A GPU's source of random numbers, which are not drawn: what is asked of it, but for its seed, is nothing."""

    def __init__(self, device: int) -> None:
        self.device = torch.device("cuda", device)
        self._seed = 0

    def manual_seed(self, seed: int) -> RandomGenerator:
        """Take a seed."""
        self._seed = seed
        return self

    def initial_seed(self) -> int:
        """Return the seed."""
        return self._seed

    seed = initial_seed

    def get_state(self) -> torch.Tensor:
        """Return a state, which says nothing."""
        return _rng_state()

    def set_state(self, state: torch.Tensor) -> None:
        """Do nothing."""

    def clone_state(self) -> RandomGenerator:
        """Return itself."""
        return self

    graphsafe_get_state, graphsafe_set_state = clone_state, set_state


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _no(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _rng_state(*_: Any, **__: Any) -> torch.Tensor:
    return torch.zeros(_RNG_BYTES, dtype=torch.uint8)


def _rng_states() -> list[torch.Tensor]:
    return [_rng_state() for _ in Here.machine.devices]


REPLACEMENTS: Mapping[str, Callable[..., Any]] = {
    **{one.__name__: one for one in (
        device, set_device, current_device, device_count, get_device_properties, get_device_name,
        get_device_capability, synchronize, memory_allocated, max_memory_allocated, memory_reserved,
        max_memory_reserved, reset_peak_memory_stats, mem_get_info, empty_cache, memory_stats, Stream, Event,
        StreamContext, current_stream, default_stream, set_stream, stream,
    )},
    "is_available": _yes, "is_initialized": _yes, "is_bf16_supported": _yes, "is_tf32_supported": _yes,
    "can_device_access_peer": _yes, "is_current_stream_capturing": _no,
    "init": _nothing, "_lazy_init": _nothing, "ipc_collect": _nothing, "manual_seed": _nothing,
    "manual_seed_all": _nothing, "seed": _nothing, "seed_all": _nothing, "set_rng_state": _nothing,
    "set_rng_state_all": _nothing, "reset_accumulated_memory_stats": _nothing, "reset_max_memory_allocated": _nothing,
    "get_rng_state": _rng_state, "get_rng_state_all": _rng_states,
    "set_per_process_memory_fraction": _nothing,
}  # fmt: skip
"""By name in ``torch.cuda``. Random numbers are not drawn, so seeds and states of generators do nothing."""
