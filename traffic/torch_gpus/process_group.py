"""Backend ``nccl``: the operations of backend ``fabric``, which begin and end on streams of GPUs that are not there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from fabric.errors import FabricError
from traffic.torch_backend.calls import Call, Operand
from traffic.torch_backend.operation import Operation
from traffic.torch_backend.process_group import FabricProcessGroup
from traffic.torch_backend.work import FabricWork
from traffic.torch_gpus.moments import End
from traffic.torch_gpus.sent_values import values_sent, values_under_way
from traffic.torch_gpus.streams import Here, index_of
from traffic.torch_gpus.timeline import sleep_until


class GpuOperation(Operation):
    """An operation on tensors of a GPU: it begins when its stream has ended what it was given before; ``ended`` is when
    packets say so; ``kinds``: what it carries out."""

    def __init__(self, what: str, timeout_s: float, device: int) -> None:
        self.device = device
        self.ended = End(what)
        self.kinds: list[str] = []
        self._began_ns: int | None = None
        begins = Here.machine.stream(device).mark()

        def await_turn(limit_s: float) -> None:
            sleep_until(begins.await_known(limit_s))
            self._began_ns = time.monotonic_ns()

        super().__init__(what, timeout_s, await_turn)

    def end(self, error: BaseException | None = None) -> None:
        """Say that it has ended, and when."""
        if not self.has_ended:
            now_ns = time.monotonic_ns()
            self.ended.is_at(now_ns, error)
            if self.kinds and self._began_ns is not None:
                Here.communications.took(self.kinds[0], now_ns - self._began_ns)
        super().end(error)


class GpuWork(FabricWork):
    """An operation on tensors of a GPU: who waits for it is the current stream, not the host."""

    def __init__(self, operation: GpuOperation, tensors: list[Tensor], source: int, host_waits: bool) -> None:
        super().__init__(operation, tensors, source)
        self._host_waits = host_waits
        self._on_gpu = operation

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let the current stream wait for its end; the host, too, if it is a barrier. Raises DistBackendError."""
        if self._host_waits:
            return super().wait(timeout)
        Here.machine.stream(self._on_gpu.device).wait_end(self._on_gpu.ended)
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that has its tensors.

        In a backward pass, where DDP asks for one per bucket, it has them at once, and the stream waits before DDP goes
        on with all buckets. Elsewhere it has them in the end: who waits for it is the host.
        """
        try:
            torch.autograd.Variable._execution_engine.queue_callback(self.wait)
        except RuntimeError:  # No backward pass is under way in this thread.
            return super().get_future()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class NcclOptions:
    """``ProcessGroupNCCL.Options``: a user's are taken, and change nothing but the timeout."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = timedelta(minutes=10)
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.split_from: Any = None
        self.split_color = 0


_IN_PLACE = ("ALLREDUCE", "REDUCE")
"""Operations that read what they write, at all ranks."""


class _Present(threading.local):
    """The operation that a thread is calling. ``asked``: takes down its tensors; ``reals``: what is sent in place of
    them, by their ids."""

    def __init__(self) -> None:
        self.asked: list[Tensor] | None = None
        self.reals: dict[int, Tensor] | None = None


class ProcessGroupNCCL(FabricProcessGroup):
    """A group of ranks, each with a GPU."""

    Options = NcclOptions
    supports_splitting = False

    def __init__(self, store: Any, rank: int, size: int, options: NcclOptions) -> None:
        super().__init__(store, rank, size, options._timeout, options.group_name)
        self._present = _Present()
        self.options = options

    def getBackendName(self) -> str:  # noqa: N802 - c10d's name
        """Return its name."""
        return "nccl"

    name = getBackendName

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: operations are numbered from 1."""

    def _get_backend(self, device: Any) -> ProcessGroupNCCL:
        """Return itself, for any device."""
        return self

    def _operand(self, tensors: Sequence[Tensor], lengths: Iterable[int] | None = None) -> Operand:
        if self._present.asked is not None:
            self._present.asked += tensors
        if self._present.reals is not None:
            tensors = [self._present.reals.get(id(one), one) for one in tensors]
        return super()._operand(tensors, lengths)

    def _called(
        self, what: str, calls: Callable[[], Iterable[Call]], result: Sequence[Tensor], opts: Any
    ) -> FabricWork:
        asked: list[Tensor] = []
        self._present.asked = asked
        try:
            list(calls())
        except FabricError as error:
            raise ValueError(str(error)) from error
        finally:
            self._present.asked = None
        written = set(map(id, result))
        with self._values(
            what, [one for one in asked if id(one) not in written or what in _IN_PLACE], result
        ) as under_way:
            work = super()._called(what, calls, result, opts)
            under_way(work)
        return work

    def send(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> FabricWork:
        """Send a tensor to a rank."""
        with self._values("SEND", tensors, []):
            return super().send(tensors, peer, tag)

    def recv(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> FabricWork:
        """Receive a tensor from a rank."""
        with self._values("RECV", [], tensors) as under_way:
            work = super().recv(tensors, peer, tag)
            under_way(work)
        return work

    @contextmanager
    def _values(
        self, what: str, given: Sequence[Tensor], result: Sequence[Tensor]
    ) -> Iterator[Callable[[FabricWork], None]]:
        """Let an operation meanwhile send and receive the values of small tensors."""
        reals = values_sent(what, given, result)
        self._present.reals = reals
        try:
            yield lambda work: values_under_way(reals, result, work.operation)
        finally:
            self._present.reals = None

    def _begun(self, what: str, words: str, tensors: Sequence[Tensor], limit_s: float) -> Operation:
        device = next((one.device for one in tensors if one.device.type == "cuda"), None)
        if device is None and what != "BARRIER":
            return super()._begun(what, words, tensors, limit_s)
        return GpuOperation(words, limit_s, index_of(device))

    def _count(self, operation: Operation, kind: str, size_bytes: int) -> None:
        if isinstance(operation, GpuOperation):
            operation.kinds.append(kind)
            Here.communications.called(kind, size_bytes)

    def _work(self, operation: Operation, tensors: list[Tensor], source: int = -1) -> FabricWork:
        if isinstance(operation, GpuOperation):
            return GpuWork(operation, tensors, source, host_waits=not tensors)
        return super()._work(operation, tensors, source)
