"""``torch.cuda.Stream`` and ``torch.cuda.Event``, on timelines."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from traffic.torch_gpus.communications import Communications
from traffic.torch_gpus.machine import Machine
from traffic.torch_gpus.moments import Moment
from traffic.torch_gpus.router import Router
from traffic.torch_gpus.timeline import Timeline


class Here:
    """The machine of this process, which classes that scripts make objects of find here."""

    machine: Machine
    answers_reads = False
    """Whether a read of a value gives nan, 0 or False in place of an error."""
    communications = Communications()
    """What ``nccl`` was asked for."""
    router: Router | None = None
    """Chooses tokens' experts; None: nobody does."""


def index_of(device: Any = None) -> int:
    """Return the number of a device as users name it: by number, text or ``torch.device``, None for the current one.

    Raises RuntimeError, as CUDA does, for one that is not there.
    """
    if device is None:
        return Here.machine.current_device
    number = device if isinstance(device, int) else torch.device(device).index
    if number is None or number < 0:
        return Here.machine.current_device
    if number >= len(Here.machine.devices):
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: GPU {number} of {len(Here.machine.devices)}; fabric exec "
            f"--gpu NAME:COUNT gives hosts more"
        )
    return int(number)


class Stream:
    """A stream of a GPU. Priorities change nothing: operators of one do not slow those of another here."""

    def __init__(self, device: Any = None, priority: int = 0, *, number: int | None = None, **_: Any) -> None:
        self.device_index = index_of(device)
        self.priority = priority
        self.stream_id = Here.machine.devices[self.device_index].new_stream() if number is None else number
        self.device = torch.device("cuda", self.device_index)
        self.cuda_stream = self.stream_id
        self.device_type = 1

    @property
    def timeline(self) -> Timeline:
        """What it plays."""
        return Here.machine.devices[self.device_index].streams[self.stream_id]

    def wait_event(self, event: Event) -> None:
        """Let what it is given from now on wait for an event."""
        if event.moment is not None:
            self.timeline.wait(event.moment)

    def wait_stream(self, stream: Stream) -> None:
        """Let what it is given from now on wait for what another stream has been given."""
        self.timeline.wait(stream.timeline.mark())

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event that happens once all is done that it has been given."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Return whether all is done."""
        at_ns = self.timeline.mark().at_ns()
        return at_ns is not None and at_ns <= Here.machine.clock()

    def is_capturing(self) -> bool:
        """Return whether a graph is captured: never."""
        return False

    def synchronize(self) -> None:
        """Let the host wait until all is done."""
        Here.machine.synchronize(self.timeline.mark())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device_index, self.stream_id) == (
            other.device_index,
            other.stream_id,
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.device_index} cuda_stream={self.stream_id:#x}>"

    def __enter__(self) -> Stream:
        self._before = current_stream(self.device_index)
        set_stream(self)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, place: TracebackType | None) -> None:
        set_stream(self._before)


class Event:
    """An event of a stream; its times are those of the streams."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> None:
        self._has_timing = enable_timing
        self.moment: Moment | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Let it happen once all is done that a stream has been given."""
        self.moment = (stream or current_stream()).timeline.mark()

    def wait(self, stream: Stream | None = None) -> None:
        """Let a stream wait for it."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Return whether it has happened."""
        if self.moment is None:
            return True
        at_ns = self.moment.at_ns()
        return at_ns is not None and at_ns <= Here.machine.clock()

    def synchronize(self) -> None:
        """Let the host wait for it."""
        if self.moment is not None:
            Here.machine.synchronize(self.moment)

    def elapsed_time(self, end: Event) -> float:
        """Return the time to another event, in ms. Raises RuntimeError, as CUDA does, before both have happened."""
        if self.moment is None or end.moment is None or not (self._has_timing and end._has_timing):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True' and recorded")
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready: synchronize before elapsed_time")
        first_ns, last_ns = self.moment.at_ns(), end.moment.at_ns()
        assert first_ns is not None and last_ns is not None
        return (last_ns - first_ns) / 1e6


class StreamContext:
    """``with torch.cuda.stream(...)``."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, kind: type | None, error: BaseException | None, place: TracebackType | None) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, error, place)


def current_stream(device: Any = None) -> Stream:
    """Return the thread's current stream of a device."""
    number = index_of(device)
    return Stream(number, number=Here.machine.current_stream(number))


def default_stream(device: Any = None) -> Stream:
    """Return the stream that a device has from the start."""
    return Stream(index_of(device), number=0)


def set_stream(stream: Stream) -> None:
    """Make a stream the thread's current one of its device."""
    Here.machine.set_stream(stream.device_index, stream.stream_id)
