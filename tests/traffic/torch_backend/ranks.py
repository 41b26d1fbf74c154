"""Ranks of a PyTorch program, forked once it is imported: ``ranks.py CASE RANKS``, by a Python that has PyTorch."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._subclasses import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.waiting import until
from traffic.torch_backend.process_group import FabricProcessGroup
from traffic.torch_backend.registration import register

STEPS, VOCABULARY, WIDTH, LAYERS = 4, 128, 64, 4


def joined(rank: int, ranks: int, store: str, backend: str = "fabric") -> None:
    """Make the group of all ranks."""
    file = dist.FileStore(store, ranks)
    limit = timedelta(seconds=60)
    dist.init_process_group(backend, store=file, rank=rank, world_size=ranks, timeout=limit)


def full(count: int, value: float) -> Any:
    return torch.full((count,), float(value))


def operations(me: int, n: int, store: str) -> None:
    """All of c10d's operations: those of :mod:`test_groups`, through PyTorch's doors."""
    joined(me, n, store)
    assert dist.get_backend() == "fabric"
    total = n * (n - 1) / 2
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.float8_e4m3fn, torch.bool):
        data = (torch.arange(10) % 2).to(dtype)
        dist.all_reduce(data, op=dist.ReduceOp.MAX)
        assert torch.equal(data.float(), (torch.arange(10) % 2).float()), dtype
    waited = full(300_000, me)
    work = dist.all_reduce(waited, async_op=True)
    assert work.get_future().then(lambda done: done.value()[0][0].item()).wait() == total
    assert work.wait()
    assert work.is_completed() and work.is_success() and work.exception() is None
    average = full(5, me)
    dist.all_reduce(average, op=dist.ReduceOp.AVG)
    assert average.eq(total / n).all()
    lists_and_bases(me, n)
    roots_and_messages(me, n)
    groups(me, n)
    without_data(me, n)


def lists_and_bases(me: int, n: int) -> None:
    for lengths in ([7] * n, [rank + 1 for rank in range(n)]):
        parts = [torch.zeros(length) for length in lengths]
        dist.all_gather(parts, full(lengths[me], me))
        assert all(part.eq(rank).all() for rank, part in enumerate(parts))
        own = torch.zeros(lengths[me])
        dist.reduce_scatter(own, [full(length, me) for length in lengths])
        assert own.eq(n * (n - 1) / 2).all()
    whole = torch.zeros(7 * n)
    dist.all_gather_single(whole, full(7, me))
    assert torch.equal(whole, torch.arange(float(n)).repeat_interleave(7))
    block = torch.zeros(3)
    dist.reduce_scatter_single(block, torch.arange(3.0 * n))
    assert torch.equal(block, n * (torch.arange(3.0) + 3 * me))
    splits = [(me + other) % 3 for other in range(n)]
    given = torch.cat([torch.full((rows, 4), 10.0 * me + to) for to, rows in enumerate(splits)])
    taken = torch.zeros(sum(splits), 4)
    dist.all_to_all_single(taken, given, splits, splits)
    assert torch.equal(taken, torch.cat([torch.full((rows, 4), 10.0 * of + me) for of, rows in enumerate(splits)]))
    with dist._coalescing_manager():
        many = [torch.ones(4) for _ in range(3)]
        for one in many:
            dist.all_reduce(one)
    assert all(one.eq(n).all() for one in many)


def roots_and_messages(me: int, n: int) -> None:
    for root in range(n):
        data = full(9, me)
        dist.broadcast(data, root)
        assert data.eq(root).all()
        parts = [torch.zeros(4) for _ in range(n)] if me == root else None
        dist.gather(full(4, me), parts, dst=root)
        assert parts is None or all(part.eq(rank).all() for rank, part in enumerate(parts))
        dist.scatter(data := torch.zeros(4), [full(4, rank) for rank in range(n)] if me == root else None, src=root)
        assert data.eq(me).all()
        dist.reduce(data, root)
        assert me != root or data.eq(n * (n - 1) / 2).all()
    came = torch.zeros(5)
    ways = [dist.P2POp(dist.isend, full(5, me), (me + 1) % n), dist.P2POp(dist.irecv, came, (me - 1) % n)]
    for work in dist.batch_isend_irecv(ways):
        work.wait()
    assert came.eq((me - 1) % n).all()
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": me})
    assert objects == [{"rank": rank} for rank in range(n)]
    dist.barrier()


def groups(me: int, n: int) -> None:
    even = dist.new_group(list(range(0, n, 2)))
    if me % 2 == 0:
        dist.all_reduce(data := torch.ones(3), group=even)
        assert data.eq((n + 1) // 2).all()
    mesh = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("outer", "inner"))
    dist.all_reduce(data := torch.ones(2), group=mesh["inner"].get_group())
    assert data.eq(2).all()
    assert functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD).eq(n).all()


def without_data(me: int, n: int) -> None:
    dist.all_reduce(torch.empty(300_001, device="meta", dtype=torch.bfloat16))
    with FakeTensorMode():
        dist.all_gather_single(torch.empty(333 * n), torch.empty(333))
        rows = [(me + other) % 3 for other in range(n)]
        dist.all_to_all_single(torch.empty(sum(rows), 4), torch.empty(sum(rows), 4), rows, rows)
        if me == 0:
            dist.send(torch.empty(1000), 1)
        if me == 1:
            dist.recv(torch.empty(1000), 0)


def refused(what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        assert what in str(error), error
        return
    raise AssertionError(f"{what}: not refused")


def errors(me: int, n: int, store: str) -> None:
    """What users see that call something wrong, or whose peers do not come."""
    joined(me, n, store)
    refused("must be contiguous", lambda: dist.all_reduce(torch.zeros(4, 4).t()))
    refused("use one type of", lambda: dist.all_reduce(torch.zeros(4, dtype=torch.uint16)))
    scaled = torch.full((4,), 2.0)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    assert (scaled == n).all()
    refused("give src", lambda: dist.recv(torch.zeros(4)))
    refused("number of ranks times", lambda: dist.all_gather_single(torch.zeros(n + 1), torch.zeros(1)))
    dist.all_reduce(torch.zeros(4))
    if me == 0:
        dist.group.WORLD.set_timeout(timedelta(seconds=2))
        work = dist.all_reduce(torch.zeros(4), async_op=True)
        refused("OpType=ALLREDUCE, Numel=4, Rank=0) ran for 2000 milliseconds before timing out", work.wait)
        assert work.is_completed() and not work.is_success() and work.exception() is not None
        refused("ran for 2000 milliseconds", work.get_future().wait)
    else:
        until(Path(store).with_name("timed out").exists, "the rank that times out")
    Path(store).with_name("timed out").touch()


class Block(torch.nn.Module):  # type: ignore[misc]
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.attention = torch.nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norm(x))


def model_of(sharding: str) -> Any:
    torch.manual_seed(0)
    layers = [Block() for _ in range(LAYERS)]
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, WIDTH), *layers, torch.nn.Linear(WIDTH, VOCABULARY))
    if sharding == "ddp":
        return DistributedDataParallel(model)
    for layer in layers:
        fully_shard(layer)
    return fully_shard(model)


def losses(sharding: str, rank: int) -> list[str]:
    """Return this rank's loss of each step, to the last bit."""
    model = model_of(sharding)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(rank)
    found = []
    for _ in range(STEPS):
        words = torch.randint(VOCABULARY, (4, 17), generator=generator)
        loss = torch.nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item().hex())
    return found


def training(me: int, n: int, store: str) -> None:
    """Losses of a transformer by both backends, and what FSDP2 calls."""
    for sharding in ("ddp", "fsdp2"):
        found = {}
        for backend in ("gloo", "fabric"):
            joined(me, n, f"{store}-{sharding}-{backend}", backend)
            found[backend] = losses(sharding, me)
            dist.destroy_process_group()
        ours, theirs = ([float.fromhex(one) for one in found[name]] for name in ("fabric", "gloo"))
        furthest = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
        print(
            f"{sharding} rank {me}: {sum(map(str.__eq__, *found.values()))} of {STEPS} equal, furthest {furthest:.1e}"
        )
        assert found["gloo"] == found["fabric"] if n == 2 else furthest < 1e-5, (sharding, found)
    joined(me, n, f"{store}-counts")
    called: list[str] = []
    operation = FabricProcessGroup._operation

    def counted(group: Any, what: str, tensors: Any, timeout: Any) -> Any:
        called.append(what)
        return operation(group, what, tensors, timeout)

    FabricProcessGroup._operation = counted  # type: ignore[assignment, method-assign]
    units = LAYERS + 1
    losses("fsdp2", me)
    assert called.count("_ALLGATHER_BASE") == STEPS * (2 * units - 1), called
    assert called.count("_REDUCE_SCATTER_BASE") == STEPS * units


CASES = {case.__name__: case for case in (operations, errors, training)}


def main(case: str, ranks: int) -> int:
    """Fork the ranks; return how many of them failed."""
    torch.set_num_threads(1)
    register()
    with tempfile.TemporaryDirectory() as directory:
        children = []
        for rank in range(ranks):
            if not (child := os.fork()):
                code = 1
                try:
                    CASES[case](rank, ranks, f"{directory}/store")
                    code = 0
                except BaseException:
                    traceback.print_exc()
                sys.stdout.flush()
                os._exit(code)
            children.append(child)
        return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2])))
