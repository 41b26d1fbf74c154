"""Operations of a group over arrays: right over any ranks and types, and errors that end for all."""

from __future__ import annotations

from contextlib import closing

import ml_dtypes
import numpy as np
import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from tests.traffic.torch_backend.groups import SMALL, MemoryStore, Rank, lengths, operand, over_ranks
from traffic.collectives.dataset import Buffer, PeriodicBuffer
from traffic.collectives.elements import Dtype, Elements
from traffic.torch_backend import patterns
from traffic.torch_backend.calls import barrier
from traffic.torch_backend.choice import Choice
from traffic.torch_backend.meeting import Meeting
from traffic.torch_backend.operation import Operation, TookTooLongError
from traffic.torch_backend.own_place import RankPlace
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

HERE = "127.0.0.1"
TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_]


@pytest.mark.parametrize("algorithm", [None, "ring", "tree", "hfreduce", "halving_doubling", "direct"])
def test_an_allreduce_is_the_same_by_every_algorithm(algorithm: str | None) -> None:
    def part(rank: Rank) -> None:
        for count in (1, 3, 501):
            data = np.arange(count, dtype=np.float32) + rank.rank
            rank.done(rank.member.whole("allreduce", operand(data)))
            assert np.array_equal(data, 3 * np.arange(count) + 3)

    over_ranks(3, part, Choice(algorithm=algorithm, piece_bytes=64), hosts=["z0h000", "z0h001", "z1h000"])


@pytest.mark.parametrize(
    "place", [RankPlace("z0h000", (HERE,), "127.0.0.2"), RankPlace("z0h000", (HERE, "127.0.0.3"))], ids=str
)
def test_others_know_where_a_rank_is(place: RankPlace) -> None:
    store, transport = MemoryStore(), TcpTransport(SocketOptions(ServiceLevel.NCCL))
    with (
        closing(Meeting(store, 0, place, transport, 1.0, len(place.nics))),
        closing(Meeting(store, 1, RankPlace("z0h001", (HERE,)), transport, 1.0)) as other,
    ):
        assert other.place_of(0) == place


@pytest.mark.parametrize("element", TYPES)
def test_sums_are_those_of_the_type(element: type) -> None:
    def part(rank: Rank) -> None:
        data: Elements = (np.arange(300) % 3 + rank.rank).astype(element)
        rank.done(rank.member.whole("allreduce", operand(data)))
        right: Elements = (np.arange(300) % 3).astype(element) + (np.arange(300) % 3 + 1).astype(element)
        assert np.array_equal(data, right)

    over_ranks(2, part)


@pytest.mark.parametrize(
    ("operator", "right"), [("MIN", 1), ("MAX", 4), ("PRODUCT", 24), ("AVG", 2), ("BAND", 0), ("BOR", 7), ("BXOR", 4)]
)
def test_operators_are_c10ds(operator: str, right: int) -> None:
    def part(rank: Rank) -> None:
        data = np.full(50, rank.rank + 1, np.int32)
        rank.done(rank.member.whole("allreduce", operand(data), operator))
        assert (data == right).all(), data[0]

    over_ranks(4, part)


def test_a_sum_may_have_a_factor() -> None:
    def part(rank: Rank) -> None:
        data = np.full(50, rank.rank + 1, np.float32)
        rank.done(rank.member.whole("allreduce", operand(data), "PREMUL_SUM 0.25"))
        assert (data == 2.5).all(), data[0]

    over_ranks(4, part)


def test_blocks_are_gathered_and_scattered_with_any_root() -> None:
    def part(rank: Rank) -> None:
        me, ranks = rank.rank, 3
        parts = [np.zeros(40, np.float32) for _ in range(ranks)]
        rank.done(rank.member.gathered("all_gather", operand(np.full(40, me, np.float32)), operand(*parts)))
        assert all((one == number).all() for number, one in enumerate(parts))
        block = np.zeros(20, np.float32)
        given = operand(np.arange(60, dtype=np.float32) + me)
        rank.done(rank.member.scattered("reduce_scatter", given, operand(block)))
        assert np.array_equal(block, 3 * (np.arange(20) + 20 * me) + 3)
        for root in range(ranks):
            parts = [np.zeros(40, np.float32) for _ in range(ranks)]
            taken = operand(*parts) if me == root else None
            rank.done(rank.member.gathered("gather", operand(np.full(40, me, np.float32)), taken, root))
            assert me != root or all((one == number).all() for number, one in enumerate(parts))
            own = np.zeros(40, np.float32)
            give = operand(*[np.full(40, number + root, np.float32) for number in range(ranks)]) if me == root else None
            rank.done(rank.member.scattered("scatter", give, operand(own), root=root))
            assert (own == me + root).all()
            data = np.full(70, me, np.float32)
            rank.done(rank.member.whole("broadcast", operand(data), root=root))
            assert (data == root).all()
            rank.done(rank.member.whole("reduce", operand(data), "MAX", root))
        rank.done(barrier(me, ranks))

    over_ranks(3, part)


def test_an_all_to_all_has_blocks_of_any_length_also_none() -> None:
    def part(rank: Rank) -> None:
        me, ranks = rank.rank, 4
        given = [np.full((me + to) % 3 * 50, 10 * me + to, np.float32) for to in range(ranks)]
        taken = [np.zeros((me + source) % 3 * 50, np.float32) for source in range(ranks)]
        rank.done(rank.member.exchanged(operand(*given), operand(*taken)))
        assert all((one == 10 * source + me).all() for source, one in enumerate(taken))

    over_ranks(4, part)


def everything_without_data(rank: Rank) -> None:
    me, ranks, member = rank.rank, rank.member.ranks, rank.member
    rank.done(member.whole("allreduce", lengths(1001, element=ml_dtypes.bfloat16)))
    rank.done(member.whole("broadcast", lengths(70), root=1))
    rank.done(member.gathered("all_gather", lengths(33), lengths(33 * ranks)))
    rank.done(member.scattered("reduce_scatter", lengths(33 * ranks), lengths(33), "AVG"))
    sent = [(me + to) % 3 * 50 for to in range(ranks)]
    rank.done(member.exchanged(lengths(*sent), lengths(*sent)))


def test_what_has_no_data_is_sent_and_checked() -> None:
    over_ranks(3, everything_without_data)


def test_contents_that_are_wrong_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = patterns.input_of

    def of_another(rank: int, ranks: int, dtype: Dtype) -> Buffer:
        found = right(rank, ranks, dtype)
        assert isinstance(found, PeriodicBuffer)
        return right(ranks, ranks, dtype) if rank == 1 else found

    monkeypatch.setattr(patterns, "input_of", of_another)

    def part(rank: Rank) -> None:
        error = rank.play(rank.member.whole("allreduce", lengths(1000))).error
        assert isinstance(error, TrafficError)

    over_ranks(3, part)


def test_a_group_of_one_gets_what_it_has() -> None:
    def part(rank: Rank) -> None:
        data, taken = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
        rank.done(rank.member.whole("allreduce", operand(data)))
        rank.done(rank.member.gathered("all_gather", operand(data), operand(taken)))
        assert np.array_equal(taken, np.arange(9))
        taken[:] = 0
        rank.done(rank.member.exchanged(operand(data), operand(taken)))
        assert np.array_equal(taken, np.arange(9))
        everything_without_data(rank) if rank.member.ranks > 1 else rank.done(barrier(0, 1))

    over_ranks(1, part)


def test_several_channels_have_a_ring_each() -> None:
    def part(rank: Rank) -> None:
        data = np.arange(1000, dtype=np.float32)
        rank.done(rank.member.whole("allreduce", operand(data)))
        assert np.array_equal(data, 3 * np.arange(1000))

    over_ranks(3, part, Choice(algorithm="ring", piece_bytes=64, channels=2))


def test_a_rank_that_does_not_come_times_out_and_breaks_the_group() -> None:
    def part(rank: Rank) -> None:
        rank.done(rank.member.whole("allreduce", operand(np.zeros(100, np.float32))))
        if rank.rank:
            return
        error = rank.play(rank.member.whole("allreduce", operand(np.zeros(100, np.float32))), timeout_s=0.2).error
        assert isinstance(error, TookTooLongError)
        assert "200 milliseconds before timing out" in str(error)
        later = rank.play(rank.member.whole("allreduce", operand(np.zeros(100, np.float32)))).error
        assert "has failed before" in str(later)

    over_ranks(2, part)


def test_a_rank_that_fails_fails_its_peers() -> None:
    def part(rank: Rank) -> None:
        rank.done(rank.member.whole("allreduce", operand(np.zeros(100, np.float32))))
        count = 100 if rank.rank else 101
        assert rank.play(rank.member.whole("allreduce", operand(np.zeros(count, np.float32)))).error is not None

    over_ranks(2, part)


def sent(rank: Rank, data: Elements | None, peer: int, tag: int = 0) -> Operation:
    operation = Operation("SEND", 30.0)
    rank.messages.send(operation, lengths(1000) if data is None else operand(data), peer, tag)
    return operation


def received(rank: Rank, data: Elements | None, peer: int, tag: int = 0) -> Operation:
    operation = Operation("RECV", 30.0)
    rank.messages.receive(operation, lengths(1000) if data is None else operand(data), peer, tag)
    return operation


def test_messages_come_in_order_beside_collectives() -> None:
    def part(rank: Rank) -> None:
        other = 1 - rank.rank
        waiting = [sent(rank, np.full(n, rank.rank + n, np.float32), other) for n in (0, 5, 200_000)]
        taken = [np.zeros(n, np.float32) for n in (0, 5, 200_000)]
        waiting += [received(rank, one, other) for one in taken]
        waiting += [sent(rank, None, other), received(rank, None, other)]
        rank.done(rank.member.whole("allreduce", operand(np.zeros(10, np.float32))))
        for one in waiting:
            assert one.wait(60.0)
            assert one.error is None
        assert all((one == other + one.size).all() for one in taken)

    over_ranks(2, part)


def test_a_receive_of_another_length_or_tag_is_an_error() -> None:
    def part(rank: Rank) -> None:
        if rank.rank == 0:
            assert sent(rank, np.zeros(5, np.float32), 1, tag=1).wait(60.0)
            return
        operation = received(rank, np.zeros(5, np.float32), 0, tag=2)
        assert operation.wait(60.0)
        assert "expected" in str(operation.error)

    over_ranks(2, part)


def test_an_operator_that_a_type_has_not_is_refused() -> None:
    def part(rank: Rank) -> None:
        with pytest.raises(TrafficError, match=r"ReduceOp\.BAND: is of integers"):
            rank.member.whole("allreduce", operand(np.zeros(3, np.float32)), "BAND")
        with pytest.raises(TrafficError, match="use one of SUM, AVG"):
            rank.member.whole("allreduce", operand(np.zeros(3, np.float32)), "UNUSED")

    over_ranks(1, part, SMALL)
