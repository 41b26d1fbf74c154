"""A rank of FSDP2 and DDP over ``nccl``: counts its collectives: ``two_gpus.py``, with the variables of torchrun."""

import os
from collections import Counter

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from traffic.torch_backend.operation import Operation

UNITS, WIDTH = 4, 256
PLAN = {"0": ColwiseParallel(), "1": RowwiseParallel()}
calls: Counter[str] = Counter()
real = Operation.__init__


def counted(self: Operation, what: str, *rest: object) -> None:
    """Make an operation, and count it by its kind."""
    calls[what.partition("OpType=")[2].partition(",")[0]] += 1
    real(self, what, *rest)  # type: ignore[arg-type]


def layers() -> torch.nn.Sequential:
    """Return layers on the GPU."""
    with torch.device("cuda"):
        return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(UNITS)])


def stepped(model: torch.nn.Module) -> Counter[str]:
    """Take two steps; return what the second called."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        calls.clear()
        model(torch.randn(8, WIDTH, device="cuda")).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
    return Counter(calls)


if __name__ == "__main__":
    Operation.__init__ = counted  # type: ignore[assignment]
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    assert dist.get_backend() != "fabric"
    sharded = layers()
    for layer in sharded[1:]:
        fully_shard(layer)
    fully_shard(sharded)
    parameter = next(sharded.parameters())
    assert parameter.to_local().shape == (WIDTH // 2, WIDTH)
    found = stepped(sharded)
    assert found == {"_ALLGATHER_BASE": 2 * UNITS - 1, "_REDUCE_SCATTER_BASE": UNITS}, found
    parallel = parallelize_module(layers()[:2], dist.init_device_mesh("cuda", (2,)), PLAN)
    found = stepped(parallel)
    assert found["ALLREDUCE"] == 1, found
    sharded(torch.randn(8, WIDTH, device="cuda")).sum().backward()
    calls.clear()
    torch.nn.utils.clip_grad_norm_(sharded.parameters(), 1.0)
    assert calls["ALLREDUCE"] == 1, calls
    found = stepped(DistributedDataParallel(layers()))
    assert found["ALLREDUCE"] == 1, found
    objects: list[object] = [None, None]
    dist.all_gather_object(objects, {"rank": dist.get_rank()})
    assert objects == [{"rank": 0}, {"rank": 1}]
    whole = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(whole)
    assert whole.item() == 3.0, "tensors of the CPU are summed"
    received = torch.empty(5, device="cuda")
    if dist.get_rank() == 0:
        dist.send(torch.ones(5, device="cuda"), 1)
    else:
        dist.recv(received, 0)
        assert received.tolist() == [1.0] * 5
    counts = torch.tensor([dist.get_rank() + 1], device="cuda")
    dist.all_reduce(counts)
    assert counts.div(2).item() == 1.5
    scaled = torch.tensor([dist.get_rank() + 1.0], device="cuda")
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    assert scaled.item() == 1.5
    gathered = [torch.empty(2, dtype=torch.int64, device="cuda") for _ in range(2)]
    dist.all_gather(gathered, torch.tensor([dist.get_rank(), 7], device="cuda"))
    assert torch.stack(gathered).tolist() == [[0, 7], [1, 7]]
    mixed = torch.ones(3, device="cuda") if dist.get_rank() else torch.randn(3, device="cuda")
    dist.all_reduce(mixed)
    try:
        mixed.sum().item()
    except RuntimeError as error:
        assert "no values here" in str(error), error
    else:
        raise AssertionError("a sum of values that one rank does not have")
    objects = [{"rank": 0}] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(objects, 0, device=torch.device("cuda"))
    assert objects == [{"rank": 0}]
    torch.cuda.synchronize()
    dist.destroy_process_group()
