"""Operations of a group over arrays, or over lengths alone: what each is of the collectives that are here."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from traffic.collectives.collective import Collective, Expected
from traffic.collectives.dataset import Buffer
from traffic.collectives.elements import Dtype, Elements, ElementType
from traffic.collectives.exchange import Block
from traffic.collectives.listing import COLLECTIVES
from traffic.collectives.operations.barrier import BARRIER
from traffic.collectives.result_check import ResultCheck
from traffic.collectives.schedule import Finished
from traffic.torch_backend import patterns
from traffic.torch_backend.buffers import ArraysInRow, NumpyType
from traffic.torch_backend.reductions import SUM, Finish, Reduction, reduction_named


@dataclass(frozen=True)
class Operand:
    """What a rank gives or gets, in pieces: ``lengths`` of each, in elements. ``arrays``: each of shape (length,);
    None: there is no data, only its length."""

    element: np.dtype[Any]
    lengths: tuple[int, ...]
    arrays: tuple[Elements, ...] | None

    @property
    def length(self) -> int:
        """Elements of all pieces."""
        return sum(self.lengths)

    @property
    def size_bytes(self) -> int:
        """Bytes of all pieces."""
        return self.length * self.element.itemsize

    def turned(self, places: int) -> Operand:
        """Return the same with so many of the first pieces behind the others."""

        def turn(items: tuple[Any, ...]) -> tuple[Any, ...]:
            return (*items[places:], *items[:places])

        return Operand(self.element, turn(self.lengths), None if self.arrays is None else turn(self.arrays))


@dataclass(frozen=True)
class Splits:
    """What a rank has for each other rank in an all-to-all, and gets of each, in elements: its own row and column."""

    rank: int
    sent: tuple[int, ...]
    received: tuple[int, ...]

    def __call__(self, source: int, target: int, ranks: int, elements: int) -> Block:
        """Return what goes from rank to rank, as far as this rank knows."""
        place = sum(self.received[:source]) if target == self.rank else 0
        if source == self.rank:
            first = sum(self.sent[:target])
            return Block(slice(first, first + self.sent[target]), place)
        return Block(slice(0, self.received[source] if target == self.rank else 0), place)

    def scaled(self, from_bytes: int, to_bytes: int) -> Splits:
        """Return the same of elements of another size."""
        sent = tuple(length * from_bytes // to_bytes for length in self.sent)
        return Splits(self.rank, sent, tuple(length * from_bytes // to_bytes for length in self.received))

    @property
    def expected(self) -> tuple[Expected, ...]:
        """What the rank gets, by where it is in blocks that all begin at 0."""
        starts = accumulate(self.received, initial=0)
        return tuple(
            Expected(slice(start, start + length), (source,), 0)
            for source, (start, length) in enumerate(zip(starts, self.received, strict=False))
        )


@dataclass(frozen=True)
class Call:
    """A collective as a rank of a group calls it. ``place``: the rank's, from the root on; ``source``: what it has;
    ``finished``: takes its result, piece by piece; ``expected``: what that is made of; ``check``: of contents that are
    known. ``splits``: of an all-to-all, in place of a collective's schedule."""

    collective: Collective
    place: int
    root: int
    elements: int
    dtype: ElementType
    source: Buffer
    finished: Finished
    reduction: Reduction
    operator: str
    expected: tuple[Expected, ...]
    check: ResultCheck | None = None
    splits: Splits | None = None

    @property
    def size_bytes(self) -> int:
        """Its size by nccl-tests' convention: the data of all ranks, of an all-to-all what the rank sends."""
        return self.elements * self.dtype.size_bytes

    @property
    def kind(self) -> tuple[object, ...]:
        """What calls share that one worker can do."""
        return (self.collective.name, self.root, self.elements, self.dtype.numpy.str, self.operator, self.splits)


def barrier(rank: int, ranks: int) -> Call:
    """Return the call after which all ranks have made it."""
    nothing = ArraysInRow(())
    reduction = reduction_named(SUM, Dtype.FP32.numpy)
    return Call(BARRIER, rank, 0, 0, Dtype.FP32, nothing, nothing.put, reduction, SUM, ())


@dataclass(frozen=True)
class Member:
    """A rank of a group, which makes calls. ``given``: what it has; ``taken``: where its result belongs; None where it
    has neither. Blocks are of one length at all ranks. All raise TrafficError for an operator that the type has not."""

    rank: int
    ranks: int

    def whole(self, name: str, data: Operand, operator: str = SUM, root: int = 0) -> Call:
        """Return an allreduce, reduce or broadcast: of all data at each rank, in place."""
        return self._call(COLLECTIVES[name], (data, data), data.length, operator, root)

    def gathered(self, name: str, given: Operand, taken: Operand | None, root: int = 0) -> Call:
        """Return an all_gather or gather: a block of each rank."""
        turned = None if taken is None else taken.turned(root)
        return self._call(COLLECTIVES[name], (given, turned), given.length * self.ranks, SUM, root)

    def scattered(self, name: str, given: Operand | None, taken: Operand, operator: str = SUM, root: int = 0) -> Call:
        """Return a reduce_scatter or scatter: a block for each rank."""
        turned = None if given is None else given.turned(root)
        return self._call(COLLECTIVES[name], (turned, taken), taken.length * self.ranks, operator, root)

    def _call(
        self,
        collective: Collective,
        data: tuple[Operand | None, Operand | None],
        elements: int,
        operator: str,
        root: int,
    ) -> Call:
        given, taken = data
        some = given or taken
        assert some is not None, "a rank has or gets something"
        place = (self.rank - root) % self.ranks
        reduction = reduction_named(operator, some.element)
        if some.arrays is None:
            plain, of_plain = _without_data(some, elements, self.ranks)
            expected = collective.expected(place, self.ranks, of_plain)
            check = patterns.check_of(expected, self.ranks, plain, of_plain)
            return Call(
                collective, place, root, of_plain, plain, patterns.input_of(place, self.ranks, plain), check.piece,
                reduction_named(SUM, plain.numpy), SUM, expected, check,
            )  # fmt: skip
        expected = collective.expected(place, self.ranks, elements)
        source = _in_row(given, collective.input(place, self.ranks, elements).start)
        result = _in_row(taken, expected[0].place.start if expected else 0)
        put = result.put if reduction.finish is None else _finishing(result, reduction.finish, self.ranks)
        dtype = NumpyType(some.element)
        return Call(collective, place, root, elements, dtype, source, put, reduction, operator, expected)

    def exchanged(self, given: Operand, taken: Operand) -> Call:
        """Return an all-to-all: a piece for each rank, and one from each, of any lengths."""
        collective, splits = COLLECTIVES["all_to_all"], Splits(self.rank, given.lengths, taken.lengths)
        if given.arrays is not None:
            source, result = _in_row(given, 0), _in_row(taken, 0)
            reduction, dtype = reduction_named(SUM, given.element), NumpyType(given.element)
            return Call(
                collective, self.rank, 0, given.length, dtype, source, result.put, reduction, SUM, (), splits=splits
            )
        size_bytes = given.element.itemsize
        plain = patterns.type_of([length * size_bytes for length in (*given.lengths, *taken.lengths)])
        splits = splits.scaled(size_bytes, plain.size_bytes)
        starts = tuple(accumulate(splits.sent[:-1], initial=0))
        series = patterns.AlikeBlocks(starts, patterns.input_of(self.rank, self.ranks, plain))
        check = patterns.check_of(splits.expected, self.ranks, plain, sum(splits.received))
        reduction = reduction_named(SUM, plain.numpy)
        return Call(
            collective, self.rank, 0, sum(splits.sent), plain, series, check.piece, reduction, SUM, (), check, splits
        )


def _in_row(operand: Operand | None, first: int) -> ArraysInRow:
    return ArraysInRow((), first) if operand is None else ArraysInRow(operand.arrays or (), first)


def _without_data(some: Operand, elements: int, ranks: int) -> tuple[Dtype, int]:
    """Return as what elements are sent that have no data: their type, and how many of that."""
    size_bytes = elements * some.element.itemsize
    plain = patterns.type_of([size_bytes, size_bytes // ranks])
    return plain, size_bytes // plain.size_bytes


def _finishing(result: ArraysInRow, finish: Finish, ranks: int) -> Finished:
    """Return what writes what a rank gets of that which all have combined."""

    def put(piece: slice, found: Elements) -> None:
        result.put(piece, finish(found, ranks))

    return put
