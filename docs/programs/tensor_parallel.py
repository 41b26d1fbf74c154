"""Perceptrons split over GPUs by DTensor's tensor parallelism: ``torchrun tensor_parallel.py [--layers 4] ...``."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--rows", type=int, default=8192, help="tokens of a batch")
parser.add_argument("--steps", type=int, default=3)
options = parser.parse_args()


class Perceptron(nn.Module):
    """Two products, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(4 * width, width, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        return x + self.down(self.up(x).relu())


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
mesh = dist.init_device_mesh("cuda", (dist.get_world_size(),))
with device:
    model = nn.Sequential(*[Perceptron(options.width) for _ in range(options.layers)])
    x = torch.randn(options.rows, options.width, dtype=torch.bfloat16)
for layer in model:
    parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for step in range(options.steps):
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    if dist.get_rank() == 0:
        print(f"step {step}: {(time.perf_counter() - began) * 1e3:.3f} ms", flush=True)
dist.destroy_process_group()
