"""Backend ``fabric``: c10d's operations on tensors, carried out by a group's communicator and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fabric.errors import FabricError
from traffic.torch_backend.calls import Call, Member, Operand, barrier
from traffic.torch_backend.choice import Choice
from traffic.torch_backend.communicator import Communicator
from traffic.torch_backend.meeting import Meeting
from traffic.torch_backend.messages import Messages
from traffic.torch_backend.operation import Operation, silence_s
from traffic.torch_backend.own_place import own_options, own_place
from traffic.torch_backend.reductions import SCALED
from traffic.torch_backend.tensors import operand_of
from traffic.torch_backend.work import FabricWork
from traffic.transport.tcp import TcpTransport

NAME = "fabric"


def made(options: Any, _: Any = None) -> FabricProcessGroup:
    """Return a rank's group by c10d's ``_DistributedBackendOptions``."""
    return FabricProcessGroup(options.store, options.group_rank, options.group_size, options.timeout, options.group_id)


class FabricProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A group of ranks whose collectives are this project's own.

    As with NCCL, operations of a group are carried out in the order in which they are called, and none but
    :meth:`FabricWork.wait` waits; tensors must be contiguous; an operation that fails breaks the group.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str = "") -> None:
        super().__init__(rank, size)
        self._member = Member(rank, size)
        self._name = name
        self._timeout_s = timeout.total_seconds()
        self._sequence = 0
        try:
            choice = Choice.from_environment()
            transport = TcpTransport(own_options())
            self._meeting = Meeting(store, rank, own_place(), transport, silence_s(self._timeout_s), choice.channels)
        except FabricError as error:
            raise dist.DistBackendError(str(error)) from error
        self._communicator = Communicator(f"group {name}", self._member, self._meeting, choice)
        self._messages = Messages(rank, size, self._meeting)

    # What it is ------------------------------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802 - c10d's name
        """Return its name."""
        return NAME

    def name(self) -> str:
        """Return its name."""
        return NAME

    def rank(self) -> int:
        """Return the rank's number in the group."""
        return self._member.rank

    def size(self) -> int:
        """Return how many ranks there are."""
        return self._member.ranks

    @property
    def group_name(self) -> str:
        """The group's name, by which functional collectives find it."""
        return self._name

    @property
    def group_desc(self) -> str:
        """The group's description."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def set_timeout(self, timeout: timedelta) -> None:
        """Have operations that are called from now on end within a time."""
        self._timeout_s = timeout.total_seconds()

    # Collectives of all data -----------------------------------------------------------------------------------------

    def allreduce(self, tensors: Sequence[Tensor] | Tensor, opts: Any = None, timeout: Any = None) -> FabricWork:
        """Combine tensors over all ranks, in place."""
        return self.allreduce_coalesced([tensors] if isinstance(tensors, Tensor) else tensors, opts)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = None) -> FabricWork:
        """Combine each of several tensors over all ranks, in place."""
        operator = _operator_of(opts)
        return self._called(
            "ALLREDUCE",
            lambda: [self._member.whole("allreduce", self._operand([one]), operator) for one in tensors],
            tensors,
            opts,
        )

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> FabricWork:
        """Give all ranks what the root has."""
        root = opts.rootRank
        return self._called(
            "BROADCAST",
            lambda: [self._member.whole("broadcast", self._operand([one]), root=root) for one in tensors],
            tensors,
            opts,
        )

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> FabricWork:
        """Combine tensors over all ranks, for the root, in place."""
        root, operator = opts.rootRank, _operator_of(opts)
        return self._called(
            "REDUCE",
            lambda: [self._member.whole("reduce", self._operand([one]), operator, root) for one in tensors],
            tensors,
            opts,
        )

    # All-gather ------------------------------------------------------------------------------------------------------

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> FabricWork:
        """Give each rank every rank's tensor, of one length or, by a broadcast of each, of any."""

        def calls() -> Iterable[Call]:
            for taken, given in zip(outputs, inputs, strict=True):
                if len({one.numel() for one in taken}) == 1:
                    yield self._member.gathered("all_gather", self._operand([given]), self._operand(taken))
                    continue
                _copy(taken[self.rank()], given)
                for root, one in enumerate(taken):
                    yield self._member.whole("broadcast", self._operand([one]), root=root)

        return self._called("ALLGATHER", calls, [one for taken in outputs for one in taken], opts)

    allgather_coalesced = allgather

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> FabricWork:
        """Give each rank every rank's tensor, in one."""
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> FabricWork:
        """Give each rank every rank's tensors, each in one."""

        def calls() -> Iterable[Call]:
            for taken, given in zip(outputs, inputs, strict=True):
                self._require_blocks("all_gather_into_tensor", taken, given)
                yield self._member.gathered("all_gather", self._operand([given]), self._operand([taken]))

        return self._called("_ALLGATHER_BASE", calls, outputs, opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    # Reduce-scatter --------------------------------------------------------------------------------------------------

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None
    ) -> FabricWork:
        """Give each rank its tensor combined over all, of one length or, by a reduce of each, of any."""
        operator = _operator_of(opts)

        def calls() -> Iterable[Call]:
            for taken, given in zip(outputs, inputs, strict=True):
                if len({one.numel() for one in given}) == 1:
                    yield self._member.scattered(
                        "reduce_scatter", self._operand(given), self._operand([taken]), operator
                    )
                    continue
                for root, one in enumerate(given):
                    own = taken if root == self.rank() else one.clone()
                    _copy(own, one)
                    yield self._member.whole("reduce", self._operand([own]), operator, root)

        return self._called("REDUCE_SCATTER", calls, outputs, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> FabricWork:
        """Give each rank its part of a tensor, combined over all."""
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> FabricWork:
        """Give each rank its parts of several tensors, combined over all."""
        operator = _operator_of(opts)

        def calls() -> Iterable[Call]:
            for taken, given in zip(outputs, inputs, strict=True):
                self._require_blocks("reduce_scatter_tensor", given, taken)
                yield self._member.scattered("reduce_scatter", self._operand([given]), self._operand([taken]), operator)

        return self._called("_REDUCE_SCATTER_BASE", calls, outputs, opts)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _require_blocks(self, what: str, whole: Tensor, block: Tensor) -> None:
        if whole.numel() != block.numel() * self.size():
            raise ValueError(
                f"{what}: {whole.numel()} elements for all ranks and {block.numel()} for one of {self.size()}: "
                "the first must be the number of ranks times the second"
            )

    # All-to-all, and what has a root ---------------------------------------------------------------------------------

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> FabricWork:
        """Give each rank the tensor that each other one has for it."""
        return self._called(
            "ALLTOALL", lambda: [self._member.exchanged(self._operand(inputs), self._operand(outputs))], outputs, opts
        )

    def all_to_all_single(
        self,
        output: Tensor,
        given: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> FabricWork:
        """Give each rank the part of a tensor that each other one has for it: equal ones, or rows by number."""

        def calls() -> Iterable[Call]:
            sent, received = self._split(given, input_splits), self._split(output, output_splits)
            yield self._member.exchanged(sent, received)

        return self._called("ALLTOALL_BASE", calls, [output], opts)

    alltoall_base = all_to_all_single

    def _split(self, tensor: Tensor, splits: Sequence[int]) -> Operand:
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits and rows % self.size():
            raise ValueError(f"all_to_all_single: {rows} rows are not a multiple of {self.size()} ranks; give splits")
        counts = splits or [rows // self.size()] * self.size()
        if sum(counts) != rows or len(counts) != self.size():
            raise ValueError(
                f"all_to_all_single: splits {list(counts)} are not one per rank that sum up to {rows} rows"
            )
        per_row = tensor.numel() // rows if rows else 0
        return self._operand([tensor], [count * per_row for count in counts])

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> FabricWork:
        """Give the root every rank's tensor."""
        root = opts.rootRank

        def calls() -> Iterable[Call]:
            taken = self._operand(outputs[0]) if root == self.rank() else None
            yield self._member.gathered("gather", self._operand(inputs), taken, root)

        return self._called("GATHER", calls, [one for taken in outputs for one in taken], opts)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any) -> FabricWork:
        """Give each rank its tensor of those that the root has."""
        root = opts.rootRank

        def calls() -> Iterable[Call]:
            given = self._operand(inputs[0]) if root == self.rank() else None
            yield self._member.scattered("scatter", given, self._operand(outputs), root=root)

        return self._called("SCATTER", calls, outputs, opts)

    def barrier(self, opts: Any = None) -> FabricWork:
        """Wait until all ranks have come."""
        return self._called("BARRIER", lambda: [barrier(self.rank(), self.size())], [], opts)

    # Messages --------------------------------------------------------------------------------------------------------

    def send(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> FabricWork:
        """Send a tensor to a rank."""
        operation, data = self._operation("SEND", tensors, None), self._operand(tensors)
        self._count(operation, "send", data.size_bytes)
        self._messages.send(operation, data, peer, tag)
        return self._work(operation, list(tensors))

    def recv(self, tensors: Sequence[Tensor], peer: int, tag: int = 0) -> FabricWork:
        """Receive a tensor from a rank."""
        operation, data = self._operation("RECV", tensors, None), self._operand(tensors)
        self._count(operation, "receive", data.size_bytes)
        self._messages.receive(operation, data, peer, tag)
        return self._work(operation, list(tensors), peer)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> FabricWork:
        """Refuse, as NCCL does. Raises DistBackendError."""
        raise dist.DistBackendError("recv: backend fabric does not support a receive from any source; give src")

    def _operand(self, tensors: Sequence[Tensor], lengths: Iterable[int] | None = None) -> Operand:
        """Return what is sent of tensors, or where what is received belongs."""
        return operand_of(tensors, lengths)

    # What all have ---------------------------------------------------------------------------------------------------

    def _called(
        self, what: str, calls: Callable[[], Iterable[Call]], result: Sequence[Tensor], opts: Any
    ) -> FabricWork:
        """Have calls carried out, one after another, as one operation."""
        try:
            made = list(calls())
        except FabricError as error:
            raise ValueError(str(error)) from error
        operation = self._operation(what, result, getattr(opts, "timeout", None))
        for call in made:
            self._count(operation, call.collective.name, call.size_bytes)
        work = self._work(operation, list(result))
        self._communicator.submit(operation, made)
        return work

    def _operation(self, what: str, tensors: Sequence[Tensor], timeout: timedelta | None) -> Operation:
        self._sequence += 1
        limit_s = timeout.total_seconds() if timeout else 0.0
        elements = sum(one.numel() for one in tensors)
        words = f"WorkFabric(SeqNum={self._sequence}, OpType={what}, Numel={elements}, Rank={self.rank()})"
        return self._begun(what, words, tensors, limit_s if limit_s > 0 else self._timeout_s)

    def _begun(self, what: str, words: str, tensors: Sequence[Tensor], limit_s: float) -> Operation:
        """Return an operation that may begin at once."""
        return Operation(words, limit_s)

    def _count(self, operation: Operation, kind: str, size_bytes: int) -> None:
        """Take note of what an operation carries out."""

    def _work(self, operation: Operation, tensors: list[Tensor], source: int = -1) -> FabricWork:
        """Return what a caller gets of an operation."""
        return FabricWork(operation, tensors, source)

    def _start_coalescing(self, device: torch.device) -> None:
        """Do nothing: operations are called one by one."""

    def _end_coalescing(self, device: torch.device) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """End the group; operations that are under way fail, here and at peers."""
        self._communicator.close()
        self._meeting.close()
        self._messages.close()

    shutdown = abort


def _operator_of(opts: Any) -> str:
    """Return the name of the operator of an operation's options, and a factor that it has; SUM without any."""
    operator = getattr(opts, "reduceOp", None)
    if operator is None:
        operator = opts if isinstance(opts, (dist.ReduceOp, dist.ReduceOp.RedOpType)) else dist.ReduceOp.SUM
    name = str(getattr(operator, "op", operator)).rpartition(".")[2]
    return f"{name} {float(operator.__getstate__()[1])}" if name == SCALED else name


def _copy(target: Tensor, source: Tensor) -> None:
    if target.data_ptr() != source.data_ptr():
        target.detach().copy_(source.detach())
