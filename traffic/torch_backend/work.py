"""What an operation of a process group returns: c10d's ``Work``, asynchronous as NCCL's is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from traffic.torch_backend.operation import Operation


class FabricWork(dist.Work):  # type: ignore[misc]
    """An operation that is under way: ``operation``. ``result``: the tensors that its future has in the end."""

    def __init__(self, operation: Operation, result: list[Any], source: int = -1) -> None:
        super().__init__()
        self.operation, self._tensors, self._source = operation, result, source
        self._future: torch.futures.Future[Any] = torch.futures.Future()
        operation.when_ended(self._tell)

    def _tell(self, operation: Operation) -> None:
        if operation.error is None:
            self._future.set_result(self._tensors)
        else:
            self._future.set_exception(self.exception())

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for its end. Raises DistBackendError if it has failed, or takes longer than the group's timeout, or
        than this one."""
        limit_s = timeout.total_seconds() if timeout else 0.0
        operation = self.operation
        if limit_s and not operation.wait(min(limit_s, operation.left_s)) and operation.left_s:
            raise dist.DistBackendError(f"{operation.what} did not end within {limit_s:g} s")
        if not operation.wait(operation.left_s):
            operation.end(operation.took_too_long())
        if (error := self.exception()) is not None:
            raise error
        return True

    def synchronize(self) -> None:
        """Wait for its end, as :meth:`wait` does."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether it has ended."""
        return self.operation.has_ended

    def is_success(self) -> bool:
        """Return whether it has ended well."""
        return self.operation.has_ended and self.operation.error is None

    def exception(self) -> Exception | None:
        """Return why it has failed; None if it has not."""
        error = self.operation.error
        return None if error is None else dist.DistBackendError(str(error))

    def result(self) -> list[Any]:
        """Return its tensors."""
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that has its tensors once it has ended."""
        return self._future

    def source_rank(self) -> int:
        """Return the rank from which a receive has come."""
        return self._source
