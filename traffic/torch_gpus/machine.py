"""The GPUs of this process: their memory and streams, which ones are current, and what operators have taken."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from traffic.torch_gpus.catalogue import Gpu, gpu_named
from traffic.torch_gpus.kernel_times import Kernel, KernelTimes
from traffic.torch_gpus.memory import Memory
from traffic.torch_gpus.moments import Moment
from traffic.torch_gpus.roofline import Work, duration_ns
from traffic.torch_gpus.timeline import Clock, Timeline, sleep_until
from traffic.torch_gpus.variables import COUNT, GPU, TIMES

_TIMEOUT_S = 3600.0
"""How long the host waits for a stream; collectives that fail end earlier, by their group's timeout."""


class Device:
    """A GPU: its memory, and its streams, whose first is the default one."""

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        self._clock = clock
        self.memory = Memory(gpu.memory_bytes)
        self.streams = [Timeline(clock)]

    def new_stream(self) -> int:
        """Make a stream; return its number."""
        self.streams.append(Timeline(self._clock))
        return len(self.streams) - 1

    def mark(self) -> Moment:
        """Return when all streams will have ended what they have been given."""
        latest = Moment()
        for stream in self.streams:
            latest = latest.latest(stream.mark())
        return latest


class _Current(threading.local):
    """What is current in a thread: a device, and a stream of each."""

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, int] = {}


class Machine:
    """GPUs of one kind. ``times``: of operators that were measured. ``by_operator``: how long operators have taken, in
    ns, by name; ``by_bytes``: those of them without a formula of FLOP; ``measured``: those that ``times`` has;
    ``not_measured``: how many it has not, by name."""

    def __init__(
        self, gpu: Gpu, count: int, clock: Clock = time.monotonic_ns, times: KernelTimes | None = None
    ) -> None:
        self.gpu, self.clock = gpu, clock
        self.devices = [Device(gpu, clock) for _ in range(count)]
        self.by_operator: Counter[str] = Counter()
        self.by_bytes: Counter[str] = Counter()
        self.times = times
        self.measured: Counter[str] = Counter()
        self.not_measured: Counter[str] = Counter()
        self.operators = 0
        self._current = _Current()
        self._get_device: Callable[[], int] = lambda: self._current.device
        self._set_device: Callable[[int], None] = lambda number: setattr(self._current, "device", number)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Machine:
        """Return what ``fabric exec`` has asked for. Raises UsageError for a GPU that is not known."""
        times = KernelTimes.read(Path(environment[TIMES])) if TIMES in environment else None
        return cls(gpu_named(environment[GPU]), int(environment.get(COUNT, "1")), times=times)

    @property
    def current_device(self) -> int:
        """The number of the thread's current device."""
        return self._get_device()

    @current_device.setter
    def current_device(self, number: int) -> None:
        self._set_device(number)

    def keep_current_device(self, get: Callable[[], int], set_: Callable[[int], None]) -> None:
        """Have PyTorch's C++ keep which device is a thread's current one: its threads of autograd have their own."""
        self._get_device, self._set_device = get, set_

    def current_stream(self, device: int) -> int:
        """Return the number of the thread's current stream of a device."""
        return self._current.streams.get(device, 0)

    def set_stream(self, device: int, stream: int) -> None:
        """Make a stream the thread's current one."""
        self._current.streams[device] = stream

    def stream(self, device: int | None = None) -> Timeline:
        """Return the thread's current stream, of its current device or another."""
        number = self.current_device if device is None else device
        return self.devices[number].streams[self.current_stream(number)]

    def play(self, name: str, work: Work, device: int, kernel: Kernel | None = None) -> None:
        """Give the current stream of a device an operator. ``kernel``: its name in tables."""
        length_ns = self._length_ns(name, work, kernel)
        self.operators += 1
        self.by_operator[name] += length_ns
        self.stream(device).play(length_ns)

    def _length_ns(self, name: str, work: Work, kernel: Kernel | None) -> int:
        took_ns = None if self.times is None or kernel is None else self.times.took_ns.get(kernel)
        if took_ns is not None:
            length_ns = self.gpu.launch_ns + took_ns
            self.measured[name] += length_ns
            return length_ns
        length_ns = duration_ns(self.gpu, work)
        if self.times is not None:
            self.not_measured[name] += 1
        if work.flop is None:
            self.by_bytes[name] += length_ns
        return length_ns

    def synchronize(self, moment: Moment) -> None:
        """Let the host wait for a moment."""
        sleep_until(moment.await_known(_TIMEOUT_S), self.clock)
