"""Training by DDP or FSDP2, eight layers of 1,024 x 1,024: ``torchrun ... training.py ddp|fsdp2 [gloo|fabric]``.

After each step all gradients are compared with those of all ranks' data, computed without communication.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(sys.argv[2] if len(sys.argv) > 2 else "gloo")  # By the variables that torchrun sets.
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)


def layers() -> torch.nn.Sequential:
    """Return the layers, the same in all ranks."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])


alone, model = layers(), layers()
if sys.argv[1] == "ddp":
    model = DistributedDataParallel(model, bucket_cap_mb=8)
else:
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
for step in range(4):
    batches = [torch.randn(4, 1024, generator=torch.Generator().manual_seed(step * ranks + i)) for i in range(ranks)]
    dist.barrier()
    began = time.monotonic()
    model.zero_grad()
    model(batches[rank]).square().sum().backward()
    took = time.monotonic() - began
    alone.zero_grad()
    (sum(alone(batch).square().sum() for batch in batches) / ranks).backward()
    wrong = 0
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        whole = mine.grad.full_tensor() if sys.argv[1] == "fsdp2" else mine.grad
        wrong += int((~torch.isclose(whole, theirs.grad, rtol=1e-4, atol=1e-4)).sum())
    print(f"step {step}: {took * 1e3:.3f} ms, {wrong} gradients wrong", flush=True)
dist.destroy_process_group()
