"""Training of eight products of 4,096 x 4,096 in BF16 over ``nccl``: ``linear_layers.py ddp|fsdp2``."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, ROWS = 8, 4096, 8192

if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with torch.device("cuda"):
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(LAYERS)]
        x = torch.randn(ROWS, WIDTH, dtype=torch.bfloat16)
    model = torch.nn.Sequential(*layers)
    if sys.argv[1] == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        for layer in layers[1:]:
            fully_shard(layer)
        fully_shard(model)  # The first layer is the root's own.
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(3):
        dist.barrier()
        began = time.perf_counter()
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        torch.cuda.synchronize()
        took_ms = (time.perf_counter() - began) * 1e3
        print(f"step {step}: {took_ms:.6f} ms, {torch.cuda.memory_allocated()} B", flush=True)
    dist.destroy_process_group()
